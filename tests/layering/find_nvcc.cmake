# SPDX-License-Identifier: Apache-2.0
# cmake -D SOURCE_DIR=... -D WORK_DIR=... -P find_nvcc.cmake: which nvcc a build takes where several can be found.
if(FIND_ONLY)
  include("${SOURCE_DIR}/cmake/MlaFindNvcc.cmake")
  mla_find_nvcc(found)
  message(STATUS "found=${found}")
  return()
endif()

file(REMOVE_RECURSE "${WORK_DIR}")
foreach(place IN ITEMS path home named)
  file(WRITE "${WORK_DIR}/${place}/bin/nvcc" "#!/bin/sh\n")
  file(CHMOD "${WORK_DIR}/${place}/bin/nvcc" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endforeach()
set(on_path "PATH=${WORK_DIR}/path/bin:/usr/bin:/bin")
set(not_on_path "PATH=/usr/bin:/bin")
set(home "CUDA_HOME=${WORK_DIR}/home")
set(named "CUDACXX=${WORK_DIR}/named/bin/nvcc")

function(expect want)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=CUDACXX --unset=CUDA_HOME --unset=CUDA_PATH ${ARGN}
      ${CMAKE_COMMAND} -D FIND_ONLY=ON "-DSOURCE_DIR=${SOURCE_DIR}" -P "${CMAKE_CURRENT_LIST_FILE}"
    OUTPUT_VARIABLE output RESULT_VARIABLE code)
  if(code OR NOT output MATCHES "found=${WORK_DIR}/${want}/bin/nvcc\n")
    message(FATAL_ERROR "with ${ARGN} the nvcc of '${want}' was wanted, but: ${output}")
  endif()
endfunction()

expect(path "${on_path}")
expect(path "${on_path}" "${home}")
expect(named "${on_path}" "${home}" "${named}")
if(NOT EXISTS /usr/bin/nvcc AND NOT EXISTS /bin/nvcc)
  expect(home "${not_on_path}" "${home}")
  expect(home "${not_on_path}" "CUDACXX=" "${home}")
endif()
