# SPDX-License-Identifier: Apache-2.0
# mla_find_nvcc(VAR): the CUDA compiler of CUDACXX, of PATH, of CUDA_HOME (CUDA_PATH) or of /usr/local/cuda, the first that
# there is; empty if there is none. check_language(CUDA) of CMake 3.25 does not look into /usr/local/cuda.
function(mla_find_nvcc var)
  if(NOT "$ENV{CUDACXX}" STREQUAL "")
    set(${var} "$ENV{CUDACXX}" PARENT_SCOPE)
    return()
  endif()
  # PATHS, not HINTS, and no folders of CMake's own: those come before PATH and CUDA_HOME, and a toolkit that somebody chose
  # there would lose to another one that merely lies in /usr/local.
  find_program(MLA_NVCC nvcc PATHS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin NO_CMAKE_SYSTEM_PATH)
  if(MLA_NVCC)
    set(${var} "${MLA_NVCC}" PARENT_SCOPE)
  else()
    set(${var} "" PARENT_SCOPE)
  endif()
endfunction()
