// Vector ops for AVX2, FMA and F16C.
#ifdef __AVX2__
#include "kernels/cpu/simd_avx2.h"
#include "kernels/cpu/vector.h"

namespace ks
{

static const VectorKernels kTable = KS_VECTOR_KERNELS(Avx2);
const VectorKernels* const kVectorAvx2 = &kTable;

} // namespace ks
#else
#include "kernels/cpu/cpu_kernels.h"

const ks::VectorKernels* const ks::kVectorAvx2 = nullptr;
#endif
