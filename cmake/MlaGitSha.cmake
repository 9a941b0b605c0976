# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.25)
# Run by every build (cmake -DSOURCE=... -DOUTPUT=... -P): writes the commit that is being built, which a value taken at
# configure time would soon misname. The file is only touched when the text changes, so nothing is rebuilt for it.
set(sha "unknown")
find_program(GIT git)
if(GIT)
  # A release archive unpacked inside somebody else's repository must not carry that repository's commit.
  execute_process(COMMAND ${GIT} -C "${SOURCE}" rev-parse --show-toplevel
    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  get_filename_component(source "${SOURCE}" REALPATH)
  if(NOT failed AND top STREQUAL source)
    execute_process(COMMAND ${GIT} -C "${SOURCE}" rev-parse --short=9 HEAD
      OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    execute_process(COMMAND ${GIT} --no-optional-locks -C "${SOURCE}" status --porcelain --untracked-files=no
      OUTPUT_VARIABLE changes ERROR_QUIET)
    if(NOT failed)
      set(sha "${head}")
      if(changes)
        string(APPEND sha "+dirty")
      endif()
    endif()
  endif()
endif()
# In an archive made by `git archive` there is no repository, but git wrote the commit into this file.
if(sha STREQUAL "unknown")
  file(STRINGS "${SOURCE}/cmake/commit.txt" archived LIMIT_COUNT 1)
  if(archived MATCHES "^[0-9a-f]+$")
    set(sha "${archived}")
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#define MLA_BUILD_GIT \"@sha@\"\n" @ONLY)
