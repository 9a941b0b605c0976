# SPDX-License-Identifier: Apache-2.0
# mla_add_backend(NAME FACTORY function HOST files... [DEVICE files... TABLE Type] [ARCHS archs...])
#
# The whole registration of a backend: one call. HOST files join libmla. FACTORY is a function
#     const mla::Backend& FACTORY();
# declared nowhere: the generated registry declares and lists it. Order of the calls = order of preference.
# A backend with DEVICE files needs a CUDA compiler; without one the call does nothing.
#
# mla_add_device_code(NAME DEVICE files... TABLE Type [ARCHS archs...]) is the device half alone.
#
# They join libmla, or the target named by MLA_DEVICE_TARGET, with MLA_DEVICE_DEFINITIONS (test libraries only).
#
# DEVICE files are compiled once for each architecture in ARCHS that is also in MLA_CUDA_ARCHS (default: all of
# those), each in an object library of its own with
#     MLA_ARCH_NS=sm90a  MLA_ARCH_ID=90
# so that everything they define can live in a per-architecture namespace: two objects that both define the same host
# launcher template outside of it would be merged by the linker, and one architecture would silently run the other's.
# Such an object exports one function, mla::MLA_ARCH_NS::NAME_table(), returning a `const mla::kernels::Type&` of its
# entry points (declared in the backend's host header). HOST files include the generated "NAME_images.inc", which
# lists these functions by architecture as kImages (kernels/common/arch_table.hpp picks one).
#
# Architectures: "80" is machine code for 8.x from 8.0 on, and PTX that a newer driver can translate for any later
# GPU; "90a" runs on 9.0 alone; "100f" on its family 10.x.
set_property(GLOBAL PROPERTY MLA_BACKEND_FACTORIES "")

function(mla_add_backend name)
  cmake_parse_arguments(ARG "" "FACTORY;TABLE" "HOST;DEVICE;ARCHS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_FACTORY OR NOT ARG_HOST)
    message(FATAL_ERROR "mla_add_backend(${name}): wants FACTORY and HOST, got '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  if(ARG_DEVICE)
    if(NOT MLA_HAVE_CUDA)
      return()  # MlaCuda has said that the CPU parts alone are built
    endif()
    mla_add_device_code(${name} DEVICE ${ARG_DEVICE} TABLE ${ARG_TABLE} ARCHS ${ARG_ARCHS})
  endif()
  list(TRANSFORM ARG_HOST PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  target_sources(mla PRIVATE ${ARG_HOST})
  set_property(GLOBAL APPEND PROPERTY MLA_BACKEND_FACTORIES ${ARG_FACTORY})
endfunction()

function(mla_add_device_code name)
  cmake_parse_arguments(ARG "" "TABLE" "DEVICE;ARCHS" ${ARGN})
  if(NOT name MATCHES "^[a-z_][a-z0-9_]*$")
    message(FATAL_ERROR "mla_add_device_code(${name}): the name is part of a C++ function's, so letters, digits and _ alone")
  endif()
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_DEVICE OR NOT ARG_TABLE)
    message(FATAL_ERROR "mla_add_device_code(${name}): wants DEVICE and TABLE, got '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT ARG_ARCHS)
    set(ARG_ARCHS ${MLA_CUDA_ARCHS})
  endif()
  set(declarations "")
  set(entries "")
  foreach(arch IN LISTS ARG_ARCHS)
    if(NOT arch IN_LIST MLA_CUDA_ARCHS)
      continue()
    endif()
    if(NOT arch MATCHES "^([0-9]+)([af]?)$")
      message(FATAL_ERROR "MLA_CUDA_ARCHS: '${arch}' is none of 80, 90a, 100f, ...")
    endif()
    set(id ${CMAKE_MATCH_1})
    if(CMAKE_MATCH_2 STREQUAL "a")
      set(match kExact)
    elseif(CMAKE_MATCH_2 STREQUAL "f")
      set(match kFamily)
    else()
      set(match kFrom)
    endif()
    mla_device_objects(${name} ${arch} ${id} ${match} ${ARG_DEVICE})
    string(APPEND declarations "namespace sm${arch} {\nconst kernels::${ARG_TABLE}& ${name}_table();\n}\n")
    string(APPEND entries "    {${id}, ArchMatch::${match}, &sm${arch}::${name}_table},\n")
  endforeach()
  set(table ${ARG_TABLE})
  configure_file("${PROJECT_SOURCE_DIR}/cmake/images.inc.in" "${PROJECT_BINARY_DIR}/lib/generated/${name}_images.inc" @ONLY)
endfunction()

# The object library of one architecture.
function(mla_device_objects name arch id match)
  set(object mla_${name}_sm${arch})
  add_library(${object} OBJECT ${ARGN})
  target_compile_definitions(${object} PRIVATE MLA_ARCH_NS=sm${arch} MLA_ARCH_ID=${id} mla_EXPORTS)
  if(match STREQUAL "kFrom")
    set(target "${arch}")
  else()
    set(target "${arch}-real")
  endif()
  # CMake 3.25 does not know C++20 for nvcc: where it has no flag we add it.
  set_target_properties(${object} PROPERTIES CUDA_ARCHITECTURES "${target}" CUDA_VISIBILITY_PRESET hidden
    CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED OFF)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    target_compile_options(${object} PRIVATE -std=c++20)
  endif()
  target_compile_options(${object} PRIVATE -lineinfo --expt-relaxed-constexpr
    -Xptxas=-warn-spills,-warn-lmem-usage,-warn-double-usage -Xcompiler=-Wall,-Wextra,-Wshadow
    $<$<BOOL:${MLA_WERROR}>:-Werror=all-warnings>)
  target_include_directories(${object} PRIVATE "${PROJECT_SOURCE_DIR}/kernels" "${PROJECT_SOURCE_DIR}/lib/include"
    "${PROJECT_BINARY_DIR}/lib/include")
  target_link_libraries(${object} PRIVATE CUDA::cudart_static)
  if(NOT MLA_DEVICE_TARGET)
    set(MLA_DEVICE_TARGET mla)
  endif()
  target_sources(${MLA_DEVICE_TARGET} PRIVATE $<TARGET_OBJECTS:${object}>)
  target_compile_definitions(${object} PRIVATE ${MLA_DEVICE_DEFINITIONS})
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
