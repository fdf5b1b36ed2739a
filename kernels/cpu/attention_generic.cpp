// Attention for any processor.
#define KS_KEEP_CALLS
#include "kernels/cpu/attention.h"
#include "kernels/cpu/simd_generic.h"

namespace ks
{

const AttentionKernels kAttentionGeneric = KS_ATTENTION_KERNELS(Generic);

} // namespace ks
