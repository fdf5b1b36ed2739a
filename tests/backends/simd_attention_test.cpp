// Attention has the same bits with every instruction set with a fused multiply-add.
#include "tests/backends/coded_rows.h"
#include "tests/backends/simd_bits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>

using namespace ks;

static std::vector<uint16_t> to_f16(const std::vector<float>& values)
{
    std::vector<uint16_t> out;
    for (float value : values) out.push_back(uint16_t(FLOAT_TO_HALF(value)));
    return out;
}

// The output of the last token of KV head 0, from two splits that are combined, has the bits of
// chunk().
static void check_splits(const CpuKernels& kernels, const AttentionTask& task)
{
    const uint32_t d = task.a.head_dim, n_heads = task.a.n_heads, stride = kPartialHead + d,
                   last = task.a.n_tokens - 1, group = n_heads / task.a.n_kv_heads;
    std::vector<float> partials(2 * group * stride), total(stride), again(d),
        scratch(attention_scratch_floats(d));
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t end = std::min(155u, (i + 1) * kAttentionGroup);
        kernels.attention.split(task, 0, last, i * kAttentionGroup, end, &partials[i * stride],
                                2 * stride, scratch.data());
    }
    for (uint32_t h = 0; h < group; h++) {
        kernels.attention.begin(total.data(), d);
        kernels.attention.combine(total.data(), &partials[h * 2 * stride], 2, stride, d);
        kernels.attention.finish(total.data(), d, again.data(), nullptr);
        CHECK(memcmp(again.data(), &task.y[(size_t(last) * n_heads + h) * d], 4 * d) == 0);
    }
}

TEST_CASE("simd: attention has the bits of AVX2")
{
    const CpuKernels kernels = choose_cpu_kernels();
    if (!has_fma(kernels)) return;
    const uint32_t n_tokens = 5, n_heads = 6, n_slots = 200, head_dim = 80;
    std::vector<float> q = uniforms(size_t(n_tokens) * n_heads * head_dim, 1), y(q.size());
    std::vector<float> k = uniforms(2 * n_slots * head_dim, 2),
                       v = uniforms(2 * n_slots * head_dim, 3);
    const std::vector<uint16_t> k_half = to_f16(k), v_half = to_f16(v);
    std::vector<float> scratch(attention_scratch_floats(head_dim));
    for (bool half : {false, true}) {
        const uint32_t head_layout[2 * layout_words] = {150, 0, 0, 0, 0, 150, 0, 0, 0, 0};
        AttentionTask task{};
        task.a = {n_tokens, n_heads, 2, head_dim, n_slots, 0, 0, 0, 0, 0.1f, 0, 0, 0, 0, 0};
        task.k_half = task.v_half = half;
        task.q = q.data();
        task.y = y.data();
        task.k = half ? static_cast<const void*>(k_half.data()) : k.data();
        task.v = half ? static_cast<const void*>(v_half.data()) : v.data();
        task.head_layout = head_layout;
        for (uint32_t h = 0; h < 2; h++)
            kernels.attention.chunk(task, h, 0, n_tokens, scratch.data());
        CHECK(hash_of(y) == (half ? 0x13d0dfa8071f476fu : 0x4d3d98e8021d179du));
        check_splits(kernels, task);
    }
}

// Results for one KV head of f16, f32 or coded slots: the partial results of the splits for the
// last token, the outputs of all tokens, the logits of select.
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
                const std::vector<uint16_t> k_half = to_f16(k), v_half = to_f16(v);
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

static float max_error(const std::vector<float>& a, const std::vector<float>& b)
{
    float max = 0;
    for (size_t i = 0; i < a.size(); i++)
        max = std::max(max, std::fabs(a[i] - b[i]) / (1 + std::fabs(b[i])));
    return max;
}

constexpr uint32_t kTokens = 3, kSlots = 333, kCodedBegin = 9, kCodedEnd = 321, kCoded = 352;

// A coded pool behind a plain pool, and both pools as f32 rows: the decoded values behind the plain
// rows.
struct TwoPools {
    CodedPool codes;
    std::vector<float> rows;
    TwoPools(Format format, uint32_t d, uint64_t seed)
        : codes(format, kCoded, d, 0.f), rows(uniforms((kSlots + kCoded) * d, seed))
    {
        for (uint32_t i = 0; i < kCoded; i += codec_info(format).group)
            codes.keep(i, &rows[(kSlots + i) * d]);
    }
    CodedRows rows_for(const VectorKernels& vector) const
    {
        const uint32_t bytes = codec_info(codes.format).row_bytes(codes.d);
        const CodedRow all = coded_row(const_cast<uint8_t*>(codes.bytes.data()), kCoded, 0, bytes);
        return rows_of(vector, codec_index(codes.format), all.words, all.tail, bytes);
    }
};

// The slots of each index. Part of the coded range is contiguous, the other part jumps.
static std::vector<uint32_t> mixed_table()
{
    std::vector<uint32_t> table;
    for (uint32_t i = 0; i < kSlots; i++) table.push_back(i);
    for (uint32_t i = kCodedBegin; i < kCodedEnd; i++)
        table[i] = kSlots + (i < 150 ? i : i * 7 % kSlots);
    return table;
}

struct KernelSet {
    const AttentionKernels* attention;
    const VectorKernels* vector;
};

static std::vector<KernelSet> kernel_sets()
{
    const CpuKernels& chosen = choose_cpu_kernels();
    std::vector<KernelSet> sets = {{kAttentionGeneric, kVectorGeneric},
                                   {&chosen.attention, &chosen.vector}};
    if (&chosen.attention == kAttentionAvx512) sets.push_back({kAttentionAvx2, kVectorAvx2});
    return sets;
}

// masked: pinned slots and a window, and clamped queries for the first slots; else all slots are
// visible.
static void check_coded(const TwoPools& k, const TwoPools& v, const std::vector<uint32_t>& table,
                        uint32_t n_heads, bool masked)
{
    const uint32_t d = k.codes.d;
    const std::vector<float> q = uniforms(size_t(kTokens) * n_heads * d, d),
                             q_clamped = uniforms(q.size(), d + 1);
    std::vector<float> y(q.size());
    const uint32_t coded_layout[layout_words] = {kSlots - kTokens, 0, kCodedBegin, kCodedEnd};
    const uint32_t plain_layout[layout_words] = {kSlots - kTokens};
    AttentionTask task{};
    task.a.n_tokens = kTokens, task.a.n_heads = n_heads, task.a.n_kv_heads = 1;
    task.a.head_dim = d, task.a.n_rows = kSlots, task.a.scale = 0.05f;
    if (masked) task.a.n_pinned = 20, task.a.window = 220, task.a.n_clamped = 150;
    task.q = q.data(), task.q_clamped = q_clamped.data(), task.y = y.data();
    task.k = k.rows.data(), task.v = v.rows.data();
    task.table = table.data();
    std::vector<std::vector<float>> of_sets;
    for (const KernelSet& set : kernel_sets()) {
        task.coded_k = k.rows_for(*set.vector);
        task.coded_v = v.rows_for(*set.vector);
        task.head_layout = coded_layout;
        const std::vector<float> coded = attend(*set.attention, task, kSlots);
        task.head_layout = plain_layout;
        const std::vector<float> plain = attend(*set.attention, task, kSlots);
        CAPTURE(name_of(k.codes.format, d));
        CAPTURE(n_heads);
        // Logits are at most about 5. The test below checks their precision.
        if (has_own_order(k.codes.format, d))
            CHECK(max_error(coded, plain) < 1e-5f);
        else
            CHECK(memcmp(coded.data(), plain.data(), 4 * coded.size()) == 0);
        of_sets.push_back(coded);
    }
    if (of_sets.size() == 3)
        CHECK(memcmp(of_sets[1].data(), of_sets[2].data(), 4 * of_sets[1].size()) == 0);
}

// The begin and the end of the coded range are not aligned to tiles.
TEST_CASE("simd: coded slots have the bits of their decoded values")
{
    const std::vector<uint32_t> table = mixed_table();
    std::vector<std::pair<Format, Format>> pairs = {{Format::kivi, Format::kiviv},
                                                    {Format::kivi2, Format::turbo3}};
    for (Format format : all_codecs()) pairs.emplace_back(format, format);
    for (const auto& [k_format, v_format] : pairs)
        for (uint32_t d : {64u, 80u, 128u, 192u, 256u}) {
            const TwoPools k(k_format, d, 2), v(v_format, d, 3);
            for (uint32_t n_heads : {1u, 2u, 3u, 4u, 7u})
                for (bool masked : {false, true}) check_coded(k, v, table, n_heads, masked);
        }
}

// The logits of n rows of a pool with n_heads queries, against dot products with the decoded rows.
// No logit beyond n is written.
static void check_logits(const CodedRows& keys, const std::vector<float>& decoded,
                         const std::vector<float>& q, uint32_t d, uint32_t n_heads, uint32_t n)
{
    constexpr uint32_t first = 9; // slot `first` is row 0 of the pool
    std::vector<uint32_t> slots(n);
    for (uint32_t i = 0; i < n; i++) slots[i] = first + (n % 2 ? i * 7 % kCoded : kCoded - n + i);
    std::vector<float> found(4 * kAttentionTile, -7.f), scratch(kAttentionTile * d),
        prepared(kPreparedFloats * d);
    if (keys.prepare) keys.prepare(q.data(), n_heads, d, prepared.data());
    const float* queries = keys.prepare ? prepared.data() : q.data();
    const uint32_t n_found = keys.logits(keys, slots.data(), first, n, d, queries, n_heads,
                                         found.data(), scratch.data(), {});
    CAPTURE(n_heads);
    CAPTURE(n);
    CHECK(n_found == n);
    double worst = 0;
    for (uint32_t i = 0; i < found.size(); i++) {
        const uint32_t h = i / kAttentionTile, nth = i % kAttentionTile;
        double product = 0, size = 0;
        for (uint32_t k = 0; k < d && h < n_heads && nth < n; k++) {
            const double term = double(q[h * d + k]) * decoded[(slots[nth] - first) * d + k];
            product += term;
            size += std::fabs(term);
        }
        if (h < n_heads && nth < n)
            worst = std::max(worst, std::fabs(found[i] - product) / size);
        else
            CHECK(found[i] == -7.f);
    }
    CHECK(worst < 5e-7);
}

TEST_CASE("simd: logits of codes are dot products with the decoded rows")
{
    std::vector<Format> formats = all_codecs();
    formats.insert(formats.end(), {Format::kivi, Format::kivi2});
    for (Format format : formats)
        for (uint32_t d : {64u, 128u, 192u, 256u}) {
            CodedPool pool(format, kCoded, d, 0.f);
            std::vector<float> decoded = Random(d).normals(kCoded * d);
            for (uint32_t i = 0; i < kCoded; i += codec_info(format).group)
                pool.keep(i, &decoded[i * d]);
            const uint32_t bytes = codec_info(format).row_bytes(d);
            const CodedRow all = coded_row(pool.bytes.data(), kCoded, 0, bytes);
            const std::vector<float> q = Random(d + 1).normals(4 * d);
            for (const VectorKernels* vector : vector_tables()) {
                const int codec = codec_index(format);
                if (!vector->codecs[codec].logits) continue;
                const CodedRows keys = rows_of(*vector, codec, all.words, all.tail, bytes);
                CAPTURE(name_of(format, d));
                for (uint32_t n_heads : {1u, 2u, 3u, 4u})
                    for (uint32_t n : {1u, 7u, 16u, 33u, 60u, 64u})
                        check_logits(keys, decoded, q, d, n_heads, n);
            }
        }
}

// For q8, queries become integers with one scale per block. Scaled queries have scaled logits. A
// query with a value that is not finite has no finite logit.
TEST_CASE("simd: q8 keys with queries of any size, infinite ones and NaNs")
{
    constexpr uint32_t n = 40, d = 128, n_heads = 3;
    CodedPool pool(Format::q8, n, d, 0.f);
    std::vector<float> decoded = Random(d).normals(n * d);
    for (uint32_t i = 0; i < n; i++) pool.keep(i, &decoded[i * d]);
    const uint32_t bytes = codec_info(Format::q8).row_bytes(d);
    const CodedRow all = coded_row(pool.bytes.data(), n, 0, bytes);
    const std::vector<uint32_t> rows(n, n / 2);
    for (const VectorKernels* vector : vector_tables()) {
        const CodedRows keys =
            rows_of(*vector, codec_index(Format::q8), all.words, all.tail, bytes);
        auto logits = [&](const std::vector<float>& q) {
            std::vector<float> prepared(kPreparedFloats * d), found(n_heads * kAttentionTile),
                scratch(kAttentionTile * d);
            keys.prepare(q.data(), n_heads, d, prepared.data());
            CHECK(keys.logits(keys, rows.data(), 0, n, d, prepared.data(), n_heads, found.data(),
                              scratch.data(), {}) == n);
            return found;
        };
        std::vector<float> q = Random(1).normals(n_heads * d), large = q;
        for (float& x : large) x *= 0x1p80f;
        const std::vector<float> once = logits(q), scaled = logits(large);
        for (uint32_t i = 0; i < once.size(); i++) CHECK(scaled[i] == once[i] * 0x1p80f);
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
