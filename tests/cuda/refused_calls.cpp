// Connects the CUDA shim to tests/faults, which decides which calls fail.
#include "cuda_runtime.h"
#include "tests/faults/inject.h"

static const bool stands_between = [] {
    cudashim::refuses = [] { return ks::fails(ks::Fault::driver); };
    cudashim::made = ks::made_object;
    return true;
}();
