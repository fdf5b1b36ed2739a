// Attention for AVX2, FMA and F16C.
#ifdef __AVX2__
#include "kernels/cpu/attention.h"
#include "kernels/cpu/simd_avx2.h"

namespace ks
{

static const AttentionKernels kTable = KS_ATTENTION_KERNELS(Avx2);
const AttentionKernels* const kAttentionAvx2 = &kTable;

} // namespace ks
#else
#include "kernels/cpu/cpu_kernels.h"

const ks::AttentionKernels* const ks::kAttentionAvx2 = nullptr;
#endif
