// Attention has the same bits with every instruction set that has a fused multiply-add.
#include "tests/backends/simd_bits.h"

#include <algorithm>
#include <cstring>
#include <doctest/doctest.h>

using namespace ks;

TEST_CASE("simd: the bits of attention are those of AVX2")
{
    const CpuKernels kernels = choose_cpu_kernels();
    if (!has_fma(kernels)) return;
    const uint32_t n_tokens = 5, n_heads = 6, n_slots = 200, head_dim = 80;
    std::vector<float> q = uniforms(size_t(n_tokens) * n_heads * head_dim, 1), y(q.size());
    std::vector<float> k = uniforms(2 * n_slots * head_dim, 2), v = uniforms(2 * n_slots * head_dim, 3);
    std::vector<uint16_t> k_half(k.size()), v_half(v.size());
    for (size_t i = 0; i < k.size(); i++) k_half[i] = uint16_t(FLOAT_TO_HALF(k[i])), v_half[i] = uint16_t(FLOAT_TO_HALF(v[i]));
    std::vector<float> scratch(attention_scratch_floats(head_dim, false));
    for (bool half : {false, true}) {
        const uint32_t view[2 * view_words] = {150, 0, 0, 0, 0, 150, 0, 0, 0, 0};
        AttentionTask task{};
        task.a = {n_tokens, n_heads, 2, head_dim, n_slots, 0, 0, 0, 0, 0.1f, 0, 0, 0, 0, 0};
        task.k_half = task.v_half = half;
        task.q = q.data();
        task.y = y.data();
        task.k = half ? static_cast<const void*>(k_half.data()) : k.data();
        task.v = half ? static_cast<const void*>(v_half.data()) : v.data();
        task.view = view;
        for (uint32_t h = 0; h < 2; h++) kernels.attention.chunk(task, h, 0, n_tokens, scratch.data());
        CHECK(hash_of(y) == (half ? 0x13d0dfa8071f476fu : 0x4d3d98e8021d179du));
        const uint32_t stride = kPartialHead + head_dim, last = n_tokens - 1; // the last token once more, by splits
        std::vector<float> partials(2 * 3 * stride), total(stride), again(head_dim);
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t end = std::min(155u, (i + 1) * kAttentionGroup);
            kernels.attention.split(task, 0, last, i * kAttentionGroup, end, &partials[i * stride], 2 * stride, scratch.data());
        }
        for (uint32_t h = 0; h < 3; h++) {
            kernels.attention.begin(total.data(), head_dim);
            kernels.attention.fold(total.data(), &partials[h * 2 * stride], 2, stride, head_dim);
            kernels.attention.finish(total.data(), head_dim, again.data(), nullptr);
            CHECK(memcmp(again.data(), &y[(size_t(last) * n_heads + h) * head_dim], 4 * head_dim) == 0);
        }
    }
}
