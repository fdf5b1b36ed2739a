// The ops over single values for AVX2, FMA and F16C.
#ifdef __AVX2__
#include "kernels/cpu/simd_avx2.h"
#include "kernels/cpu/vector.h"

namespace ks
{

const VectorKernels kVectorAvx2 = KS_VECTOR_KERNELS(Avx2);

} // namespace ks
#endif
