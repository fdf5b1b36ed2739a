// Attention for AVX2, FMA and F16C.
#ifdef __AVX2__
#include "kernels/cpu/attention.h"
#include "kernels/cpu/simd_avx2.h"

namespace ks
{

const AttentionKernels kAttentionAvx2 = KS_ATTENTION_KERNELS(Avx2);

} // namespace ks
#endif
