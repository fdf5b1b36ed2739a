// Vector ops for ARMv8.2 with the dot product.
#ifdef __ARM_FEATURE_DOTPROD
#include "kernels/cpu/simd_neon.h"
#include "kernels/cpu/vector.h"

namespace ks
{

static const VectorKernels kTable = KS_VECTOR_KERNELS(Neon);
const VectorKernels* const kVectorNeon = &kTable;

} // namespace ks
#else
#include "kernels/cpu/cpu_kernels.h"

const ks::VectorKernels* const ks::kVectorNeon = nullptr;
#endif
