// Attention for any processor.
#define KS_KEEP_CALLS
#include "kernels/cpu/attention.h"
#include "kernels/cpu/simd_generic.h"

namespace ks
{

static const AttentionKernels kTable = KS_ATTENTION_KERNELS(Generic);
const AttentionKernels* const kAttentionGeneric = &kTable;

} // namespace ks
