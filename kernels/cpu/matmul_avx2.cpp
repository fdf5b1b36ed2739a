// The products with weights for AVX2, FMA and F16C.
#ifdef __AVX2__
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd_avx2.h"

namespace ks
{

#define KS_SIMD Avx2
const MatmulKernels kMatmulAvx2 = KS_MATMUL_KERNELS;

} // namespace ks
#endif
