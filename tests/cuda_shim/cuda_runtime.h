// What stands in for the toolkit's header of this name; config.h says what it is.
#pragma once

#include "runtime.h"

// What kernels/cuda/cuda_util.cuh makes of the qualifiers that C++ has no word for.
#define CUDASHIM_SHARED(T, name, dims)                                                                                                     \
    typedef T name##_t dims;                                                                                                               \
    static char name##_key;                                                                                                                \
    name##_t& name = *static_cast<name##_t*>(cudashim::shared_static(&name##_key, sizeof(name##_t), alignof(name##_t)))
#define CUDASHIM_DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(cudashim::dyn_shared())
#define CUDASHIM_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                                    \
    cudashim::launch(#kernel, kernel, grid, block, shared_bytes, cudashim::captured(stream), ##__VA_ARGS__)
