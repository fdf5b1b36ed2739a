// Weight products for ARMv8.2 with the dot product.
#ifdef __ARM_FEATURE_DOTPROD
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd_dotprod.h"

namespace ks
{

#define KS_SIMD DotProd
static const MatmulKernels kTable = KS_MATMUL_KERNELS(Neon);
const MatmulKernels* const kMatmulNeon = &kTable;

} // namespace ks
#else
#include "kernels/cpu/cpu_kernels.h"

const ks::MatmulKernels* const ks::kMatmulNeon = nullptr;
#endif
