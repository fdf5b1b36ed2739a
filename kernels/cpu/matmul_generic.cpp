// Weight products for any processor.
#define KS_KEEP_CALLS
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd_generic.h"

namespace ks
{

#define KS_SIMD Generic
static const MatmulKernels kTable = KS_MATMUL_KERNELS(Generic);
const MatmulKernels* const kMatmulGeneric = &kTable;

} // namespace ks
