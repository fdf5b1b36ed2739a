// Vector ops for any processor.
#define KS_KEEP_CALLS
#include "kernels/cpu/simd_generic.h"
#include "kernels/cpu/vector.h"

namespace ks
{

static const VectorKernels kTable = KS_VECTOR_KERNELS(Generic);
const VectorKernels* const kVectorGeneric = &kTable;

} // namespace ks
