# SPDX-License-Identifier: Apache-2.0
# mla_add_backend(NAME FACTORY function HOST files... [DEVICE files...] [ARCHS archs...])
#
# The whole registration of a backend: one call. HOST files join libmla. FACTORY is a function
#     const mla::Backend& FACTORY();
# declared nowhere: the generated registry declares and lists it. Order of the calls = order of preference.
# DEVICE files need a CUDA compiler; they are compiled once for each architecture in ARCHS that is also in
# MLA_CUDA_ARCHS (default: all of those), each in an object library of its own with
#     MLA_ARCH_NS=sm90a  MLA_ARCH_ID=90
# so that all device code can live in a per-architecture namespace: two objects that both define the same host
# launcher template outside of it would be merged by the linker, and one architecture would silently run the other's.
set_property(GLOBAL PROPERTY MLA_BACKEND_FACTORIES "")

function(mla_add_backend name)
  cmake_parse_arguments(ARG "" "FACTORY" "HOST;DEVICE;ARCHS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_FACTORY OR NOT ARG_HOST)
    message(FATAL_ERROR "mla_add_backend(${name}): wants FACTORY and HOST, got '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  if(ARG_DEVICE AND NOT MLA_HAVE_CUDA)
    message(STATUS "backend ${name} skipped (no CUDA compiler)")
    return()
  endif()
  list(TRANSFORM ARG_HOST PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  target_sources(mla PRIVATE ${ARG_HOST})
  if(ARG_DEVICE)
    mla_add_device_objects(${name} "${ARG_ARCHS}" ${ARG_DEVICE})
  endif()
  set_property(GLOBAL APPEND PROPERTY MLA_BACKEND_FACTORIES ${ARG_FACTORY})
endfunction()

# Device code that is not a backend (cache operations, indexers) uses this directly.
function(mla_add_device_objects name archs)
  if(NOT archs)
    set(archs ${MLA_CUDA_ARCHS})
  endif()
  foreach(arch IN LISTS archs)
    if(NOT arch IN_LIST MLA_CUDA_ARCHS)
      continue()
    endif()
    set(object mla_${name}_sm${arch})
    add_library(${object} OBJECT ${ARGN})
    string(REGEX MATCH "^[0-9]+" arch_id ${arch})
    target_compile_definitions(${object} PRIVATE MLA_ARCH_NS=sm${arch} MLA_ARCH_ID=${arch_id})
    set_target_properties(${object} PROPERTIES CUDA_ARCHITECTURES "${arch}-real" CUDA_VISIBILITY_PRESET hidden)
    # CMake 3.25 does not know C++20 for nvcc and would add no flag at all.
    target_compile_options(${object} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 -lineinfo --expt-relaxed-constexpr
      -Xptxas=-warn-spills,-warn-lmem-usage,-warn-double-usage $<$<BOOL:${MLA_WERROR}>:-Werror=all-warnings>>)
    target_include_directories(${object} PRIVATE "${PROJECT_SOURCE_DIR}/kernels" "${PROJECT_SOURCE_DIR}/lib/include"
      "${PROJECT_BINARY_DIR}/lib/include")
    target_link_libraries(${object} PRIVATE CUDA::cudart_static)
    target_sources(mla PRIVATE $<TARGET_OBJECTS:${object}>)
    target_link_libraries(mla PRIVATE CUDA::cudart_static)
  endforeach()
endfunction()

# After the last mla_add_backend: writes the registry.
function(mla_finish_backends)
  get_property(factories GLOBAL PROPERTY MLA_BACKEND_FACTORIES)
  set(declarations "")
  set(entries "")
  foreach(factory IN LISTS factories)
    string(APPEND declarations "const Backend& ${factory}();\n")
    string(APPEND entries "    &${factory}(),\n")
  endforeach()
  configure_file("${PROJECT_SOURCE_DIR}/cmake/backends.inc.in" "${PROJECT_BINARY_DIR}/lib/generated/mla_backends.inc" @ONLY)
endfunction()
