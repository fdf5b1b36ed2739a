// Weight products for AVX-512 VNNI, in 256-bit vectors.
#ifdef __AVX512VNNI__
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd_vnni.h"

namespace ks
{

#define KS_SIMD Vnni
static const MatmulKernels kTable = KS_MATMUL_KERNELS;
const MatmulKernels* const kMatmulAvx512Vnni = &kTable;

} // namespace ks
#else
#include "kernels/cpu/cpu_kernels.h"

const ks::MatmulKernels* const ks::kMatmulAvx512Vnni = nullptr;
#endif
