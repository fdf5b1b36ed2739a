// Replaces the toolkit's header of the same name (see config.h).
#pragma once

#include "runtime.h"

// kernels/cuda/cuda_util.cuh uses these macros for shared memory and launches, which C++ has no
// syntax for.
#define CUDASHIM_SHARED(T, name, dims)                                                             \
    typedef T name##_t dims;                                                                       \
    static char name##_key;                                                                        \
    name##_t& name = *static_cast<name##_t*>(                                                      \
        cudashim::shared_static(&name##_key, sizeof(name##_t), alignof(name##_t)))
#define CUDASHIM_DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(cudashim::dyn_shared())
#define CUDASHIM_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                            \
    cudashim::launch(#kernel, kernel, grid, block, shared_bytes, cudashim::captured(stream),       \
                     ##__VA_ARGS__)
