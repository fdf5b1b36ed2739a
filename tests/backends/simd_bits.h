// Matmul with one table of kernels, to compare instruction sets bit for bit.
#pragma once

#include "kernels/cpu/cpu_kernels.h"
#include "tests/backends/op_harness.h"

namespace ks
{

// AVX2 kernels that emulate the instructions of VNNI. Null where the compiler cannot build AVX2.
extern const MatmulKernels* const kMatmulVnniEmulated;

// A weight and activations from exact arithmetic, so they are the same on every machine. Normal
// deviates may differ.
struct BitsCase {
    FileMatrix weight;
    uint32_t n_tokens;
    std::vector<float> x; // (n_tokens, cols)
};
BitsCase bits_case(Format format, uint32_t rows, uint32_t cols, uint32_t n_tokens);

std::vector<float> uniforms(size_t n, uint64_t seed); // in -3..3
uint64_t hash_of(const std::vector<float>& values,
                 uint64_t hash = 14695981039346656037u); // FNV-1a of the bytes, little-endian
bool has_fma(const CpuKernels& kernels);                 // prints a message if not
bool runs_avx2();

std::vector<float> product(const MatmulKernels& kernels, const BitsCase& c,
                           bool accumulate); // (n_tokens, rows)

} // namespace ks
