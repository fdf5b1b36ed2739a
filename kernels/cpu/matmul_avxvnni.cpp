// Weight products for AVX2 with AVX-VNNI.
#ifdef __AVXVNNI__
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd_vnni.h"

namespace ks
{

#define KS_SIMD Vnni
static const MatmulKernels kTable = KS_MATMUL_KERNELS(Vnni);
const MatmulKernels* const kMatmulAvxVnni = &kTable;

} // namespace ks
#else
#include "kernels/cpu/cpu_kernels.h"

const ks::MatmulKernels* const ks::kMatmulAvxVnni = nullptr;
#endif
