#include "backends/cpu/cpu_backend.h"

#include "backends/kernel_choice.h"

#include <algorithm>
#include <cstring>

namespace ks
{

#define KS_SAME_INDEX(name) static_assert(int(cpu_format_##name) == int(Format::name), #name);
FORMATS(KS_SAME_INDEX)
#undef KS_SAME_INDEX

constexpr uint32_t kMaxTokenBlock =
    128; // tokens whose sums of one tile stay in the first-level cache
constexpr uint64_t kActBytesInCache =
    320 * 1024;                     // quantised activations that stay in the second-level cache
constexpr uint32_t kMaxSplits = 32; // of one token's positions, at a time
constexpr uint32_t kValuesWorthAThread = 8192; // of an op that touches each value once
constexpr uint32_t kValuesToEncode = 16;       // touched once in the time that encoding one takes
constexpr double kNanosecondsWorthAChunk =
    2000; // of a matmul: a hundred times what it costs to take one

CpuBackend::CpuBackend(const BackendOptions& options)
    : ReferenceBackend(options), m_kernels(choose_cpu_kernels()),
      m_pool(options.n_threads > 0 ? options.n_threads : count_cores())
{
    for (uint32_t i = 0; i < codec_max_dim; i++) m_signs[i] = hadamard_sign(i);
}

DeviceInfo CpuBackend::info() const
{
    DeviceInfo info = ReferenceBackend::info();
    info.id = info.backend = "cpu";
    info.ablations = false;
    info.name = processor_name() + ", " + std::to_string(m_pool.size()) +
                (m_pool.size() == 1 ? " thread, " : " threads, ") + m_kernels.name;
    add_attention_lines(info.paths,
                        [&](const AttentionArgs& a) { return attention_choice(a, {}); });
    return info;
}

// The slots and the token itself, in whole vectors.
static uint32_t logits_stride(const ScratchShape& shape)
{
    return (shape.scored_slots + 8) / 8 * 8;
}

CpuBackend::Scratch CpuBackend::place(const ScratchShape& shape, uint8_t* memory) const
{
    Scratch s;
    auto take = [&](uint64_t bytes) {
        uint8_t* at = memory ? memory + s.bytes : nullptr;
        s.bytes += align_up(bytes, kRegionAlign);
        return at;
    };
    uint64_t threads = uint64_t(m_pool.size());
    s.acts = reinterpret_cast<ActBlock*>(
        take(uint64_t(shape.n_tokens) * (shape.max_cols / 32) * sizeof(ActBlock)));
    s.sums = reinterpret_cast<float*>(take(threads * kMaxTokenBlock * tile_rows * 4));
    s.attention = reinterpret_cast<float*>(
        take(shape.n_heads ? threads * attention_scratch_floats(shape.head_dim) * 4 : 0));
    s.partials = reinterpret_cast<float*>(
        take(4ull * (kMaxSplits + 1) * shape.n_heads * (kPartialHead + shape.head_dim)));
    s.logits = reinterpret_cast<float*>(
        take(shape.scored_slots ? 4ull * shape.n_heads * logits_stride(shape) : 0));
    s.reference_offset = s.bytes;
    s.bytes += ReferenceBackend::scratch_bytes(shape);
    return s;
}

uint64_t CpuBackend::scratch_bytes(const ScratchShape& shape) const
{
    return place(shape, nullptr).bytes;
}

void CpuBackend::set_scratch(const Buffer& buffer, uint64_t offset, const ScratchShape& shape)
{
    m_shape = shape;
    m_scratch = place(shape, static_cast<uint8_t*>(buffer.data) + offset);
    ReferenceBackend::set_scratch(buffer, offset + m_scratch.reference_offset, shape);
    m_pool.start();
}

// body(first_row, end_row), on several threads where there is enough to do.
template <class Body>
void CpuBackend::for_rows(uint32_t n_rows, uint32_t row_values, const Body& body)
{
    uint32_t step = std::max(1u, kValuesWorthAThread / std::max(1u, row_values));
    if (n_rows <= 2 * step) return body(0u, n_rows);
    m_pool.parallel_for((n_rows + step - 1) / step,
                        [&](uint32_t i, int) { body(i * step, std::min(n_rows, (i + 1) * step)); });
}

void CpuBackend::embed(const EmbedArgs& a, const Tensor& y, const Tensor& table, const Tensor& ids)
{
    for_rows(a.n_tokens, a.dim * 8, [&](uint32_t begin, uint32_t end) {
        EmbedArgs part = a;
        Tensor part_y = y, part_ids = ids;
        part.n_tokens = end - begin;
        part_y.offset += 4ull * begin * a.dim;
        part_ids.offset += 4ull * begin;
        part_ids.cols -= begin;
        ReferenceBackend::embed(part, part_y, table, part_ids);
    });
}

void CpuBackend::rmsnorm(const RmsnormArgs& a, const Tensor& y, const Tensor& x, const Tensor& w)
{
    KS_CHECK(w.cols == a.dim, "rmsnorm: dim %u, w %u", a.dim, w.cols);
    for_rows(a.rows, a.dim, [&](uint32_t begin, uint32_t end) {
        for (uint64_t r = begin; r < end; r++)
            m_kernels.vector.rmsnorm(y.ptr() + r * a.dim, x.ptr() + (a.first_row + r) * a.dim,
                                     w.ptr(), a.dim, a.eps);
    });
}

void CpuBackend::rope(const RopeTarget* targets, int n_targets)
{
    for (const RopeTarget* target = targets; target < targets + n_targets; target++) {
        check_target(*target);
        const RopeArgs& a = target->a;
        const uint64_t row = uint64_t(a.n_heads) * a.head_dim;
        for_rows(a.n_tokens, uint32_t(row), [&](uint32_t begin, uint32_t end) {
            for (uint64_t t = begin; t < end; t++) {
                const uint32_t n_groups = std::max(1u, a.n_groups);
                const RopeArgs group{1, a.n_heads / n_groups, a.head_dim, a.n_rot, a.pairs, 0, 0};
                float *y = target->y.ptr() + t * row, *x = target->x.ptr() + t * row;
                for (uint64_t g = 0, at = 0; g < n_groups; g++, at += row / n_groups)
                    m_kernels.vector.rope(group, y + at, x + at,
                                          target->angles.ptr() + (a.n_groups ? g : t) * a.n_rot);
                if (a.hadamard) m_kernels.vector.hadamard(y, a.n_heads, a.head_dim, m_signs, false);
            }
        });
    }
}

void CpuBackend::glu(const GluArgs& a, const Tensor& y, const Tensor& gate, const Tensor& up)
{
    constexpr uint32_t kRow = 1024;
    for_rows((a.n + kRow - 1) / kRow, 2 * kRow, [&](uint32_t begin, uint32_t end) {
        uint32_t from = begin * kRow, n = std::min(a.n, end * kRow) - from;
        m_kernels.vector.glu(y.ptr() + from, gate.ptr() + from, up.ptr() + from, n, a.act);
    });
}

void CpuBackend::add(const AddArgs& a, const Tensor& x, const Tensor& b)
{
    for_rows(a.rows, a.cols, [&](uint32_t begin, uint32_t end) {
        for (uint64_t r = begin; r < end; r++)
            m_kernels.vector.add(x.ptr() + r * a.cols, b.ptr() + (a.b_rows == 1 ? 0 : r * a.cols),
                                 a.cols);
    });
}

void CpuBackend::softcap(const SoftcapArgs& a, const Tensor& x)
{
    constexpr uint32_t kRow = 1024;
    for_rows((a.n + kRow - 1) / kRow, 2 * kRow, [&](uint32_t begin, uint32_t end) {
        m_kernels.vector.softcap(x.ptr() + begin * kRow, std::min(a.n, end * kRow) - begin * kRow,
                                 a.cap);
    });
}

void CpuBackend::encode(const Tensor& to, uint64_t row, const float* x) const
{
    const CodedRow out = coded_row(to, row);
    m_kernels.vector.codecs[codec_index(to.format)].encode(x, to.cols, out.words, out.tail);
}

void CpuBackend::decode(const Tensor& from, uint64_t row, float* x) const
{
    const CodedRows rows = coded_rows(from);
    const uint32_t only = uint32_t(row);
    rows.decode(rows, &only, 0, 1, from.cols, x, {});
}

void CpuBackend::kv_write(const KvWriteArgs& a, const KvPair& to, const KvPair& x,
                          const Tensor& table, const Tensor& head_layout)
{
    if (to.k) check_kv_write(a, to.k, x.k);
    if (to.v) check_kv_write(a, to.v, x.v);
    const uint32_t effort = is_coded(to.k.format) || is_coded(to.v.format) ? kValuesToEncode : 1;
    for_rows(a.n_tokens, 2 * a.n_kv_heads * a.head_dim * effort, [&](uint32_t begin, uint32_t end) {
        for (uint32_t t = begin; t < end; t++) {
            for (uint32_t h = 0; h < a.n_kv_heads; h++) {
                const uint32_t row = kv_write_row(a, table, head_layout, h, t);
                const uint64_t at = (uint64_t(t) * a.n_kv_heads + h) * a.head_dim;
                if (to.k) encode(to.k, row, x.k.ptr() + at);
                if (to.v) encode(to.v, row, x.v.ptr() + at);
            }
        }
    });
}

void CpuBackend::kv_read(const KvReadArgs& a, const Tensor& y, const Tensor& from,
                         const Tensor& rows)
{
    check_rows("kv_read", from, from.rows, a.head_dim);
    for_rows(a.n, a.head_dim * (is_coded(from.format) ? kValuesToEncode : 1),
             [&](uint32_t begin, uint32_t end) {
                 for (uint32_t i = begin; i < end; i++) {
                     const uint32_t row = rows.ptr<uint32_t>()[i];
                     KS_CHECK(row < from.rows, "kv_read: row %u of %u", row, from.rows);
                     decode(from, row, y.ptr() + uint64_t(i) * a.head_dim);
                 }
             });
}

void CpuBackend::kv_move(const KvMoveArgs& a, const Tensor& to, const Tensor& from,
                         const Tensor& moves)
{
    if (to.format == from.format || !is_coded(to.format))
        return ReferenceBackend::kv_move(a, to, from, moves);
    check_rows("kv_move", from, from.rows, a.head_dim);
    check_rows("kv_move", to, to.rows, a.head_dim);
    const uint32_t group = codec_info(to.format).group;
    const EncodeKernel encode_group = m_kernels.vector.codecs[codec_index(to.format)].encode;
    if (group > 1) check_group_moves(to.format, moves.ptr<uint32_t>(), a.n_moves);
    for_rows(
        a.n_moves / group, a.head_dim * kValuesToEncode * group, [&](uint32_t begin, uint32_t end) {
            float scratch_space[kMostInGroup * codec_max_dim];
            for (uint32_t i = begin * group; i < end * group; i++) {
                const uint32_t* move = moves.ptr<uint32_t>() + 2 * i;
                KS_CHECK(move[0] < from.rows && move[1] < to.rows,
                         "kv_move: row %u of %u to %u of %u", move[0], from.rows, move[1], to.rows);
                decode(from, move[0], scratch_space + i % group * a.head_dim);
                if (group == 1) encode(to, move[1], scratch_space);
                if (group > 1 && i % group == group - 1)
                    encode_group(scratch_space, a.head_dim, coded_group(to, move[1]), nullptr);
            }
        });
}

void CpuBackend::argmax(const ArgmaxArgs& a, const Tensor& out, const Tensor& x)
{
    for (uint64_t r = 0; r < a.rows; r++)
        out.ptr<uint32_t>()[r] = m_kernels.vector.argmax(x.ptr() + r * a.cols, a.cols);
}

// How many tokens a block of activations has.
static uint32_t token_block(uint32_t n_tokens, uint32_t cols)
{
    uint64_t fit = kActBytesInCache / (uint64_t(cols / 32 + 1) * sizeof(ActBlock));
    uint32_t block = uint32_t(std::min<uint64_t>(kMaxTokenBlock, std::max<uint64_t>(32, fit)));
    uint32_t n_blocks = (n_tokens + block - 1) / block;
    return (n_tokens + n_blocks - 1) / n_blocks; // blocks of about the same size
}

void CpuBackend::quantize(const MatmulArgs& a, const Tensor& x, uint32_t block, bool half_scales)
{
    uint64_t n_groups = a.cols / 32;
    for_rows(a.n_tokens, a.cols, [&](uint32_t begin, uint32_t end) {
        for (uint32_t t = begin; t < end; t++) {
            uint32_t first = t / block * block, size = std::min(block, a.n_tokens - first);
            m_kernels.matmul.quantize(x.ptr() + uint64_t(t) * a.cols, a.cols,
                                      m_scratch.acts + n_groups * first + (t - first), size,
                                      half_scales);
        }
    });
}

void CpuBackend::matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets,
                        const Tensor& x)
{
    constexpr int kMaxTargets = 4;
    KS_CHECK(n_targets >= 1 && n_targets <= kMaxTargets, "matmul: %d targets", n_targets);
    KS_CHECK(a.n_tokens <= m_shape.n_tokens && a.cols <= m_shape.max_cols,
             "matmul: %u tokens of %u, %u cols of %u", a.n_tokens, m_shape.n_tokens, a.cols,
             m_shape.max_cols);
    const uint32_t block = token_block(a.n_tokens, a.cols);
    uint32_t tile_words[kMaxTargets], chunk_tiles[kMaxTargets], first_chunk[kMaxTargets + 1] = {};
    bool quantized = false, half_scales = true;
    for (int i = 0; i < n_targets; i++) {
        const Tensor& w = targets[i].w;
        KS_CHECK(w.cols == a.cols && targets[i].y.cols == w.rows && x.cols == a.cols,
                 "matmul: %u x %u, x %u, y %u", w.rows, w.cols, x.cols, targets[i].y.cols);
        const FormatInfo& f = format_info(w.format);
        quantized |= f.block > 1;
        half_scales &= m_kernels.matmul.half_scales[int(w.format)];
        tile_words[i] = a.cols / f.block * (f.half_words + tile_rows * f.words);
        // Weights arrive with 10 GB/s, a thread multiplies 50 times a nanosecond; 2 tiles: rows of
        // y in whole cache lines.
        double tile_nanoseconds =
            tile_words[i] * 0.4 + double(a.cols) * tile_rows * a.n_tokens * 0.02;
        chunk_tiles[i] = std::max(2u, uint32_t(kNanosecondsWorthAChunk / tile_nanoseconds));
        uint32_t n_tiles = (w.rows + tile_rows - 1) / tile_rows;
        first_chunk[i + 1] = first_chunk[i] + (n_tiles + chunk_tiles[i] - 1) / chunk_tiles[i];
    }
    if (quantized) quantize(a, x, block, half_scales);

    m_pool.parallel_for(first_chunk[n_targets], [&](uint32_t chunk, int thread) {
        int i = 0;
        while (chunk >= first_chunk[i + 1]) i++;
        const Tensor& w = targets[i].w;
        uint32_t tile = (chunk - first_chunk[i]) * chunk_tiles[i];
        MatmulTask task;
        task.tiles = w.ptr<uint32_t>() + uint64_t(tile) * tile_words[i];
        task.n_rows = w.rows - tile * tile_rows;
        task.n_tiles = std::min(chunk_tiles[i], (task.n_rows + tile_rows - 1) / tile_rows);
        task.cols = a.cols;
        task.y_stride = w.rows;
        task.accumulate = a.accumulate != 0;
        task.sums = m_scratch.sums + uint64_t(thread) * kMaxTokenBlock * tile_rows;
        for (uint32_t t = 0; t < a.n_tokens; t += block) {
            task.n_tokens = std::min(block, a.n_tokens - t);
            task.acts = m_scratch.acts + uint64_t(t) * (a.cols / 32);
            task.x = x.ptr() + uint64_t(t) * a.cols;
            task.y = targets[i].y.ptr() + uint64_t(t) * w.rows + tile * tile_rows;
            m_kernels.matmul.matmul[int(w.format)](task);
        }
    });
}

CodedRows CpuBackend::coded_rows(const Tensor& t) const
{
    const uint32_t row_bytes = codec_info(t.format).row_bytes(t.cols);
    const CodedRow first =
        codec_info(t.format).group == 1 ? coded_row(t, 0) : CodedRow{coded_group(t, 0), nullptr};
    return rows_of(m_kernels.vector, codec_index(t.format), first.words, first.tail, row_bytes);
}

// Only the general kernel takes log-weights and keys without their bias.
static bool needs_general(const AttentionArgs& a, const KvSlots& slots)
{
    return a.n_wave || slots.weights;
}

AttentionTask CpuBackend::attention_task(const AttentionArgs& a, const Tensor* y, const Queries& q,
                                         const KvSlots& slots, const Tensor& lse) const
{
    KS_CHECK(a.n_heads <= m_shape.n_heads && a.head_dim <= m_shape.head_dim,
             "attention: %u heads of %u, head_dim %u of %u", a.n_heads, m_shape.n_heads, a.head_dim,
             m_shape.head_dim);
    AttentionTask task{};
    task.a = a;
    task.q = q.q.ptr();
    task.q_clamped = a.n_clamped ? q.q_clamped.ptr() : nullptr;
    task.y = y ? y->ptr() : nullptr;
    task.lse = lse ? lse.ptr() : nullptr;
    task.k = slots.k.ptr<uint8_t>();
    task.v = slots.v.ptr<uint8_t>();
    task.chunk_k = slots.chunk_k.ptr<uint8_t>();
    task.chunk_v = slots.chunk_v.ptr<uint8_t>();
    task.k_half = slots.k.format == Format::f16;
    task.v_half = slots.v.format == Format::f16;
    if (slots.coded_k) task.coded_k = coded_rows(slots.coded_k);
    if (slots.coded_v) task.coded_v = coded_rows(slots.coded_v);
    task.table = slots.table ? slots.table.ptr<uint32_t>() : nullptr;
    task.head_layout = slots.head_layout.ptr<uint32_t>();
    task.weights = slots.weights ? slots.weights.ptr() : nullptr;
    if (a.n_rope_on_read) task.rope_table = slots.rope_table.ptr();
    if (a.n_wave) {
        task.bias = q.bias.ptr();
        task.bias_clamped = a.n_clamped ? q.bias_clamped.ptr() : nullptr;
        task.positions = slots.positions.ptr<uint32_t>();
        task.waves = slots.waves.ptr();
    }
    task.logits_stride = logits_stride(m_shape);
    if (lse && a.n_tokens == 1 && !needs_general(a, slots) && slots.table &&
        slots.table.cols / a.n_kv_heads <= m_shape.scored_slots)
        task.logits = m_scratch.logits;
    return task;
}

// Which of the kernels attention runs, and why.
struct CpuAttention {
    enum Path { plain, splits, chunks, general } path;
    const char* reason;
};

static CpuAttention choose_attention(const AttentionArgs& a, const KvSlots& slots)
{
    const uint32_t group = a.n_heads / a.n_kv_heads;
    if (a.head_dim % 8 != 0) return {CpuAttention::plain, "heads are not multiples of 8 values"};
    if (a.n_wave % 16 != 0)
        return {CpuAttention::plain, "the keys' bias is not in multiples of 16 values"};
    if (group > kAttentionRows)
        return {CpuAttention::plain, "a key head has more queries than a tile"};
    if (needs_general(a, slots))
        return {CpuAttention::general,
                a.n_wave ? "attention itself adds the bias to keys" : "slots have log-weights"};
    if (a.n_tokens * group > 8 && a.n_tokens > 1)
        return {CpuAttention::chunks, "prefill, more than 8 queries a key head"};
    return {CpuAttention::splits,
            a.n_tokens > 1 ? "at most 8 queries a key head" : "decode, threads share the slots"};
}

KernelChoice CpuBackend::attention_choice(const AttentionArgs& a, const KvSlots& slots) const
{
    static const char* const kNames[] = {"reference", "attention_split", "attention_chunk",
                                         "attention_general"};
    const CpuAttention chosen = choose_attention(a, slots);
    return {kNames[chosen.path], chosen.path == CpuAttention::plain ? "float64" : m_kernels.name,
            chosen.reason};
}

void CpuBackend::attention(const AttentionArgs& a, const Tensor& y, const Queries& q,
                           const KvSlots& slots, const Tensor& lse)
{
    const CpuAttention chosen = choose_attention(a, slots);
    if (chosen.path == CpuAttention::plain) return ReferenceBackend::attention(a, y, q, slots, lse);
    const AttentionTask task = attention_task(a, &y, q, slots, lse);
    if (chosen.path == CpuAttention::chunks) attention_chunks(task, m_kernels.attention.chunk);
    if (chosen.path == CpuAttention::general) attention_chunks(task, m_kernels.attention.general);
    for (uint32_t t = 0; t < a.n_tokens && chosen.path == CpuAttention::splits; t++)
        attention_split(task, t);
    if (a.hadamard)
        for_rows(a.n_tokens, a.n_heads * a.head_dim, [&](uint32_t begin, uint32_t end) {
            for (uint64_t t = begin; t < end; t++)
                m_kernels.vector.hadamard(task.y + t * a.n_heads * a.head_dim, a.n_heads,
                                          a.head_dim, m_signs, true);
        });
}

void CpuBackend::kv_score(const KvScoreArgs& s, const AttentionArgs& a, const Tensor& scores,
                          const Tensor& chunk_scores, const Queries& q, const KvSlots& slots,
                          const Tensor& lse)
{
    const uint32_t group = a.n_heads / a.n_kv_heads;
    if (a.head_dim % 8 != 0 || a.n_wave % 16 != 0 || group > kAttentionRows ||
        a.n_tokens > kMaxScoreTokens)
        return ReferenceBackend::kv_score(s, a, scores, chunk_scores, q, slots, lse);
    AttentionTask task = attention_task(a, nullptr, q, slots, lse);
    task.v = nullptr; // values are not asked for
    const ScoreTask score{s, scores.ptr(), chunk_scores ? chunk_scores.ptr() : nullptr};
    const ScoreKernel kernel =
        task.logits ? m_kernels.attention.score_kept_logits : m_kernels.attention.score;
    uint32_t most = 0; // indexes of a head
    for (uint32_t h = 0; h < a.n_kv_heads; h++)
        most = std::max(most, task.head_layout[h * layout_words + layout_n_held] + a.n_tokens);
    const uint32_t n_tiles = (most + kAttentionTile - 1) / kAttentionTile,
                   step = task.logits ? 8 : 1;
    m_pool.parallel_for((n_tiles + step - 1) / step * a.n_kv_heads, [&](uint32_t i, int thread) {
        const uint32_t kv_head = i % a.n_kv_heads,
                       end = task.head_layout[kv_head * layout_words + layout_n_held] + a.n_tokens;
        float* scratch = attention_scratch(thread);
        for (uint32_t tile = i / a.n_kv_heads * step; tile < (i / a.n_kv_heads + 1) * step;
             tile++) {
            const uint32_t from = tile * kAttentionTile;
            if (from < end)
                kernel(task, score, kv_head, from, std::min(end, from + kAttentionTile), scratch);
        }
    });
}

void CpuBackend::attention_split(const AttentionTask& task, uint32_t token)
{
    const AttentionArgs& a = task.a;
    const uint32_t stride = kPartialHead + a.head_dim, group = a.n_heads / a.n_kv_heads;
    float* totals = m_scratch.partials + uint64_t(kMaxSplits) * a.n_heads * stride;
    for (uint32_t h = 0; h < a.n_heads; h++)
        m_kernels.attention.begin(totals + h * stride, a.head_dim);
    // The groups that any head sees: the first where something is pinned, and those from `first` to
    // the token.
    uint32_t first = ~0u, end = 0;
    for (uint32_t h = 0; h < a.n_kv_heads; h++) {
        const uint32_t before = task.head_layout[h * layout_words + layout_n_held],
                       own = before + token;
        const uint32_t oldest = task.table ? 0
                                           : ring_oldest(before + (a.chunk_rows ? 0 : a.n_tokens),
                                                         a.n_rows, a.n_pinned);
        first = std::min(first,
                         std::max(oldest, a.window && own + 1 > a.window ? own + 1 - a.window : 0) /
                             kAttentionGroup);
        end = std::max(end, own / kAttentionGroup + 1);
    }
    const uint32_t n_pinned_groups =
        std::min(first, (a.n_pinned + kAttentionGroup - 1) / kAttentionGroup);
    const uint32_t n_groups = n_pinned_groups + end - first;
    // A round of as many splits as there is room for, and the next. Some together, as long as no
    // thread goes without: queries are prepared once for all of them.
    for (uint32_t base = 0; base < n_groups; base += kMaxSplits) {
        const uint32_t n_splits = std::min(kMaxSplits, n_groups - base);
        const uint32_t some =
            std::max(1u, std::min(4u, n_splits * a.n_kv_heads / (8 * uint32_t(m_pool.size()))));
        const uint32_t n_parts = (n_splits + some - 1) / some;
        m_pool.parallel_for(n_parts * a.n_kv_heads, [&](uint32_t i, int thread) {
            const uint32_t kv_head = i / n_parts,
                           part_end = std::min(n_splits, (i % n_parts + 1) * some);
            for (uint32_t split = i % n_parts * some, next; split < part_end; split = next) {
                const uint32_t nth = base + split;
                const bool pinned = nth < n_pinned_groups;
                next = pinned ? std::min(part_end, n_pinned_groups - base) : part_end;
                const uint32_t from =
                    (pinned ? nth : first + nth - n_pinned_groups) * kAttentionGroup;
                float* partials =
                    m_scratch.partials + (uint64_t(kv_head) * group * kMaxSplits + split) * stride;
                m_kernels.attention.split(task, kv_head, token, from,
                                          from + (next - split) * kAttentionGroup, partials,
                                          kMaxSplits * stride, attention_scratch(thread));
            }
        });
        for (uint32_t h = 0; h < a.n_heads; h++)
            m_kernels.attention.fold(totals + h * stride,
                                     m_scratch.partials + uint64_t(h) * kMaxSplits * stride,
                                     n_splits, stride, a.head_dim);
    }
    for (uint32_t h = 0; h < a.n_heads; h++) {
        const uint64_t row = uint64_t(token) * a.n_heads + h;
        m_kernels.attention.finish(totals + h * stride, a.head_dim, task.y + row * a.head_dim,
                                   task.lse ? task.lse + row : nullptr);
    }
}

void CpuBackend::attention_chunks(const AttentionTask& task, AttentionChunkKernel kernel)
{
    const AttentionArgs& a = task.a;
    const uint32_t group = a.n_heads / a.n_kv_heads;
    // As many tokens in a chunk as it can have, unless threads would go without; results do not
    // depend on it.
    const uint32_t wanted = (4 * uint32_t(m_pool.size()) + a.n_kv_heads - 1) / a.n_kv_heads;
    const uint32_t most = kAttentionRows / group, least = std::max(1u, 12 / group);
    const uint32_t size = std::max(least, std::min(most, (a.n_tokens + wanted - 1) / wanted));
    const uint32_t n_chunks = (a.n_tokens + size - 1) / size;
    m_pool.parallel_for(n_chunks * a.n_kv_heads, [&](uint32_t i, int thread) {
        uint32_t token =
            (n_chunks - 1 - i / a.n_kv_heads) * size; // the last tokens have the most to do: first
        float* scratch = attention_scratch(thread);
        kernel(task, i % a.n_kv_heads, token, std::min(size, a.n_tokens - token), scratch);
    });
}

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options)
{
    return std::unique_ptr<Backend>(new CpuBackend(options));
}

} // namespace ks
