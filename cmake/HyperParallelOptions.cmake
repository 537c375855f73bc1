# Language level, warnings, sanitizers and the compiler cache: all that holds for every own source file.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_compile_options(-Wall -Wextra -Wconversion -Wshadow)
if(HYPER_PARALLEL_WARNINGS_AS_ERRORS)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # At -O3 g++ 12 takes copies of std::string for overlapping ones (GCC bug 105329).
  add_compile_options($<$<CONFIG:Release>:-Wno-restrict>)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # clang's -Wconversion contains -Wsign-conversion, g++'s does not; the rule is g++'s.
  add_compile_options(-Wno-sign-conversion)
endif()

# Paths in debug information and __FILE__ are relative to the tree, so that objects are the same from every clone,
# and a compiler cache serves them all.
add_compile_options("-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.")
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(
    CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}"
    -E
    env
    "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
    "${CCACHE_PROGRAM}"
  )
endif()

# A sanitizer's finding ends the program: a test must not pass beside one.
if(HYPER_PARALLEL_SANITIZE)
  add_compile_options("-fsanitize=${HYPER_PARALLEL_SANITIZE}" -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options("-fsanitize=${HYPER_PARALLEL_SANITIZE}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With a sanitizer's checks in between g++ 12 takes unused members of a std::variant for uninitialized reads.
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  if(HYPER_PARALLEL_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # torch's headers use atomic_thread_fence, which ThreadSanitizer does not model; g++ warns where it is inlined.
    add_compile_options(-Wno-tsan)
  endif()
endif()
if(HYPER_PARALLEL_BUILD_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "the libFuzzer programs need clang, not ${CMAKE_CXX_COMPILER_ID}: use the preset 'fuzz'")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
