# What `cmake --install` and `cpack` put where: the program with its manual, the libraries, the header, and what finds them
# (find_package(Knapsack CONFIG), pkg-config). Two components, which are two packages for Debian: what runs, and what is built with.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Knapsack)

install(FILES runtime/api/knapsack.h TYPE INCLUDE COMPONENT dev)
install(TARGETS ${KS_LIBRARIES} EXPORT KnapsackTargets
  ARCHIVE COMPONENT dev
  LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT KnapsackTargets NAMESPACE Knapsack:: DESTINATION ${package} COMPONENT dev)

# What the archive needs beside itself where a C compiler links it: also the libraries of C++ and of mathematics.
set(KS_CXX_LIBRARIES ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER KS_CXX_LIBRARIES INCLUDE REGEX "^(std)?c[+][+]$|^m$")
set(private utf8proc ${KS_CXX_LIBRARIES} ${CMAKE_DL_LIBS})
list(TRANSFORM private PREPEND -l)
list(APPEND private -pthread)
if(KS_CUDA_FOUND)
  list(APPEND private -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt)
endif()
list(JOIN private " " KS_PRIVATE_LIBRARIES)
file(RELATIVE_PATH KS_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /) # so that what is installed may be moved
string(REGEX REPLACE "/$" "" KS_PREFIX ${KS_PREFIX})
configure_file(cmake/knapsack.pc.in cmake/knapsack.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/cmake/knapsack.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
configure_file(cmake/KnapsackConfig.cmake.in cmake/KnapsackConfig.cmake @ONLY)
write_basic_package_version_file(cmake/KnapsackConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/cmake/KnapsackConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/cmake/KnapsackConfigVersion.cmake
  DESTINATION ${package} COMPONENT dev)

install(FILES LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/knapsack COMPONENT runtime)
if(TARGET knapsack)
  install(TARGETS knapsack COMPONENT runtime)
  if(NOT CMAKE_CROSSCOMPILING) # the program itself says what it can do
    set(man ${CMAKE_CURRENT_SOURCE_DIR}/tools/man.sh)
    set(page ${CMAKE_CURRENT_BINARY_DIR}/knapsack.1)
    install(CODE "execute_process(COMMAND sh \"${man}\" \"$<TARGET_FILE:knapsack>\" OUTPUT_FILE \"${page}\" COMMAND_ERROR_IS_FATAL ANY)"
      COMPONENT runtime)
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime)
  endif()
endif()

set(CPACK_PACKAGE_VENDOR "The Knapsack authors")
set(CPACK_PACKAGE_CONTACT "The Knapsack authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "language models inside a fixed number of bytes")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_CURRENT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL runtime dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME knapsack)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS libvulkan1)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
  "Runs GGUF models with a hard limit of the memory for weights, cache and activations, which is planned\nbefore anything is loaded; a compressed cache keeps texts of any length inside it.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libknapsack-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "knapsack (= ${PROJECT_VERSION}), libutf8proc-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION "What programs that link Knapsack are built with: its header, its libraries, and what finds them.")
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps)
if(DPKG_SHLIBDEPS)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
else()
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6, libstdc++6, libutf8proc2 | libutf8proc3")
endif()
include(CPack)
