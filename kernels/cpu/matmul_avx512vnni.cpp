// Weight products for AVX-512 with VNNI.
#ifdef __AVX512VNNI__
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd_vnni512.h"

namespace ks
{

#define KS_SIMD Vnni512
static const MatmulKernels kTable = KS_MATMUL_KERNELS(Avx2);
const MatmulKernels* const kMatmulAvx512Vnni = &kTable;

} // namespace ks
#else
#include "kernels/cpu/cpu_kernels.h"

const ks::MatmulKernels* const ks::kMatmulAvx512Vnni = nullptr;
#endif
