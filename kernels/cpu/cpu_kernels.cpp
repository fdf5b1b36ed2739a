// Chooses the kernels for the processor.
#include "kernels/cpu/cpu_kernels.h"

#include <stdlib.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace ks
{

#if defined(__x86_64__)
// __builtin_cpu_supports also checks that the system saves the registers. Its feature names depend
// on the compiler.
static bool has_avx2()
{
    unsigned a, b, c = 0, d;
    bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
    return has_f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

// Zen to Zen 4 (families 17h and 19h) have some 24 L1 misses in flight, Intel's cores and Zen 5
// twice as many. Prefetches to L1 then halve the bandwidth.
static bool has_few_l1_misses()
{
    unsigned a = 0, b, c, d;
    if (!__builtin_cpu_is("amd") || !__get_cpuid(1, &a, &b, &c, &d)) return false;
    const unsigned family = (a >> 8 & 15) + (a >> 20 & 255);
    return family < 0x1a;
}

static bool has_avx_vnni()
{
    unsigned a = 0, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

static bool has_avx512_vnni()
{
    return has_avx2() && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni");
}

static bool has_neon()
{
    return false;
}

static bool has_i8mm()
{
    return false;
}
#else
static bool has_few_l1_misses()
{
    return false;
}

static bool has_avx2()
{
    return false;
}

static bool has_avx_vnni()
{
    return false;
}

static bool has_avx512_vnni()
{
    return false;
}

static bool has_neon()
{
#if defined(__aarch64__) && defined(__linux__)
    return getauxval(AT_HWCAP) >> 20 & 1; // HWCAP_ASIMDDP: the dot product
#else
    return false;
#endif
}

static bool has_i8mm()
{
#if defined(__aarch64__) && defined(__linux__)
    return has_neon() && (getauxval(AT_HWCAP2) >> 13 & 1); // HWCAP2_I8MM: int8 matrix multiply
#else
    return false;
#endif
}
#endif

static bool always_available()
{
    return true;
}

struct Kind {
    const char* name;
    const MatmulKernels* matmul;
    const AttentionKernels* attention;
    const VectorKernels* vector;
    bool (*runs)();

    bool is_built() const { return matmul && attention && vector; }
};

static const auto& kinds()
{
    // The best first.
    static const Kind table[] = {
        {"avx512vnni", kMatmulAvx512Vnni, kAttentionAvx512, kVectorAvx512, has_avx512_vnni},
        {"avxvnni", kMatmulAvxVnni, kAttentionAvx2, kVectorAvx2, has_avx_vnni},
        {"avx2", kMatmulAvx2, kAttentionAvx2, kVectorAvx2, has_avx2},
        {"i8mm", kMatmulI8mm, kAttentionNeon, kVectorNeon, has_i8mm},
        {"neon", kMatmulNeon, kAttentionNeon, kVectorNeon, has_neon},
        {"generic", kMatmulGeneric, kAttentionGeneric, kVectorGeneric, always_available},
    };
    return table;
}

CpuKernels choose_cpu_kernels()
{
    const char* wanted = getenv("KNAPSACK_CPU");
    const Kind* chosen = nullptr;
    for (const Kind& kind : kinds()) {
        const bool is_wanted = wanted && strcmp(wanted, kind.name) == 0;
        if ((is_wanted || !chosen) && kind.is_built() && kind.runs()) chosen = &kind;
    }
    return {chosen->name, has_few_l1_misses(), *chosen->matmul, *chosen->attention,
            *chosen->vector};
}

const char* built_cpu_kernels(int nth)
{
    for (const Kind& kind : kinds())
        if (kind.is_built() && nth-- == 0) return kind.name;
    return nullptr;
}

} // namespace ks
