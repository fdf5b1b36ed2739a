# The files of `cmake --install` and `cpack`: the program with its manual, the libraries, the
# header, and the files for find_package(Knapsack CONFIG) and pkg-config. Three components, which
# become three Debian packages: runtime (the program), library (the shared library) and dev.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Knapsack)

install(FILES runtime/api/knapsack.h TYPE INCLUDE COMPONENT dev)
install(TARGETS ${KS_LIBRARIES} EXPORT KnapsackTargets
  ARCHIVE COMPONENT dev
  LIBRARY COMPONENT library NAMELINK_COMPONENT dev
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT KnapsackTargets NAMESPACE Knapsack:: DESTINATION ${package} COMPONENT dev)

# Libraries that the archive needs if a C compiler links it: those of C++ and mathematics too.
set(KS_CXX_LIBRARIES ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
list(FILTER KS_CXX_LIBRARIES INCLUDE REGEX "^(std)?c[+][+]$|^m$")
set(private utf8proc ${KS_CXX_LIBRARIES} ${CMAKE_DL_LIBS})
list(TRANSFORM private PREPEND -l)
list(APPEND private -pthread)
if(KS_CUDA_FOUND)
  list(APPEND private -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt)
endif()
list(JOIN private " " KS_PRIVATE_LIBRARIES)
# A relative prefix, so that the installed folder may be moved.
file(RELATIVE_PATH KS_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" KS_PREFIX ${KS_PREFIX})
configure_file(cmake/knapsack.pc.in cmake/knapsack.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/cmake/knapsack.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
configure_file(cmake/KnapsackConfig.cmake.in cmake/KnapsackConfig.cmake @ONLY)
write_basic_package_version_file(cmake/KnapsackConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/cmake/KnapsackConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/cmake/KnapsackConfigVersion.cmake
  DESTINATION ${package} COMPONENT dev)

install(FILES LICENSE CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/knapsack COMPONENT runtime)
if(TARGET knapsack)
  install(TARGETS knapsack COMPONENT runtime)
  if(NOT CMAKE_CROSSCOMPILING) # the manual is made from the output of the program
    set(man ${CMAKE_CURRENT_SOURCE_DIR}/scripts/man.sh)
    set(page ${CMAKE_CURRENT_BINARY_DIR}/knapsack.1)
    install(CODE "execute_process(COMMAND sh \"${man}\" \"$<TARGET_FILE:knapsack>\"
      OUTPUT_FILE \"${page}\" COMMAND_ERROR_IS_FATAL ANY)"
      COMPONENT runtime)
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime)
  endif()
endif()

# Debian requires a copyright file and a changelog in every package, and compressed documentation.
set(soname libknapsack${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_PACKAGE_CONTACT "The Knapsack authors <knapsack@example.org>"
  CACHE STRING "The maintainer of the packages")
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(CONFIGURE OUTPUT cmake/changelog @ONLY CONTENT
  "knapsack (@PROJECT_VERSION@) unstable; urgency=medium

  * See CHANGELOG.md in the sources.

 -- @CPACK_PACKAGE_CONTACT@  @date@
")
foreach(component_package runtime/knapsack library/${soname} dev/libknapsack-dev)
  string(REPLACE "/" ";" pair ${component_package})
  list(GET pair 0 component)
  list(GET pair 1 package)
  install(CODE "
    set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATAROOTDIR}\")
    set(doc \"\${share}/doc/${package}\")
    file(REMOVE_RECURSE \"\${doc}\")
    file(MAKE_DIRECTORY \"\${doc}\")
    configure_file(\"${CMAKE_CURRENT_SOURCE_DIR}/LICENSE\" \"\${doc}/copyright\" COPYONLY)
    configure_file(\"${CMAKE_CURRENT_BINARY_DIR}/cmake/changelog\" \"\${doc}/changelog\" COPYONLY)
    file(GLOB pages \"\${share}/man/man1/*.1\")
    execute_process(COMMAND gzip -9n \"\${doc}/changelog\" \${pages} COMMAND_ERROR_IS_FATAL ANY)
    file(GLOB compressed \"\${doc}/changelog.gz\" \"\${share}/man/man1/*.gz\")
    file(CHMOD \"\${doc}/copyright\" \${compressed}
      PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)"
    COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_PACKAGE_VENDOR "The Knapsack authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "language models inside a fixed memory budget")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_CURRENT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL runtime dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME knapsack)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS libvulkan1)
string(JOIN "\n" CPACK_COMPONENT_RUNTIME_DESCRIPTION
  "Runs GGUF models with a hard limit of the memory for weights, KV cache and"
  "activations. The memory is planned before anything is loaded. A compressed"
  "cache holds texts of any length inside the limit.")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS libutf8proc-dev)
if(KS_SHARED)
  list(APPEND CPACK_COMPONENTS_ALL library)
  string(PREPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${soname} (= ${PROJECT_VERSION}), ")
endif()
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${soname})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS libvulkan1)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION
  "The shared library, for programs that use Knapsack and for Python's ctypes.")
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/cmake/triggers "activate-noawait ldconfig\n")
file(CHMOD ${CMAKE_CURRENT_BINARY_DIR}/cmake/triggers
  PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/cmake/triggers)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libknapsack-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
string(JOIN "\n" CPACK_COMPONENT_DEV_DESCRIPTION
  "The files for building programs with Knapsack: the header, the libraries,"
  "and the files for CMake and pkg-config.")
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps)
if(DPKG_SHLIBDEPS)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
else()
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6, libstdc++6, libutf8proc2 | libutf8proc3")
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "libc6, libstdc++6, libutf8proc2 | libutf8proc3")
endif()
include(CPack)
