// Weight products for AVX2, FMA and F16C.
#ifdef __AVX2__
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd_avx2.h"

namespace ks
{

#define KS_SIMD Avx2
static const MatmulKernels kTable = KS_MATMUL_KERNELS(Avx2);
const MatmulKernels* const kMatmulAvx2 = &kTable;

} // namespace ks
#else
#include "kernels/cpu/cpu_kernels.h"

const ks::MatmulKernels* const ks::kMatmulAvx2 = nullptr;
#endif
