// The kernels of simd_vnni.h with vpdpbusd in plain C++, for processors that have AVX2 only.
#include "tests/backends/simd_bits.h"
#ifdef __AVX2__
#include <immintrin.h>

// Adds four products of unsigned and signed bytes to each word, without saturation.
__attribute__((noinline)) static __m256i emulated_dpbusd(__m256i sums, __m256i u, __m256i s)
{
    int32_t words[8];
    uint8_t unsigned_bytes[32];
    int8_t signed_bytes[32];
    memcpy(words, &sums, 32);
    memcpy(unsigned_bytes, &u, 32);
    memcpy(signed_bytes, &s, 32);
    for (int i = 0; i < 32; i++) words[i / 4] += unsigned_bytes[i] * signed_bytes[i];
    memcpy(&sums, words, 32);
    return sums;
}
#define KS_DPBUSD emulated_dpbusd

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/simd_vnni.h"

namespace ks
{

#define KS_SIMD Vnni
static const MatmulKernels kTable = KS_MATMUL_KERNELS(Vnni);
const MatmulKernels* const kMatmulVnniEmulated = &kTable;

} // namespace ks
#else
const ks::MatmulKernels* const ks::kMatmulVnniEmulated = nullptr;
#endif
