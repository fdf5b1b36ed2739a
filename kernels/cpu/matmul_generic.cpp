// The products with weights for any processor.
#define KS_KEEP_CALLS
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd_generic.h"

namespace ks
{

#define KS_SIMD Generic
const MatmulKernels kMatmulGeneric = KS_MATMUL_KERNELS;

} // namespace ks
