# One library per folder of src/, whose DEPENDS are the arrows of src/README.md.
#
#   weft_library(graph SOURCES a.cpp ... DEPENDS base LINKS fmt::fmt TESTS a_test.cpp ... BENCHES a_bench.cpp ... ALONE b.cpp ...)
#
# makes the library weft_graph, one test binary graph_test and, with WEFT_BENCHMARKS, graph_bench. ALONE: sources with
# file-local names that neighbours have too, which WEFT_UNITY must not join with them. PRIVATE among the arguments: it is
# not installed.
include(GoogleTest OPTIONAL)
include(cmake/install.cmake)

# What nearly every file reads is parsed once: `weft_headers` for the library, `weft_test_headers` for the tests.
function(weft_precompile name)
  cmake_parse_arguments(ARG "" "" "HEADERS;LINKS" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${name}.cpp CONTENT "")
  add_library(${name} STATIC ${CMAKE_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PUBLIC ${ARG_LINKS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()
set(often_used <algorithm> <array> <cstdint> <functional> <map> <memory> <optional> <set> <span> <string> <string_view>
               <unordered_map> <utility> <variant> <vector> <fmt/format.h>)
if(WEFT_PRECOMPILE)
  weft_precompile(weft_headers HEADERS ${often_used} LINKS fmt::fmt)
  if(WEFT_TESTS)
    weft_precompile(weft_test_headers HEADERS ${often_used} <gmock/gmock.h> <gtest/gtest.h> LINKS fmt::fmt GTest::gmock)
  endif()
endif()

# TARGET's files begin with the precompiled headers of FROM, which fit targets with the same definitions: those of fmt.
function(weft_use_precompiled target from)
  if(WEFT_PRECOMPILE)
    target_link_libraries(${target} PRIVATE fmt::fmt)
    target_precompile_headers(${target} REUSE_FROM ${from})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE AND CMAKE_POSITION_INDEPENDENT_CODE)
      # They were parsed with -fPIC, as for libraries; an executable would be compiled with -fPIE.
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${target} PRIVATE -fPIC)
    endif()
  endif()
endfunction()

# With WEFT_UNITY the compiler gets eight sources of TARGET at a time: a third less work, where nobody edits single files.
function(weft_join_sources target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${WEFT_UNITY} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

function(weft_library name)
  cmake_parse_arguments(ARG "PRIVATE" "" "SOURCES;DEPENDS;LINKS;TESTS;TEST_DEPENDS;BENCHES;ALONE" ${ARGN})
  add_library(weft_${name} STATIC ${ARG_SOURCES})
  if(NOT ARG_PRIVATE)
    weft_install_library(${name})
  endif()
  weft_join_sources(weft_${name})
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_include_directories(weft_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_compile_features(weft_${name} PUBLIC cxx_std_20)
  list(TRANSFORM ARG_DEPENDS PREPEND weft_)
  target_link_libraries(weft_${name} PUBLIC ${ARG_DEPENDS} ${ARG_LINKS})
  weft_use_precompiled(weft_${name} weft_headers)
  if(WEFT_TESTS AND ARG_TESTS)
    weft_test(${name}_test SOURCES ${ARG_TESTS} DEPENDS weft_${name} ${ARG_TEST_DEPENDS})
  endif()
  if(WEFT_BENCHMARKS AND ARG_BENCHES)
    add_executable(${name}_bench ${ARG_BENCHES})
    target_link_libraries(${name}_bench PRIVATE weft_${name} benchmark::benchmark_main)
  endif()
endfunction()

# A test binary; ctest runs it once as a whole, which is quick and prints GoogleTest's own summary on failure.
function(weft_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gmock_main rapidcheck)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  weft_use_precompiled(${name} weft_test_headers)
  # RapidCheck draws its seed from the clock unless told; tests must be repeatable.
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES
    ENVIRONMENT "RC_PARAMS=seed=20240229;WEFT_RANDOM_PLANS=${WEFT_RANDOM_PLANS};WEFT_PROPOSALS=${WEFT_PROPOSALS};WEFT_SOURCE_DIR=${PROJECT_SOURCE_DIR};WEFT_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/weft")
endfunction()

# Embeds text files in the library TARGET as a table: `std::span<const EmbeddedFile> NAME()` declared in base/embedded.h's form.
function(weft_embed target symbol)
  cmake_parse_arguments(ARG "" "" "FILES" ${ARGN})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cpp)
  list(TRANSFORM ARG_FILES PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE inputs)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DSYMBOL=${symbol} -DOUTPUT=${output} -DROOT=${PROJECT_SOURCE_DIR}
            "-DFILES=${ARG_FILES}" -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${inputs} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
