// Matmul and the vector ops of the cpu backend have the same bits with every instruction set that
// has a fused multiply-add.
#include "tests/backends/simd_bits.h"

#include <algorithm>
#include <cstring>
#include <doctest/doctest.h>

namespace ks
{

BitsCase bits_case(Format format, uint32_t rows, uint32_t cols, uint32_t n_tokens)
{
    BitsCase c{random_matrix(format, rows, cols, rows + cols), n_tokens, {}};
    Random random(n_tokens);
    const FormatInfo& info = format_info(format);
    for (size_t at = 0; info.block == 1 && at < c.weight.bytes.size(); at += info.block_bytes) {
        float value = float(random.uniform(-2, 2));
        uint32_t bits = FLOAT_TO_BITS(value);
        bits = format == Format::f16    ? FLOAT_TO_HALF(value)
               : format == Format::bf16 ? bits >> 16
                                        : bits;
        memcpy(&c.weight.bytes[at], &bits, info.block_bytes);
    }
    for (uint32_t i = 0; i < n_tokens * cols; i++) c.x.push_back(float(random.uniform(-2, 2)));
    return c;
}

std::vector<float> product(const MatmulKernels& kernels, const BitsCase& c, bool accumulate)
{
    const uint32_t rows = c.weight.rows, cols = c.weight.cols;
    std::vector<uint32_t> tiles = c.weight.tiles();
    std::vector<ActBlock> acts(size_t(c.n_tokens) * (cols / 32) + act_padding);
    std::vector<float> sums(c.n_tokens * max_lanes), y(size_t(c.n_tokens) * rows, 0.25f);
    if (format_info(c.weight.format).block > 1)
        for (uint32_t t = 0; t < c.n_tokens; t++)
            kernels.quantize(&c.x[size_t(t) * cols], cols, &acts[t], c.n_tokens,
                             kernels.half_scales[int(c.weight.format)]);
    MatmulTask task{tiles.data(), (rows + tile_rows - 1) / tile_rows,
                    rows,         cols,
                    c.n_tokens,   acts.data(),
                    c.x.data(),   y.data(),
                    rows,         accumulate,
                    1.f,          sums.data()};
    kernels.matmul[int(c.weight.format)](task);
    return y;
}

std::vector<float> uniforms(size_t n, uint64_t seed)
{
    Random random(seed);
    std::vector<float> out(n);
    for (float& value : out) value = float(random.uniform(-3, 3));
    return out;
}

uint64_t hash_of(const std::vector<float>& values, uint64_t hash)
{
    for (float value : values)
        for (int i = 0; i < 32; i += 8)
            hash = (hash ^ (FLOAT_TO_BITS(value) >> i & 255)) * 1099511628211u;
    return hash;
}

bool has_fma(const CpuKernels& kernels)
{
    if (strcmp(kernels.name, "generic") != 0) return true;
    MESSAGE("the generic kernels have no fused multiply-add: bits are not compared");
    return false;
}

bool runs_avx2()
{
    const VectorKernels* chosen = &choose_cpu_kernels().vector;
    return kVectorAvx2 && (chosen == kVectorAvx2 || chosen == kVectorAvx512);
}

} // namespace ks

using namespace ks;

TEST_CASE("simd: matmul has the bits of AVX2")
{
    const CpuKernels kernels = choose_cpu_kernels();
    MESSAGE("kernels: ", std::string(kernels.name));
    if (!has_fma(kernels)) return;
    static const uint64_t kGolden[] = {
        // in the order of Format
        0x04d69ac03208a001u, 0x22d9565904085285u, 0x60327477467e435bu, 0xcd8e4ed110c30e49u,
        0x66c8ee1703419b74u, 0xe56899887a86af24u, 0xd41cad7991acb549u, 0x584ead7be0983bf8u,
        0x691f117e3db5ba59u, 0x17222eecf4368ed5u, 0xdc453bb8c1894d1cu, 0x3a0556faf031fc8du,
        0x692768e403bef197u, 0xbf51089812c48d40u, 0xb3e21872e5b53e4cu, 0x2b8f07d7d1e9061cu,
        0xf997692a7386d14au, 0xdd7c36fc17cfec73u, 0xac993ffbc77d1f9fu, 0x1d5f16211a025cf2u,
        0x031373bb6500304cu, 0xb9b42b28113ff699u, 0xaab03a00edf06d95u, 0xd6d0a4fb1cb264cfu,
        0x16a3d124977d773fu, 0x587130a0121b4d9du, 0xb0becc58a9e04b6au, 0xe2469e352ec800c8u,
    };
    for (Format format : all_formats()) {
        uint64_t hash = hash_of({});
        for (uint32_t n_tokens : {1u, 2u, 3u, 4u, 5u, 9u}) {
            BitsCase c = bits_case(format, 19, 768, n_tokens);
            hash = hash_of(product(kernels.matmul, c, n_tokens == 3), hash);
        }
        CAPTURE(std::string(format_info(format).name));
        CHECK(hash == kGolden[int(format)]);
    }
}

TEST_CASE("simd: elementwise ops, norm and rope have the bits of AVX2")
{
    const CpuKernels kernels = choose_cpu_kernels();
    if (!has_fma(kernels)) return;
    const uint32_t n = 1003;
    std::vector<float> x = uniforms(n, 1), w = uniforms(n, 2), y(n);
    for (uint32_t kind : {norm_rms, norm_layer}) {
        kernels.vector.norm({1, n, 1e-5f, 0, kind, 1}, y.data(), x.data(), w.data());
        CHECK(hash_of(y) == (kind == norm_rms ? 0x6e2e69e62bf6c362u : 0x66309654e8c8dffcu));
    }
    static const uint64_t kActivations[] = {0xf3fb51885b22f79bu, 0xbd078b5e6f54f304u,
                                            0x2b923bf3aea0ed1du, 0xf16e25d191a447bau,
                                            0x043414b2fc7cdedeu};
    for (uint32_t act : {act_silu, act_gelu, act_relu2, act_sigmoid, act_xielu}) {
        kernels.vector.glu({n, act, 1, 1, 0.8f, 0.7f, 0.5f, -1e-6f}, y.data(), x.data(), w.data());
        CHECK(hash_of(y) == kActivations[act]);
    }
    y = x;
    kernels.vector.softcap(y.data(), n, 2.5f);
    CHECK(hash_of(y) == 0x408cf8f1579c60f8u);
    std::vector<uint16_t> halves(n);
    uint32_t words[(n + 1) / 2];
    kernels.vector.codecs[cpu_codec_f16].encode(x.data(), n, words, nullptr);
    memcpy(halves.data(), words, 2 * n);
    for (uint32_t i = 0; i < n; i++) CHECK(halves[i] == uint16_t(FLOAT_TO_HALF(x[i])));
    for (uint32_t pairs : {rope_interleaved, rope_neox}) {
        y = x;
        kernels.vector.rope({1, 5, 128, 120, pairs, 0, 0}, y.data(), y.data(), w.data());
        CHECK(hash_of(y) ==
              (pairs == rope_interleaved ? 0xb37ad5c3772aedfdu : 0xdb0bf5c0aeaeabefu));
    }
}

static void check_same(const MatmulKernels& found, const MatmulKernels& expected)
{
    for (Format format : all_formats()) {
        CAPTURE(std::string(format_info(format).name));
        for (uint32_t n_tokens : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 16u, 33u}) {
            CAPTURE(n_tokens);
            for (uint32_t rows : {19u, 32u}) {
                BitsCase c = bits_case(format, rows, 512, n_tokens);
                std::vector<float> a = product(found, c, rows == 32),
                                   b = product(expected, c, rows == 32);
                CHECK(memcmp(a.data(), b.data(), 4 * a.size()) == 0);
            }
        }
        for (int byte : {0x00, 0x7f, 0x80, 0xff}) { // the extreme levels
            BitsCase c = bits_case(format, 8, 256, 5);
            std::fill(c.weight.bytes.begin(), c.weight.bytes.end(), uint8_t(byte));
            for (size_t at = 0; at < c.weight.bytes.size(); at += format_info(format).block_bytes)
                set_scales(format, &c.weight.bytes[at], 1);
            for (size_t i = 0; i < c.x.size(); i++) c.x[i] = i % 512 < 256 ? 1.f : -1.f;
            std::vector<float> a = product(found, c, false), b = product(expected, c, false);
            CHECK(memcmp(a.data(), b.data(), 4 * a.size()) == 0);
        }
    }
}

TEST_CASE("simd: VNNI, emulated, has the bits of AVX2")
{
    if (kMatmulVnniEmulated && runs_avx2()) check_same(*kMatmulVnniEmulated, *kMatmulAvx2);
}

TEST_CASE("simd: i8mm matrix products have the bits of dot products")
{
    if (&choose_cpu_kernels().matmul == kMatmulI8mm) check_same(*kMatmulI8mm, *kMatmulNeon);
}
