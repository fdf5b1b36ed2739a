// Compiles the codecs as CUDA. Twin: codecs.comp
#include "kernels/common/args.h"
#include "kernels/common/codecs.h"

template <class C>
__global__ void codec_kernel(KvReadArgs a, float* y, uint* w)
{
    float x[512];
    uint row[513];
    for (uint i = 0u; i < a.head_dim; i++) x[i] = y[i] * hadamard_sign(i);
    C::encode(x, row, a.head_dim);
    uint bytes = C::row_bytes(a.head_dim);
    for (uint i = 0u; 4u * i < bytes; i++) w[i] = row[i];
    for (uint i = 0u; i < a.head_dim; i++) y[i] = C::value(w, 0u, row[bytes / 4u], i, a.head_dim);
}

#define KS_INSTANCE(name, number)                                                                  \
    template __global__ void codec_kernel<codec_##name>(KvReadArgs, float*, uint*);
CODECS(KS_INSTANCE)
