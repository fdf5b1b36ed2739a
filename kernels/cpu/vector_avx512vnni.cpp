// Vector ops for AVX-512.
#ifdef __AVX512F__
#include "kernels/cpu/simd_avx512.h"
#include "kernels/cpu/vector.h"

namespace ks
{

static const VectorKernels kTable = KS_VECTOR_KERNELS(Avx512);
const VectorKernels* const kVectorAvx512 = &kTable;

} // namespace ks
#else
#include "kernels/cpu/cpu_kernels.h"

const ks::VectorKernels* const ks::kVectorAvx512 = nullptr;
#endif
