# SPDX-License-Identifier: Apache-2.0
# The installed package: library, headers, programs, data, CMake package and pkg-config file, all relocatable.
include(CMakePackageConfigHelpers)

install(TARGETS mla EXPORT mlaTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT mlaTargets NAMESPACE mla:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/mla")
export(EXPORT mlaTargets NAMESPACE mla:: FILE "${PROJECT_BINARY_DIR}/mlaTargets.cmake")

configure_package_config_file(cmake/mlaConfig.cmake.in "${PROJECT_BINARY_DIR}/mlaConfig.cmake"
  INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/mla")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/mlaConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/mlaConfig.cmake" "${PROJECT_BINARY_DIR}/mlaConfigVersion.cmake"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/mla")

file(RELATIVE_PATH MLA_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(cmake/mla.pc.in "${PROJECT_BINARY_DIR}/mla.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/mla.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

file(RELATIVE_PATH MLA_LIB_FROM_BIN "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
foreach(program IN ITEMS mla-memcalc mla-verify mla-bench)
  if(TARGET ${program})  # a room under construction must not stop the others from configuring
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/${MLA_LIB_FROM_BIN}")
    install(TARGETS ${program} DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endforeach()
install(DIRECTORY configs/ DESTINATION "${CMAKE_INSTALL_DATADIR}/mla")
install(FILES LICENSE README.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
