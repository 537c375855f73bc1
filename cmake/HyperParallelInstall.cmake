# The two shared libraries, made of the folders' objects, and what `cmake --install` puts where:
#
#   lib/libhyper_parallel.so        the core, free of torch
#   lib/libhyper_parallel_torch.so  the libtorch layer, over the first
#   include/hyper_parallel/         the headers
#   lib/cmake/hyper_parallel/       find_package(hyper_parallel [COMPONENTS torch])
#   bin/hyper-parallel              the command (component "command")

include(CMakePackageConfigHelpers)

if(SKBUILD)
  # In a wheel there are no links, so that each library has one name only, and torch is the package next door.
  set(library_version "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
  set(torch_libraries "$ORIGIN/../torch/lib")
else()
  set(library_version "${PROJECT_VERSION}")
  set(torch_libraries "${TORCH_INSTALL_PREFIX}/lib")
endif()

# hp_shared_library(<name> FOLDERS <folder>...): one shared library of the objects of several folders.
function(hp_shared_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FOLDERS")
  add_library(${name} SHARED)
  foreach(folder IN LISTS arg_FOLDERS)
    get_target_property(type hyper_parallel_${folder} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      target_sources(${name} PRIVATE "$<TARGET_OBJECTS:hyper_parallel_${folder}>")
    endif()
  endforeach()
  set_target_properties(
    ${name}
    PROPERTIES
      LINKER_LANGUAGE CXX
      VERSION ${library_version}
      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
      INSTALL_RPATH "$ORIGIN"
  )
  target_compile_features(${name} INTERFACE cxx_std_20)
  target_include_directories(
    ${name}
    INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>"
  )
  install(TARGETS ${name} EXPORT hyper_parallel_targets)
endfunction()

set(
  core_folders
  base
  mesh
  placement
  layout
  geometry
  random
  redistribute
  operations
  simulate
  checkpoint
)
set(header_folders ${core_folders})
hp_shared_library(hyper_parallel FOLDERS ${core_folders})

if(HYPER_PARALLEL_WITH_TORCH)
  # The static target hyper_parallel_torch has the plain name; the file is libhyper_parallel_torch.so all the same.
  hp_shared_library(hyper_parallel_torch_shared FOLDERS torch)
  set_target_properties(
    hyper_parallel_torch_shared
    PROPERTIES OUTPUT_NAME hyper_parallel_torch EXPORT_NAME torch INSTALL_RPATH "$ORIGIN;${torch_libraries}"
  )
  target_link_libraries(hyper_parallel_torch_shared PUBLIC hyper_parallel torch c10)
  list(APPEND header_folders torch)
endif()

foreach(folder IN LISTS header_folders)
  install(
    DIRECTORY "${PROJECT_SOURCE_DIR}/src/hyper_parallel/${folder}"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/hyper_parallel"
    FILES_MATCHING
    PATTERN "*.h"
  )
endforeach()

set(config_dir "${CMAKE_INSTALL_LIBDIR}/cmake/hyper_parallel")
install(EXPORT hyper_parallel_targets NAMESPACE hyper_parallel:: DESTINATION "${config_dir}")
configure_file(
  "${PROJECT_SOURCE_DIR}/cmake/hyper_parallel-config.cmake.in"
  "${PROJECT_BINARY_DIR}/hyper_parallel-config.cmake"
  @ONLY
)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/hyper_parallel-config-version.cmake"
  COMPATIBILITY SameMinorVersion
)
install(
  FILES "${PROJECT_BINARY_DIR}/hyper_parallel-config.cmake" "${PROJECT_BINARY_DIR}/hyper_parallel-config-version.cmake"
  DESTINATION "${config_dir}"
)
