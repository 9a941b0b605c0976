# SPDX-License-Identifier: Apache-2.0
# Every third-party package in one place. Installed ones are used; MLA_FETCH_DEPS=ON downloads what is missing.
include(FetchContent)

# mla_dependency(NAME version-floor url-of-a-release-archive TARGET target [OPTIONS VAR=VALUE ...])
function(mla_dependency name floor url)
  cmake_parse_arguments(ARG "" "TARGET;DEBIAN" "OPTIONS" ${ARGN})
  find_package(${name} ${floor} QUIET)
  if(TARGET ${ARG_TARGET})
    message(STATUS "${name} ${${name}_VERSION}")
    return()
  endif()
  if(NOT MLA_FETCH_DEPS)
    message(FATAL_ERROR "${name} >= ${floor} was not found. Install it (Debian/Ubuntu: apt-get install ${ARG_DEBIAN}) "
                        "or configure with -DMLA_FETCH_DEPS=ON to download it.")
  endif()
  message(STATUS "${name}: downloading ${url}")
  foreach(pair IN LISTS ARG_OPTIONS)
    string(REPLACE "=" ";" pair "${pair}")
    list(GET pair 0 key)
    list(GET pair 1 value)
    set(${key} ${value} CACHE INTERNAL "")
  endforeach()
  FetchContent_Declare(${name} URL ${url} SYSTEM)  # our warnings are not about their headers
  FetchContent_MakeAvailable(${name})
endfunction()

find_package(Threads REQUIRED)
mla_dependency(fmt 9.1 https://github.com/fmtlib/fmt/archive/refs/tags/10.2.1.tar.gz TARGET fmt::fmt DEBIAN libfmt-dev)
mla_dependency(Eigen3 3.4 https://gitlab.com/libeigen/eigen/-/archive/3.4.0/eigen-3.4.0.tar.gz
  TARGET Eigen3::Eigen DEBIAN libeigen3-dev OPTIONS EIGEN_BUILD_DOC=OFF BUILD_TESTING=OFF)
mla_dependency(nlohmann_json 3.11 https://github.com/nlohmann/json/archive/refs/tags/v3.11.3.tar.gz
  TARGET nlohmann_json::nlohmann_json DEBIAN nlohmann-json3-dev OPTIONS JSON_BuildTests=OFF)
mla_dependency(CLI11 2.1 https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
  TARGET CLI11::CLI11 DEBIAN libcli11-dev OPTIONS CLI11_BUILD_TESTS=OFF CLI11_BUILD_EXAMPLES=OFF)
mla_dependency(benchmark 1.7 https://github.com/google/benchmark/archive/refs/tags/v1.8.4.tar.gz
  TARGET benchmark::benchmark DEBIAN libbenchmark-dev OPTIONS BENCHMARK_ENABLE_TESTING=OFF)
if(MLA_BUILD_TESTS)
  mla_dependency(GTest 1.12 https://github.com/google/googletest/archive/refs/tags/v1.14.0.tar.gz
    TARGET GTest::gtest_main DEBIAN libgtest-dev)
endif()
