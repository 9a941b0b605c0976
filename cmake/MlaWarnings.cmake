# SPDX-License-Identifier: Apache-2.0
# mla_warnings: what every C++ target of ours is compiled with. Also the switches that must hold for the whole tree.
set(MLA_SANITIZE "" CACHE STRING "Sanitizers for every C++ file, e.g. address,undefined or thread")

add_library(mla_warnings INTERFACE)
target_compile_options(mla_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
    $<$<BOOL:${MLA_WERROR}>:-Werror>>)
# GCC sees uninitialised values in a std::variant whose alternative it does not know (GCC bug 80635); GCC 12 also overlapping
# copies in "text" + std::string() (GCC bug 105651, mended in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(mla_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(mla_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
endif()

# One instruction set for the whole tree: Eigen's templates are weak symbols and its alignment is part of the ABI, so
# files with different -march must never meet.
if(MLA_CPU_ARCH)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-march=${MLA_CPU_ARCH}>)
endif()
if(MLA_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MLA_SANITIZE}>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all> $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${MLA_SANITIZE})
endif()
