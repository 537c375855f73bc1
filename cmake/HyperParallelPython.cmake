# The Python package: its two extension modules, and the Python files beside them.
#
#   build/<preset>/python/hyper_parallel/   the modules, and a link to each file of python/hyper_parallel:
#                                           PYTHONPATH=build/dev/python runs the package from the tree
#   hyper_parallel/                         what `cmake --install --component python` makes of the modules and the
#                                           shared libraries: the compiled half of the wheel
#
# pybind11 is the one that torch was built with and whose headers its wheel carries: modules of another internals
# version do not see torch's types, and `_core` and `_torch` not each other's. Without torch it is PyPI's package of
# that very release.

set(HYPER_PARALLEL_PYBIND11_INTERNALS_VERSION 11)

set(Python_EXECUTABLE "${HYPER_PARALLEL_PYTHON}")
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

if(HYPER_PARALLEL_WITH_TORCH)
  set(pybind11_home torch)
else()
  set(pybind11_home pybind11)
endif()
execute_process(
  COMMAND
    "${HYPER_PARALLEL_PYTHON}" -c
    "import importlib.util as u; print(u.find_spec('${pybind11_home}').submodule_search_locations[0])"
  OUTPUT_VARIABLE pybind11_home_path
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET
  RESULT_VARIABLE pybind11_lookup_status
)
set(pybind11_include_dir "${pybind11_home_path}/include")
set(pybind11_internals "${pybind11_include_dir}/pybind11/detail/internals.h")
if(NOT pybind11_lookup_status EQUAL 0 OR NOT EXISTS "${pybind11_internals}")
  message(
    FATAL_ERROR
    "${HYPER_PARALLEL_PYTHON} has no ${pybind11_home} with pybind11 headers: run 'make setup' (with torch) or "
    "'tools/setup.sh mindspore' (without), or configure with -DHYPER_PARALLEL_BUILD_PYTHON=OFF"
  )
endif()
file(STRINGS "${pybind11_internals}" pybind11_version_lines REGEX "define PYBIND11_INTERNALS_VERSION [0-9]+")
if(NOT pybind11_version_lines MATCHES "VERSION ${HYPER_PARALLEL_PYBIND11_INTERNALS_VERSION}$")
  message(
    FATAL_ERROR
    "${pybind11_include_dir} has pybind11 with '${pybind11_version_lines}', "
    "but internals version ${HYPER_PARALLEL_PYBIND11_INTERNALS_VERSION} is needed"
  )
endif()

set(HYPER_PARALLEL_PYTHON_DIR "${PROJECT_BINARY_DIR}/python/hyper_parallel")

# hp_python_package(): links every file of python/hyper_parallel into the build tree and removes links to files that
# are gone.
function(hp_python_package)
  set(source_dir "${PROJECT_SOURCE_DIR}/python/hyper_parallel")
  file(
    GLOB_RECURSE files
    RELATIVE "${source_dir}"
    CONFIGURE_DEPENDS
    "${source_dir}/*.py"
    "${source_dir}/*.pyi"
    "${source_dir}/py.typed"
  )
  file(GLOB_RECURSE links LIST_DIRECTORIES FALSE "${HYPER_PARALLEL_PYTHON_DIR}/*")
  foreach(link IN LISTS links)
    if(IS_SYMLINK "${link}" AND NOT EXISTS "${link}")
      file(REMOVE "${link}")
    endif()
  endforeach()
  foreach(file IN LISTS files)
    cmake_path(GET file PARENT_PATH folder)
    file(MAKE_DIRECTORY "${HYPER_PARALLEL_PYTHON_DIR}/${folder}")
    file(CREATE_LINK "${source_dir}/${file}" "${HYPER_PARALLEL_PYTHON_DIR}/${file}" SYMBOLIC)
  endforeach()
endfunction()

# hp_python_module(<name> SOURCES <file>... LINK <target>... [RPATH <entry>...])
#
# The extension module hyper_parallel.<name>. RPATH are further places, relative to the package's folder, in which the
# installed module looks for shared libraries.
function(hp_python_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK;RPATH")
  add_library(${name} MODULE ${arg_SOURCES})
  set_target_properties(
    ${name}
    PROPERTIES
      PREFIX ""
      SUFFIX ".${Python_SOABI}${CMAKE_SHARED_MODULE_SUFFIX}"
      CXX_VISIBILITY_PRESET hidden
      VISIBILITY_INLINES_HIDDEN ON
      LIBRARY_OUTPUT_DIRECTORY "${HYPER_PARALLEL_PYTHON_DIR}"
      INSTALL_RPATH "$ORIGIN;${arg_RPATH}"
  )
  target_include_directories(${name} SYSTEM PRIVATE "${pybind11_include_dir}")
  target_link_libraries(${name} PRIVATE ${arg_LINK} Python::Module)
  install(TARGETS ${name} COMPONENT python LIBRARY DESTINATION hyper_parallel)
endfunction()
