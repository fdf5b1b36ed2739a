// Products by one table of matmul kernels, for comparing instruction sets bit for bit.
#pragma once

#include "kernels/cpu/cpu_kernels.h"
#include "tests/backends/op_harness.h"

namespace ks
{

// AVX2 with the instructions of VNNI and AMX computed one by one; null where the compiler does not make AVX2.
extern const MatmulKernels *const kMatmulVnniEmulated, *const kMatmulAmxEmulated;

// A weight and activations from exact arithmetic only: the same on every machine, as normal deviates need not be.
struct BitsCase {
    FileMatrix weight;
    uint32_t n_tokens;
    std::vector<float> x; // (n_tokens, cols)
};
BitsCase bits_case(Format format, uint32_t rows, uint32_t cols, uint32_t n_tokens);

std::vector<float> uniforms(size_t n, uint64_t seed);                                      // in -3..3
uint64_t hash_of(const std::vector<float>& values, uint64_t hash = 14695981039346656037u); // FNV-1a of their bytes, low ones first
bool has_fma(const CpuKernels& kernels);                                                   // says so where not
bool runs_avx2();

std::vector<float> product(const MatmulKernels& kernels, const BitsCase& c, bool accumulate); // (n_tokens, rows)

} // namespace ks
