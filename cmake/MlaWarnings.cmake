# SPDX-License-Identifier: Apache-2.0
# mla_warnings: what every C++ target of ours is compiled with.
add_library(mla_warnings INTERFACE)
target_compile_options(mla_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
    $<$<BOOL:${MLA_WERROR}>:-Werror>>)
if(MLA_CPU_ARCH)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-march=${MLA_CPU_ARCH}>)
endif()
