enable_testing()
# Compiling takes most of the time of most tests, so they are not optimised. kv and backends compute
# much.
add_library(ks_test_flags INTERFACE)
target_compile_options(ks_test_flags INTERFACE -O0)
file(GLOB examples CONFIGURE_DEPENDS examples/*.c examples/*.cpp)
foreach(example IN LISTS examples)
  get_filename_component(name ${example} NAME_WE)
  add_executable(example_${name} ${example})
  target_link_libraries(example_${name} PRIVATE Knapsack::static)
endforeach()
add_library(ks_doctest OBJECT tests/doctest_main.cpp)
target_link_libraries(ks_doctest PRIVATE ks_flags ks_test_flags)
# tests/ mirrors the tree: one program per folder. It links only the layers named here.
function(ks_test part)
  file(GLOB sources CONFIGURE_DEPENDS tests/${part}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(test_${part} ${sources} $<TARGET_OBJECTS:ks_doctest>)
  target_link_libraries(test_${part} PRIVATE ks_flags ${ARGN})
  if(part MATCHES "^(kv|backends)$")
    target_compile_options(test_${part} PRIVATE -O1)
  else()
    target_link_libraries(test_${part} PRIVATE ks_test_flags)
  endif()
  target_include_directories(test_${part} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/tests)
  target_compile_definitions(test_${part} PRIVATE
    KS_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}" KS_BINARY_DIR="${CMAKE_BINARY_DIR}")
  add_test(NAME ${part} COMMAND test_${part})
endfunction()
if(KS_COMPILES_avx2) # AVX2 code that emulates instructions this processor may lack
  file(GLOB emulated CONFIGURE_DEPENDS tests/backends/*_emulated.cpp)
  set_source_files_properties(${emulated} PROPERTIES COMPILE_OPTIONS "${KS_AVX2}")
endif()
ks_test(base ks_base)
ks_test(text ks_base ks_text)
ks_test(chat ks_base ks_text ks_chat)
set(backends ks_backends ks_registry ${KS_CUDA_LAYER} ${KS_CUDA_LIBRARIES})
ks_test(kv ks_base ks_kv ${backends})
ks_test(backends ks_base ${backends})
if(KS_VULKAN_FOUND)
  target_include_directories(test_backends PRIVATE ${VULKAN_INCLUDE})
  target_compile_definitions(test_backends PRIVATE KS_VULKAN)
endif()
if(KS_SANITIZE) # a fifth of the op cases; the release build runs all
  set_tests_properties(backends PROPERTIES ENVIRONMENT KS_TEST_EVERY=5)
endif()
ks_test(model ks_base ks_kv ks_model ks_plan ${backends})
ks_test(api knapsack_lib)
target_sources(test_api PRIVATE tools/alloc_count.cpp tools/bench/timed_backend.cpp)

# For all n, the n-th allocation and the n-th file call fail (tests/faults/inject.h).
ks_test(faults knapsack_lib)
set(wrapped
  open close mmap munmap pread write fsync fstat stat fchmod access realpath linkat rename)
list(TRANSFORM wrapped PREPEND LINKER:--wrap=)
target_link_options(test_faults PRIVATE ${wrapped})
if(KS_VULKAN_FOUND)
  target_link_options(test_faults PRIVATE LINKER:--wrap=dlsym)
  target_include_directories(test_faults PRIVATE ${VULKAN_INCLUDE})
  target_compile_definitions(test_faults PRIVATE KS_VULKAN)
endif()

# Fuzz targets. libFuzzer drives them in scripts/fuzz.sh. As tests they run the corpus and thousands
# of inputs derived from it.
foreach(target gguf tokenizer template answer grammar recipe session)
  add_executable(fuzz_${target} tests/fuzz/${target}_fuzz.cpp)
  target_link_libraries(fuzz_${target} PRIVATE ks_flags knapsack_lib)
  # The headers of the tests contain checks of doctest.
  target_compile_definitions(fuzz_${target} PRIVATE DOCTEST_CONFIG_DISABLE)
  set_source_files_properties(tests/fuzz/${target}_fuzz.cpp PROPERTIES
    COMPILE_OPTIONS "-Wno-unused-variable;-Wno-unused-parameter")
  target_include_directories(fuzz_${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/tests/text)
  if(KS_FUZZ)
    target_link_options(fuzz_${target} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(fuzz_${target} PRIVATE tests/fuzz/replay.cpp)
    add_test(NAME fuzz_${target}
      COMMAND fuzz_${target} ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/corpus/${target} 20000)
  endif()
endforeach()
if(KS_VULKAN_FOUND)
  set(vulkan_sh ${CMAKE_CURRENT_SOURCE_DIR}/tests/backends/vulkan.sh)
  add_test(NAME vulkan COMMAND ${vulkan_sh} ${CMAKE_BINARY_DIR})
  add_test(NAME vulkan_faults COMMAND ${vulkan_sh} ${CMAKE_BINARY_DIR} faults)
  set_tests_properties(vulkan vulkan_faults PROPERTIES SKIP_RETURN_CODE 77)
endif()

# The CUDA kernels and their backend compiled as C++ and run by fibers (tests/cuda_shim). Only for
# tests.
set(shim ${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda_shim)
file(GLOB kernels CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} kernels/cuda/*.cu)
foreach(kernel IN LISTS kernels)
  file(CONFIGURE OUTPUT shim/${kernel}.cpp CONTENT "#include \"${kernel}\"\n")
  list(APPEND shim_sources ${CMAKE_CURRENT_BINARY_DIR}/shim/${kernel}.cpp)
endforeach()
file(GLOB shim_backend CONFIGURE_DEPENDS backends/cuda/*.cpp)
set(shim_layers ks_flags ks_base ks_text ks_chat ks_kv ks_model ks_plan ks_api ks_backends)
add_library(ks_cuda_shim OBJECT ${shim_sources} ${shim_backend} backends/registry.cpp)
target_link_libraries(ks_cuda_shim PRIVATE ${shim_layers})
target_include_directories(ks_cuda_shim PRIVATE ${shim} ${CMAKE_CURRENT_SOURCE_DIR}/tests)
target_compile_options(ks_cuda_shim PRIVATE -Wno-unknown-pragmas -fno-strict-aliasing)
target_compile_definitions(ks_cuda_shim PRIVATE KS_CUDA)
file(GLOB shim_tests CONFIGURE_DEPENDS
  tests/cuda/*_test.cpp tests/backends/op_harness.cpp tests/backends/file_matrix.cpp
  tests/backends/*ops_test.cpp tests/backends/attention_test.cpp
  tests/backends/kernel_times_test.cpp tests/backends/matmul_test.cpp tests/backends/kivi_test.cpp
  tests/backends/memory_test.cpp tests/kv/climb_test.cpp tests/kv/victims_test.cpp
  tests/kv/select*_test.cpp tests/model/model_test.cpp tests/model/pinned_test.cpp
  tests/api/session_test.cpp tests/api/session_file*_test.cpp
  tests/api/many_sessions_test.cpp)
if(NOT KS_SANITIZE MATCHES thread) # clang's thread sanitizer defines operator new and delete itself
  list(APPEND shim_tests
    tests/faults/faults_test.cpp tests/faults/inject.cpp tests/cuda/refused_calls.cpp)
  set(shim_wrapped ${wrapped})
endif()
add_executable(test_cuda ${shim_tests} $<TARGET_OBJECTS:ks_cuda_shim> $<TARGET_OBJECTS:ks_doctest>)
target_link_libraries(test_cuda PRIVATE ${shim_layers})
target_include_directories(test_cuda PRIVATE ${shim} ${CMAKE_CURRENT_SOURCE_DIR}/tests)
target_compile_options(test_cuda PRIVATE -O1 -Wno-unknown-pragmas -fno-strict-aliasing)
target_link_options(test_cuda PRIVATE ${shim_wrapped})
target_compile_definitions(test_cuda PRIVATE KS_CUDA
  KS_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}" KS_BINARY_DIR="${CMAKE_BINARY_DIR}")
if(TARGET knapsack) # the program with these kernels, for tests/tools/families_test.py
  add_executable(knapsack_shim $<TARGET_OBJECTS:ks_cuda_shim>)
  target_link_libraries(knapsack_shim PRIVATE ks_tools ${shim_layers})
endif()
add_executable(test_cuda_faults tests/cuda/faults.cpp)
target_link_libraries(test_cuda_faults PRIVATE ks_flags)
target_include_directories(test_cuda_faults PRIVATE ${shim})
# All tests are KS_TEST_BACKEND=cuda test_cuda and tests/cuda/sanitizers.sh, which take long. These
# run for a minute: most tests, and some of them with the fibers in reverse order.
set(slow_cases "victims*" "select: over*" "positions*" "attention: keys*" "attention: slots*"
  "codecs: errors*" "kivi: channels*" "session file: a*" "session file: e*" "session file: n*"
  "session file: w*" "C API*" "faults: *allocation" "faults: *block*" "faults: *file*")
set(reverse_cases embed "norm*" rope "hadamard*" "glu*" add scale copy_cols softcap argmax "state*"
  route "matmul_experts: targets" combine_experts attention_sinks
  "matmul: targets*" "kv_*" "attention: head*" "select: softcap" "cuda: steps*")
if(KS_SANITIZE)
  set_target_properties(test_cuda test_cuda_faults ks_cuda_shim PROPERTIES EXCLUDE_FROM_ALL ON)
  if(TARGET knapsack_shim)
    set_target_properties(knapsack_shim PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
else()
  list(JOIN slow_cases "," slow)
  list(JOIN reverse_cases "," reverse)
  add_test(NAME cuda COMMAND test_cuda "-tce=${slow}")
  add_test(NAME cuda_rev COMMAND test_cuda "-tc=${reverse}")
  set_tests_properties(cuda PROPERTIES ENVIRONMENT "KS_TEST_BACKEND=cuda;CUDASHIM_ORDER=fwd")
  set_tests_properties(cuda_rev PROPERTIES ENVIRONMENT "KS_TEST_BACKEND=cuda;CUDASHIM_ORDER=rev")
  add_test(NAME cuda_faults COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda/faults.sh
    $<TARGET_FILE:test_cuda_faults> plain)
endif()
if(TARGET knapsack)
  file(GLOB scripts CONFIGURE_DEPENDS tests/tools/*.sh tests/tools/*.py)
  foreach(script IN LISTS scripts)
    get_filename_component(name ${script} NAME_WE)
    add_test(NAME tools_${name} COMMAND ${script} $<TARGET_FILE:knapsack>
      WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_tests_properties(tools_${name} PROPERTIES SKIP_RETURN_CODE 77)
  endforeach()
  # The longest tests start first.
  set_tests_properties(tools_neon PROPERTIES COST 1000)
  set_tests_properties(tools_gpu_check_test tools_bench_test PROPERTIES COST 100)
  set_tests_properties(tools_families_test PROPERTIES COST 100 PROCESSORS 2)
  # These measure seconds.
  set_tests_properties(tools_serve_real_test tools_serve_queue_test PROPERTIES
    COST 100 PROCESSORS 2)
endif()
