// Which kernels run.
#include "kernels/cpu/cpu_kernels.h"

#include <stdlib.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ks
{

static const CpuKernels kGeneric = {"generic", kMatmulGeneric, kAttentionGeneric, kVectorGeneric};

#if defined(__x86_64__)
static const CpuKernels kAvx2 = {"avx2", kMatmulAvx2, kAttentionAvx2, kVectorAvx2};

static bool has_avx2()
{
    unsigned a, b, c = 0, d;
    bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
    return has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

const CpuKernels& choose_cpu_kernels()
{
    const char* wanted = getenv("KNAPSACK_CPU");
    if (wanted && strcmp(wanted, kGeneric.name) == 0) return kGeneric;
#if defined(__x86_64__)
    if (has_avx2()) return kAvx2;
#endif
    return kGeneric;
}

} // namespace ks
