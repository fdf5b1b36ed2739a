// Attention has the same bits with every instruction set with a fused multiply-add.
#include "tests/backends/coded_rows.h"
#include "tests/backends/simd_bits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>

using namespace ks;

TEST_CASE("simd: the bits of attention are those of AVX2")
{
    const CpuKernels kernels = choose_cpu_kernels();
    if (!has_fma(kernels)) return;
    const uint32_t n_tokens = 5, n_heads = 6, n_slots = 200, head_dim = 80;
    std::vector<float> q = uniforms(size_t(n_tokens) * n_heads * head_dim, 1), y(q.size());
    std::vector<float> k = uniforms(2 * n_slots * head_dim, 2),
                       v = uniforms(2 * n_slots * head_dim, 3);
    std::vector<uint16_t> k_half(k.size()), v_half(v.size());
    for (size_t i = 0; i < k.size(); i++)
        k_half[i] = uint16_t(FLOAT_TO_HALF(k[i])), v_half[i] = uint16_t(FLOAT_TO_HALF(v[i]));
    std::vector<float> scratch(attention_scratch_floats(head_dim));
    for (bool half : {false, true}) {
        const uint32_t head_layout[2 * layout_words] = {150, 0, 0, 0, 0, 150, 0, 0, 0, 0};
        AttentionTask task{};
        task.a = {n_tokens, n_heads, 2, head_dim, n_slots, 0, 0, 0, 0, 0.1f, 0, 0, 0, 0};
        task.k_half = task.v_half = half;
        task.q = q.data();
        task.y = y.data();
        task.k = half ? static_cast<const void*>(k_half.data()) : k.data();
        task.v = half ? static_cast<const void*>(v_half.data()) : v.data();
        task.head_layout = head_layout;
        for (uint32_t h = 0; h < 2; h++)
            kernels.attention.chunk(task, h, 0, n_tokens, scratch.data());
        CHECK(hash_of(y) == (half ? 0x13d0dfa8071f476fu : 0x4d3d98e8021d179du));
        const uint32_t stride = kPartialHead + head_dim,
                       last = n_tokens - 1; // the last token again, with splits
        std::vector<float> partials(2 * 3 * stride), total(stride), again(head_dim);
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t end = std::min(155u, (i + 1) * kAttentionGroup);
            kernels.attention.split(task, 0, last, i * kAttentionGroup, end, &partials[i * stride],
                                    2 * stride, scratch.data());
        }
        for (uint32_t h = 0; h < 3; h++) {
            kernels.attention.begin(total.data(), head_dim);
            kernels.attention.fold(total.data(), &partials[h * 2 * stride], 2, stride, head_dim);
            kernels.attention.finish(total.data(), head_dim, again.data(), nullptr);
            CHECK(memcmp(again.data(), &y[(size_t(last) * n_heads + h) * head_dim], 4 * head_dim) ==
                  0);
        }
    }
}

// One KV head of f16, f32 or coded slots: the partial results of splits for the last token, the
// outputs of all tokens, select's logits.
static std::vector<float> attend(const AttentionKernels& kernels, const AttentionTask& task,
                                 uint32_t n_slots)
{
    const uint32_t n_heads = task.a.n_heads, d = task.a.head_dim, stride = kPartialHead + d,
                   last = task.a.n_tokens - 1;
    const uint32_t n_splits = (n_slots + kAttentionGroup - 1) / kAttentionGroup;
    std::vector<float> scratch(attention_scratch_floats(d)),
        out(size_t(n_heads) * n_splits * stride);
    kernels.chunk(task, 0, 0, task.a.n_tokens, scratch.data());
    for (uint32_t i = 0; i < n_splits; i++)
        kernels.split(task, 0, last, i * kAttentionGroup,
                      std::min(n_slots, (i + 1) * kAttentionGroup), &out[i * stride],
                      n_splits * stride, scratch.data());
    for (uint32_t i = 0; i < n_heads * n_splits; i++)
        std::fill_n(&out[i * stride + 3], kPartialHead - 3, 0.f); // unused
    out.insert(out.end(), task.y, task.y + size_t(task.a.n_tokens) * n_heads * d);
    std::vector<float> logits(size_t(n_heads) * n_slots);
    kernels.select_logits(task, 0, 0, n_slots / 64 * 64, logits.data(), n_slots, scratch.data());
    out.insert(out.end(), logits.begin(), logits.end());
    return out;
}

TEST_CASE("simd: AVX-512 has the bits of AVX2 for every head size, group and pool")
{
    if (&choose_cpu_kernels().attention != kAttentionAvx512) {
        MESSAGE("this processor has no AVX-512, or it was not chosen: skipped");
        return;
    }
    const uint32_t n_tokens = 3, n_slots = 333;
    for (uint32_t d : {8u, 24u, 64u, 80u, 96u, 128u, 256u})
        for (uint32_t n_heads : {1u, 2u, 3u, 4u, 7u})
            for (bool half : {false, true}) {
                std::vector<float> q = uniforms(size_t(n_tokens) * n_heads * d, d), y(q.size());
                std::vector<float> k = uniforms(size_t(n_slots) * d, 2),
                                   v = uniforms(size_t(n_slots) * d, 3);
                std::vector<uint16_t> k_half, v_half;
                for (size_t i = 0; i < k.size(); i++) {
                    k_half.push_back(uint16_t(FLOAT_TO_HALF(k[i])));
                    v_half.push_back(uint16_t(FLOAT_TO_HALF(v[i])));
                }
                std::vector<uint32_t> table;
                for (uint32_t i = 0; i < n_slots; i++) table.push_back(i * 7 % n_slots);
                const uint32_t head_layout[layout_words] = {n_slots - n_tokens};
                AttentionTask task{};
                task.a.n_tokens = n_tokens, task.a.n_heads = n_heads, task.a.n_kv_heads = 1,
                task.a.head_dim = d, task.a.n_rows = n_slots;
                task.a.scale = 0.05f;
                task.q = q.data();
                task.y = y.data();
                task.k = half ? static_cast<const void*>(k_half.data()) : k.data();
                task.v = half ? static_cast<const void*>(v_half.data()) : v.data();
                task.k_half = task.v_half = half;
                task.table = table.data();
                task.head_layout = head_layout;
                const std::vector<float> wide = attend(*kAttentionAvx512, task, n_slots),
                                         narrow = attend(*kAttentionAvx2, task, n_slots);
                CAPTURE(d);
                CAPTURE(n_heads);
                CHECK(memcmp(wide.data(), narrow.data(), 4 * wide.size()) == 0);
            }
}

// Codecs whose logits are summed in another order than the logits of decoded rows.
static bool has_own_order(Format format, uint32_t d)
{
    for (Format own : {Format::q8, Format::polar, Format::kivi, Format::kivi2})
        if (format == own) return d % 64 == 0;
    return false;
}

static float most_apart(const std::vector<float>& a, const std::vector<float>& b)
{
    float most = 0;
    for (size_t i = 0; i < a.size(); i++)
        most = std::max(most, std::fabs(a[i] - b[i]) / (1 + std::fabs(b[i])));
    return most;
}

// Logits and outputs computed from codes equal the ones of decoded rows, wherever the range of
// codes begins and ends.
TEST_CASE("simd: slots in codes have the bits of the values that they stand for")
{
    const CpuKernels chosen = choose_cpu_kernels();
    std::vector<std::pair<const AttentionKernels*, const VectorKernels*>> sets = {
        {kAttentionGeneric, kVectorGeneric}, {&chosen.attention, &chosen.vector}};
    if (&chosen.attention == kAttentionAvx512) sets.emplace_back(kAttentionAvx2, kVectorAvx2);
    const uint32_t n_tokens = 3, n_slots = 333, coded_begin = 9, coded_end = 321, n_coded = 352;
    std::vector<uint32_t> table;
    for (uint32_t i = 0; i < n_slots; i++) table.push_back(i);
    for (uint32_t i = coded_begin; i < coded_end; i++)
        table[i] = n_slots + (i < 150 ? i : i * 7 % n_slots); // rows of the coded pool
    std::vector<std::pair<Format, Format>> pairs = {{Format::kivi, Format::kiviv},
                                                    {Format::kivi2, Format::turbo3}};
    for (Format format : all_codecs()) pairs.emplace_back(format, format);
    for (const auto& [k_format, v_format] : pairs)
        for (uint32_t d : {64u, 80u, 128u, 192u, 256u}) {
            CodedPool k(k_format, n_coded, d, 0.f), v(v_format, n_coded, d, 0.f);
            std::vector<float> k_rows = uniforms((n_slots + n_coded) * d, 2),
                               v_rows = uniforms((n_slots + n_coded) * d, 3);
            for (uint32_t i = 0; i < n_coded; i += codec_info(k_format).group)
                k.keep(i, &k_rows[(n_slots + i) * d]);
            for (uint32_t i = 0; i < n_coded; i++) v.keep(i, &v_rows[(n_slots + i) * d]);
            const uint32_t k_bytes = codec_info(k_format).row_bytes(d),
                           v_bytes = codec_info(v_format).row_bytes(d);
            const CodedRow k_all = coded_row(k.bytes.data(), n_coded, 0, k_bytes),
                           v_all = coded_row(v.bytes.data(), n_coded, 0, v_bytes);
            for (uint32_t n_heads : {1u, 2u, 3u, 4u, 7u})
                for (bool part :
                     {false,
                      true}) { // all slots visible, or some masked and some with clamped queries
                    const std::vector<float> q = uniforms(size_t(n_tokens) * n_heads * d, d),
                                             q_clamped = uniforms(q.size(), d + 1);
                    std::vector<float> y(q.size());
                    const uint32_t head_layout[layout_words] = {n_slots - n_tokens, 0, coded_begin,
                                                                coded_end};
                    const uint32_t plain_layout[layout_words] = {n_slots - n_tokens};
                    AttentionTask task{};
                    task.a.n_tokens = n_tokens, task.a.n_heads = n_heads, task.a.n_kv_heads = 1,
                    task.a.head_dim = d;
                    task.a.n_rows = n_slots, task.a.scale = 0.05f;
                    if (part) task.a.n_pinned = 20, task.a.window = 220, task.a.n_clamped = 150;
                    task.q = q.data(), task.q_clamped = q_clamped.data(), task.y = y.data();
                    task.k = k_rows.data(), task.v = v_rows.data();
                    task.table = table.data();
                    std::vector<std::vector<float>> of_sets;
                    for (const auto& [attention, vector] : sets) {
                        const int key = codec_index(k_format), value = codec_index(v_format);
                        task.coded_k = rows_of(*vector, key, k_all.words, k_all.tail, k_bytes);
                        task.coded_v = rows_of(*vector, value, v_all.words, v_all.tail, v_bytes);
                        task.head_layout = head_layout;
                        const std::vector<float> coded = attend(*attention, task, n_slots);
                        task.head_layout = plain_layout;
                        const std::vector<float> plain = attend(*attention, task, n_slots);
                        CAPTURE(name_of(k_format, d));
                        CAPTURE(n_heads);
                        if (has_own_order(k_format, d))
                            CHECK(most_apart(coded, plain) <
                                  1e-5f); // logits of up to 5, with the precision that the test
                                          // below demands
                        else
                            CHECK(memcmp(coded.data(), plain.data(), 4 * coded.size()) == 0);
                        of_sets.push_back(coded);
                    }
                    if (sets.size() == 3)
                        CHECK(memcmp(of_sets[1].data(), of_sets[2].data(), 4 * of_sets[1].size()) ==
                              0);
                }
        }
}

// Rows anywhere in a pool, ranges of any length. No logit beyond a range is written.
TEST_CASE("simd: logits of codes are the products of what the codes say")
{
    constexpr uint32_t n_coded = 352, first = 9; // slots from `first` on are rows of the pool
    std::vector<Format> formats = all_codecs();
    formats.insert(formats.end(), {Format::kivi, Format::kivi2});
    for (Format format : formats)
        for (uint32_t d : {64u, 128u, 192u, 256u}) {
            CodedPool pool(format, n_coded, d, 0.f);
            std::vector<float> said = Random(d).normals(n_coded * d);
            for (uint32_t i = 0; i < n_coded; i += codec_info(format).group)
                pool.keep(i, &said[i * d]);
            const uint32_t bytes = codec_info(format).row_bytes(d);
            const CodedRow all = coded_row(pool.bytes.data(), n_coded, 0, bytes);
            const std::vector<float> q = Random(d + 1).normals(4 * d);
            for (const VectorKernels* vector : vector_tables()) {
                const int codec = codec_index(format);
                if (!vector->codecs[codec].logits) continue;
                const CodedRows keys = rows_of(*vector, codec, all.words, all.tail, bytes);
                for (uint32_t n_heads : {1u, 2u, 3u, 4u})
                    for (uint32_t n : {1u, 7u, 16u, 33u, 60u, 64u}) {
                        std::vector<uint32_t> rows(n);
                        for (uint32_t i = 0; i < n; i++)
                            rows[i] = first + (n % 2 ? i * 7 % n_coded : n_coded - n + i);
                        std::vector<float> found(4 * kAttentionTile, -7.f),
                            room(kAttentionTile * d), prepared(kPreparedFloats * d);
                        if (keys.prepare) keys.prepare(q.data(), n_heads, d, prepared.data());
                        const float* met = keys.prepare ? prepared.data() : q.data();
                        const uint32_t got = keys.logits(keys, rows.data(), first, n, d, met,
                                                         n_heads, found.data(), room.data(), {});
                        CAPTURE(name_of(format, d));
                        CAPTURE(n_heads);
                        CAPTURE(n);
                        CHECK(got == n);
                        double worst = 0;
                        for (uint32_t i = 0; i < found.size(); i++) {
                            const uint32_t h = i / kAttentionTile, nth = i % kAttentionTile;
                            double product = 0, size = 0;
                            for (uint32_t k = 0; k < d && h < n_heads && nth < n; k++) {
                                product += double(q[h * d + k]) * said[(rows[nth] - first) * d + k];
                                size += std::fabs(double(q[h * d + k]) *
                                                  said[(rows[nth] - first) * d + k]);
                            }
                            if (h < n_heads && nth < n)
                                worst = std::max(worst, std::fabs(found[i] - product) / size);
                            else
                                CHECK(found[i] == -7.f);
                        }
                        CHECK(worst < 5e-7);
                    }
            }
        }
}

// For q8, queries become integers with one scale per block. The scale must not matter, and values
// that are not finite stay so.
TEST_CASE("simd: queries of any size meet q8, and one that is not finite has no finite logit")
{
    constexpr uint32_t n = 40, d = 128, n_heads = 3;
    CodedPool pool(Format::q8, n, d, 0.f);
    std::vector<float> said = Random(d).normals(n * d);
    for (uint32_t i = 0; i < n; i++) pool.keep(i, &said[i * d]);
    const uint32_t bytes = codec_info(Format::q8).row_bytes(d);
    const CodedRow all = coded_row(pool.bytes.data(), n, 0, bytes);
    const std::vector<uint32_t> rows(n, n / 2);
    for (const VectorKernels* vector : vector_tables()) {
        const CodedRows keys =
            rows_of(*vector, codec_index(Format::q8), all.words, all.tail, bytes);
        auto logits = [&](const std::vector<float>& q) {
            std::vector<float> prepared(kPreparedFloats * d), found(n_heads * kAttentionTile),
                room(kAttentionTile * d);
            keys.prepare(q.data(), n_heads, d, prepared.data());
            CHECK(keys.logits(keys, rows.data(), 0, n, d, prepared.data(), n_heads, found.data(),
                              room.data(), {}) == n);
            return found;
        };
        std::vector<float> q = Random(1).normals(n_heads * d), large = q;
        for (float& x : large) x *= 0x1p80f;
        const std::vector<float> once = logits(q), more = logits(large);
        for (uint32_t i = 0; i < once.size(); i++) CHECK(more[i] == once[i] * 0x1p80f);
        for (float bad : {INFINITY, -INFINITY, NAN}) {
            q[70] = bad;
            std::fill_n(&q[d], d, 0.f);
            const std::vector<float> found = logits(q);
            for (uint32_t i = 0; i < n; i++) {
                CHECK(!std::isfinite(found[i]));
                CHECK(found[kAttentionTile + i] == 0);
                CHECK(found[2 * kAttentionTile + i] == once[2 * kAttentionTile + i]);
            }
        }
    }
}
