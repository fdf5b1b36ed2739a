// Attention for ARMv8.2 with the dot product.
#ifdef __ARM_FEATURE_DOTPROD
#include "kernels/cpu/attention.h"
#include "kernels/cpu/simd_neon.h"

namespace ks
{

static const AttentionKernels kTable = KS_ATTENTION_KERNELS(Neon);
const AttentionKernels* const kAttentionNeon = &kTable;

} // namespace ks
#else
#include "kernels/cpu/cpu_kernels.h"

const ks::AttentionKernels* const ks::kAttentionNeon = nullptr;
#endif
