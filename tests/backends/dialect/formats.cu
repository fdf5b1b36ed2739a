// Compiles every shared header as CUDA, with all formats. Twin: formats.comp
#include "kernels/common/args.h"
#include "kernels/common/formats.h"

template <class F>
__global__ void values_kernel(MatmulArgs a, float* y, const uint* w, uint* h)
{
    uint row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.rows) return;
    uint stride = F::half_words + tile_rows * F::words;
    for (uint k = 0u; k < a.cols; k++) {
        uint at = (row / tile_rows * (a.cols / F::block) + k / F::block) * stride;
        float v = F::value(w, at, row % tile_rows, k % F::block);
        y[row * a.cols + k] = v;
        h[row * a.cols + k] = FLOAT_TO_HALF(v);
    }
}

#define KS_INSTANCE(name)                                                                          \
    template __global__ void values_kernel<format_##name>(MatmulArgs, float*, const uint*, uint*);
FORMATS(KS_INSTANCE)
