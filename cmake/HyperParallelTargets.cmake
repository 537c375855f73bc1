# The functions by which every folder declares its targets. All of them glob, so that adding a file is enough.

# Umbrella targets, named by the build presets. A test's label is the name before "_tests".
foreach(group IN ITEMS core torch threaded distributed)
  add_custom_target(${group}_tests)
endforeach()
add_custom_target(benchmarks)
add_custom_target(fuzzers)

# hp_test(<name> LABEL core|torch|threaded|distributed SOURCES <file>... DEPS <target>... [TIMEOUT <s>] [SERIAL]
#         [ONE_PROCESS_WHEN_SANITIZED])
#
# One GoogleTest program whose tests ctest discovers when it runs. TIMEOUT is for each test (60 s by default).
# ONE_PROCESS_WHEN_SANITIZED makes all of them one ctest test there: for programs with torch, whose start under a
# sanitizer takes far longer than a test.
# SERIAL keeps every other test away while one of these runs: for tests that start processes and measure time-outs.
function(hp_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;ONE_PROCESS_WHEN_SANITIZED" "LABEL;TIMEOUT" "SOURCES;DEPS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  set(serial FALSE)
  if(arg_SERIAL)
    set(serial TRUE)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest_main)
  add_dependencies(${arg_LABEL}_tests ${name})
  if(arg_ONE_PROCESS_WHEN_SANITIZED AND HYPER_PARALLEL_SANITIZE)
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT 1200)
    return()
  endif()
  gtest_discover_tests(
    ${name}
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${serial}
  )
endfunction()

# hp_library(<name> [DEPS <folder>...] [LINK <target>...] [LABEL <label>] [EXCLUDE <file>...] [TEST_LINK <target>...])
#
# The folder src/hyper_parallel/<name> as the static library hyper_parallel_<name>, alias hyper_parallel::<name>, and
# its *_test.cc as the program <name>_test. DEPS are folders above it, LINK are outside libraries. A folder of
# headers alone becomes an INTERFACE library.
function(hp_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL" "DEPS;LINK;EXCLUDE;TEST_LINK")
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  foreach(file IN LISTS arg_EXCLUDE)
    list(REMOVE_ITEM sources "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
  endforeach()
  list(TRANSFORM arg_DEPS PREPEND "hyper_parallel::")

  set(target hyper_parallel_${name})
  if(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(hyper_parallel::${name} ALIAS ${target})
  target_include_directories(${target} ${scope} "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(${target} ${scope} ${arg_DEPS} ${arg_LINK})

  if(tests AND HYPER_PARALLEL_BUILD_TESTS)
    if(NOT arg_LABEL)
      set(arg_LABEL core)
    endif()
    hp_test(${name}_test LABEL ${arg_LABEL} SOURCES ${tests} DEPS hyper_parallel::${name} ${arg_TEST_LINK})
  endif()
endfunction()

# hp_programs(<glob> <output variable> DEPS <target>...)
#
# One program for each matching file of the current folder, named as the file; the sources in a folder of the same
# name, if there is one, belong to it. The list of the programs goes into the variable.
function(hp_programs pattern output)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "DEPS")
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${pattern}")
  set(programs)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM program)
    file(GLOB parts CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${program}/*.cc")
    add_executable(${program} ${source} ${parts})
    target_include_directories(${program} PRIVATE "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${program} PRIVATE ${arg_DEPS})
    list(APPEND programs ${program})
  endforeach()
  set(${output} ${programs} PARENT_SCOPE)
endfunction()
