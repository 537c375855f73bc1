# Finds the torch of HYPER_PARALLEL_PYTHON and refuses every version but the pinned one: libtorch promises no
# stability of its C++ interface between releases.

set(HYPER_PARALLEL_TORCH_VERSION 2.13.0)

execute_process(
  COMMAND
    "${HYPER_PARALLEL_PYTHON}" -c
    "import importlib.metadata as m, importlib.util as u; print(m.version('torch').split('+')[0], u.find_spec('torch').submodule_search_locations[0], sep=';')"
  OUTPUT_VARIABLE torch_version_and_path
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET
  RESULT_VARIABLE torch_lookup_status
)
if(NOT torch_lookup_status EQUAL 0)
  message(
    FATAL_ERROR
    "${HYPER_PARALLEL_PYTHON} has no torch: run 'make setup', "
    "or configure with -DHYPER_PARALLEL_WITH_TORCH=OFF for the core alone"
  )
endif()
list(GET torch_version_and_path 0 torch_version)
list(GET torch_version_and_path 1 torch_path)
if(NOT torch_version STREQUAL HYPER_PARALLEL_TORCH_VERSION)
  message(
    FATAL_ERROR
    "${torch_path} is torch ${torch_version}, but hyper_parallel needs exactly "
    "${HYPER_PARALLEL_TORCH_VERSION}: run 'make setup'"
  )
endif()

# TorchConfig warns that the wheel has no static kineto, which nothing here links: the name is given so that it does
# not look. HYPER_PARALLEL_TORCH_VERSION also goes into the installed package's config.
set(kineto_LIBRARY unused)
find_package(
  Torch
  ${HYPER_PARALLEL_TORCH_VERSION}
  EXACT
  REQUIRED
  QUIET
  PATHS "${torch_path}/share/cmake"
  NO_DEFAULT_PATH
)
unset(kineto_LIBRARY)

# The torch wheel carries no gloo headers; Debian's fit the classes that ProcessGroupGloo.hpp mentions.
find_path(GLOO_INCLUDE_DIR gloo/transport/device.h)
if(NOT GLOO_INCLUDE_DIR)
  message(FATAL_ERROR "gloo/transport/device.h was not found: install libgloo-dev")
endif()
message(STATUS "torch ${torch_version} in ${torch_path}")
