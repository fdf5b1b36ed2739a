// Attention for AVX-512.
#ifdef __AVX512F__
#include "kernels/cpu/attention.h"
#include "kernels/cpu/simd_avx512.h"

namespace ks
{

static const AttentionKernels kTable = KS_ATTENTION_KERNELS(Avx512);
const AttentionKernels* const kAttentionAvx512 = &kTable;

} // namespace ks
#else
#include "kernels/cpu/cpu_kernels.h"

const ks::AttentionKernels* const ks::kAttentionAvx512 = nullptr;
#endif
