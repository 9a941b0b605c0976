# SPDX-License-Identifier: Apache-2.0
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(code)
    message(FATAL_ERROR "${ARGN}\nended with ${code}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(prefix "${WORK_DIR}/prefix")
set(moved "${WORK_DIR}/moved")
file(REMOVE_RECURSE "${prefix}" "${moved}" "${WORK_DIR}/build")
run(${CMAKE_COMMAND} --install "${BUILD_DIR}" --prefix "${prefix}")
file(RENAME "${prefix}" "${moved}")  # the package must not remember where it was installed

run(${CMAKE_COMMAND} -S "${SOURCE_DIR}" -B "${WORK_DIR}/build" -G Ninja "-DCMAKE_PREFIX_PATH=${moved}"
  "-DCMAKE_CXX_COMPILER=${CXX}")
run(${CMAKE_COMMAND} --build "${WORK_DIR}/build")
run("${WORK_DIR}/build/consumer")
if(NOT output MATCHES "bf16 row of DeepSeek-V3: 1152 bytes")
  message(FATAL_ERROR "the consumer printed: ${output}")
endif()

# The installed programs find the library and the configs beside them.
set(ENV{MLA_CONFIG_DIR} "")
run("${moved}/bin/mla-memcalc" --version)
run("${moved}/bin/mla-memcalc" list models)
if(NOT output MATCHES "deepseek-v3")
  message(FATAL_ERROR "installed mla-memcalc lists no deepseek-v3: ${output}")
endif()

set(ENV{PKG_CONFIG_PATH} "${moved}/${LIBDIR}/pkgconfig")
run(pkg-config --cflags --libs mla)
string(STRIP "${output}" flags)
separate_arguments(flags UNIX_COMMAND "${flags}")
run("${CXX}" -std=c++20 "${SOURCE_DIR}/main.cpp" -o "${WORK_DIR}/build/consumer-pc" ${flags}
  "-Wl,-rpath,${moved}/${LIBDIR}")
run("${WORK_DIR}/build/consumer-pc")

# Nothing but our own namespace is exported, beside the standard library's templates, which every library exports.
find_program(NM nm REQUIRED)
run("${NM}" --dynamic --demangle --defined-only "${moved}/${LIBDIR}/libmla.so")
string(REGEX REPLACE "\n+$" "" output "${output}")
string(REPLACE ";" "," output "${output}")
string(REPLACE "\n" ";" symbols "${output}")
list(FILTER symbols EXCLUDE REGEX "mla::|std::|__gnu_cxx::")
if(symbols)
  message(FATAL_ERROR "libmla.so exports what is not its own: ${symbols}")
endif()

# SONAME carries the minor version while the major one is 0.
find_program(READELF readelf REQUIRED)
run("${READELF}" -d "${moved}/${LIBDIR}/libmla.so")
if(NOT output MATCHES "SONAME.*libmla\\.so\\.0\\.[0-9]+")
  message(FATAL_ERROR "unexpected SONAME: ${output}")
endif()
