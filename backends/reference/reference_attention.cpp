// The ops on slots in their plainest form: kv_write, kv_read, kv_move, attention and kv_score.
#include "backends/reference/reference_backend.h"
#include "backends/reference/visibility.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ks
{

constexpr double kLog2e = 1.4426950408889634;

void check_rows(const char* op, const Tensor& t, uint64_t n_rows, uint32_t head_dim)
{
    KS_CHECK(t.rows >= n_rows && t.cols == head_dim, "%s: %llu rows of %u in (%u, %u)", op,
             (unsigned long long)n_rows, head_dim, t.rows, t.cols);
    if (!is_coded(t.format)) {
        KS_CHECK(t.format == Format::f32 || t.format == Format::f16, "%s: a cache of format %d", op,
                 int(t.format));
        return check_values(op, t, n_rows * head_dim);
    }
    const uint64_t bytes = coded_bytes(t.format, t.rows, t.cols);
    KS_CHECK(t.cols % 16 == 0 && t.cols <= codec_max_dim, "%s: coded rows of %u values", op,
             t.cols);
    KS_CHECK(t.offset <= t.buffer.bytes && bytes <= t.buffer.bytes - t.offset,
             "%s: %llu bytes at %llu of a buffer of %llu", op, (unsigned long long)bytes,
             (unsigned long long)t.offset, (unsigned long long)t.buffer.bytes);
}

void check_kv_write(const KvWriteArgs& a, const Tensor& to, const Tensor& x)
{
    check_rows("kv_write", to, uint64_t(a.n_kv_heads) * a.n_rows, a.head_dim);
    KS_CHECK(codec_info(to.format).group == 1, "kv_write: %s, whose rows are coded together",
             codec_info(to.format).name);
    check_values("kv_write", x, uint64_t(a.n_tokens) * a.n_kv_heads * a.head_dim);
}

uint32_t kv_write_row(const KvWriteArgs& a, const Tensor& table, const Tensor& head_layout,
                      uint32_t h, uint32_t t)
{
    const uint32_t* layout_of_head = head_layout.ptr<uint32_t>() + h * layout_words;
    const uint32_t index = layout_of_head[layout_n_held] + t;
    uint32_t row = a.staged ? h * a.n_rows + t : ring_slot(h, index, a.n_rows, a.n_pinned);
    if (!a.staged && table) row = table.ptr<uint32_t>()[layout_of_head[layout_table_begin] + index];
    KS_CHECK(row < a.n_kv_heads * a.n_rows, "kv_write: row %u of %u", row, a.n_kv_heads * a.n_rows);
    return row;
}

void ReferenceBackend::kv_write(const KvWriteArgs& a, const KvPair& to, const KvPair& x,
                                const Tensor& table, const Tensor& head_layout)
{
    const Tensor* pairs[][2] = {{&to.k, &x.k}, {&to.v, &x.v}};
    for (auto [rows, values] : pairs) {
        if (!*rows) continue;
        check_kv_write(a, *rows, *values);
        for (uint32_t h = 0; h < a.n_kv_heads; h++) {
            for (uint32_t t = 0; t < a.n_tokens; t++) {
                const CodedRow out = coded_row(*rows, kv_write_row(a, table, head_layout, h, t));
                encode_row(rows->format,
                           values->ptr() + (uint64_t(t) * a.n_kv_heads + h) * a.head_dim,
                           a.head_dim, out.words, out.tail);
            }
        }
    }
}

void ReferenceBackend::kv_read(const KvReadArgs& a, const Tensor& y, const Tensor& from,
                               const Tensor& rows)
{
    check_values("kv_read", y, uint64_t(a.n) * a.head_dim);
    check_values("kv_read", rows, a.n);
    for (uint32_t i = 0; i < a.n; i++) {
        const uint32_t row = rows.ptr<uint32_t>()[i];
        KS_CHECK(row < from.rows && from.cols == a.head_dim, "kv_read: row %u of (%u, %u)", row,
                 from.rows, from.cols);
        float* out = y.ptr() + uint64_t(i) * a.head_dim;
        const float* values = cached_row(from, row, a.head_dim, out);
        if (values != out) std::copy_n(values, a.head_dim, out);
    }
}

// Moves one group: copies the codes of a group, or encodes rows from any place.
static void move_group(const KvMoveArgs& a, const Tensor& to, const Tensor& from,
                       const uint32_t* moves)
{
    const CodecInfo& info = codec_info(to.format);
    if (to.format == from.format) {
        for (uint32_t r = 0; r < info.group; r++)
            KS_CHECK(moves[2 * r] % info.group == r && moves[2 * r] - r == moves[0],
                     "kv_move: row %u at place %u of a group", moves[2 * r], r);
        memcpy(coded_group(to, moves[1]), coded_group(from, moves[0]),
               info.group * info.row_bytes(a.head_dim));
        return;
    }
    float rows[kMostInGroup * codec_max_dim], row[codec_max_dim];
    for (uint32_t r = 0; r < info.group; r++)
        std::copy_n(cached_row(from, moves[2 * r], a.head_dim, row), a.head_dim,
                    rows + r * a.head_dim);
    encode_group(to.format, rows, a.head_dim, coded_group(to, moves[1]));
}

void ReferenceBackend::kv_move(const KvMoveArgs& a, const Tensor& to, const Tensor& from,
                               const Tensor& moves)
{
    KS_CHECK(to.format == from.format || (is_coded(to.format) && !is_coded(from.format)),
             "kv_move: format %d to %d", int(from.format), int(to.format));
    check_rows("kv_move", from, from.rows, a.head_dim);
    check_rows("kv_move", to, to.rows, a.head_dim);
    for (uint32_t i = 0; i < a.n_moves; i++) {
        const uint32_t* move = moves.ptr<uint32_t>() + 2 * i;
        KS_CHECK(move[0] < from.rows && move[1] < to.rows, "kv_move: row %u of %u to %u of %u",
                 move[0], from.rows, move[1], to.rows);
    }
    const uint32_t row_bytes = codec_info(to.format).row_bytes(a.head_dim),
                   n_tail = tail_bytes(to.format, a.head_dim);
    const uint32_t group = codec_info(to.format).group;
    if (group > 1) check_group_moves(to.format, moves.ptr<uint32_t>(), a.n_moves);
    for (uint32_t i = 0; group > 1 && i < a.n_moves; i += group)
        move_group(a, to, from, moves.ptr<uint32_t>() + 2 * i);
    for (uint32_t i = 0; group == 1 && i < a.n_moves; i++) {
        const uint32_t* move = moves.ptr<uint32_t>() + 2 * i;
        const CodedRow source = coded_row(from, move[0]), out = coded_row(to, move[1]);
        if (to.format != from.format) {
            float scratch[codec_max_dim];
            encode_row(to.format, cached_row(from, move[0], a.head_dim, scratch), a.head_dim,
                       out.words, out.tail);
            continue;
        }
        memcpy(out.words, source.words, row_bytes - n_tail);
        if (n_tail) memcpy(out.tail, source.tail, n_tail);
    }
}

void check_slots(const AttentionArgs& a, const Queries& q, const KvSlots& slots)
{
    KS_CHECK(a.n_tokens > 0 && a.n_heads % a.n_kv_heads == 0, "attention: %u heads over %u",
             a.n_heads, a.n_kv_heads);
    check_values("attention", q.q, uint64_t(a.n_tokens) * a.n_heads * a.head_dim);
    if (a.n_clamped)
        check_values("attention", q.q_clamped, uint64_t(a.n_tokens) * a.n_heads * a.head_dim);
    for (const Tensor* t : {&slots.k, &slots.v})
        check_rows("attention", *t, uint64_t(a.n_kv_heads) * a.n_rows, a.head_dim);
    if (a.chunk_rows)
        for (const Tensor* t : {&slots.chunk_k, &slots.chunk_v})
            check_rows("attention", *t, uint64_t(a.n_kv_heads) * a.chunk_rows, a.head_dim);
    KS_CHECK(!slots.table || a.n_pinned == 0, "attention: %u pinned with a table", a.n_pinned);
    check_values("attention", slots.head_layout, uint64_t(a.n_kv_heads) * layout_words);
    KS_CHECK(!a.n_rope_on_read || (slots.table && a.n_rope_on_read % 2 == 0 &&
                                   a.n_rope_on_read <= a.head_dim && !a.n_clamped),
             "attention: RoPE of %u values", a.n_rope_on_read);
    if (!a.n_bias_dims) return;
    KS_CHECK(slots.table && a.n_bias_dims % 2 == 0 && a.n_bias_dims <= a.head_dim,
             "attention: bias_phasors of %u values", a.n_bias_dims);
    check_values("attention", q.bias, uint64_t(a.n_tokens) * a.n_heads * a.head_dim);
    if (a.n_clamped)
        check_values("attention", q.bias_clamped, uint64_t(a.n_tokens) * a.n_heads * a.head_dim);
    check_values("attention", slots.bias_phasors,
                 uint64_t(phasor_digits) * phasor_base * a.n_bias_dims);
    check_values("attention", slots.positions, slots.table.cols);
}

// Checks that the RoPE table has a row for every index that is read.
static void check_rope_on_read(const AttentionArgs& a, const KvSlots& slots)
{
    for (uint32_t h = 0; a.n_rope_on_read && h < a.n_kv_heads; h++)
        check_values("attention", slots.rope_table,
                     uint64_t(slots.head_layout.ptr<uint32_t>()[h * layout_words + layout_n_held] +
                              a.n_tokens) *
                         a.n_rope_on_read);
}

// Running softmax. Log-weights give numerator and denominator different logits, so each has its own
// running maximum.
struct RunningSoftmax {
    double top = -INFINITY;      // of the numerator's logits
    double norm_top = -INFINITY; // of the denominator's logits
    double norm = 0;

    void add_to_norm(double logit)
    {
        if (!(logit > -INFINITY)) return;
        norm = logit > norm_top ? norm * std::exp(norm_top - logit) + 1
                                : norm + std::exp(logit - norm_top);
        norm_top = std::max(norm_top, logit);
    }
    void add_value(double logit, const float* v, uint32_t head_dim, double* sums)
    {
        const double shrink = logit > top ? std::exp(top - logit) : 1.0;
        top = std::max(top, logit);
        const double weight = std::exp(logit - top);
        for (uint32_t d = 0; d < head_dim; d++) sums[d] = sums[d] * shrink + weight * v[d];
    }
    double scale() const { return top > -INFINITY ? std::exp(top - norm_top) / norm : 0.0; }
    float lse() const { return float((norm_top + std::log(norm)) * kLog2e); } // base 2
};

// The logit of index i before log-weights. `query` is the query that index i meets, whose values
// begin at `at` of (n_tokens, n_heads * head_dim).
static double logit_of(const Visibility& visibility, const Queries& q, const float* query,
                       uint64_t at, uint32_t i, const float* key)
{
    const AttentionArgs& a = visibility.a;
    return visibility.logit(reference_dot(query, key, a.head_dim) + visibility.bias(i, q, at));
}

void ReferenceBackend::attention(const AttentionArgs& a, const Tensor& y, const Queries& q,
                                 const KvSlots& slots, const Tensor& lse)
{
    check_slots(a, q, slots);
    check_rope_on_read(a, slots);
    check_values("attention", y, uint64_t(a.n_tokens) * a.n_heads * a.head_dim);
    KS_CHECK(a.head_dim <= m_shape.head_dim, "attention: head_dim %u, scratch for %u", a.head_dim,
             m_shape.head_dim);
    // Scratch: sums (head_dim), a row of K or V, a query after RoPE.
    double* sums = reinterpret_cast<double*>(m_row);
    float* row = reinterpret_cast<float*>(sums + a.head_dim);
    float* roped_query = row + a.head_dim;
    for (uint32_t h = 0; h < a.n_heads; h++) {
        const Visibility visibility(a, slots, h / (a.n_heads / a.n_kv_heads));
        for (uint32_t t = 0; t < a.n_tokens; t++) {
            const uint64_t at = (uint64_t(t) * a.n_heads + h) * a.head_dim;
            const float* unclamped = visibility.query(t, q.q.ptr() + at, roped_query);
            RunningSoftmax softmax;
            std::fill(sums, sums + a.head_dim, 0.0);
            for (uint32_t i = 0; i <= visibility.before + t; i++) {
                if (!visibility.sees(t, i)) continue;
                const float* query = i < a.n_clamped ? q.q_clamped.ptr() + at : unclamped;
                const double logit = logit_of(visibility, q, query, at, i, visibility.key(i, row));
                softmax.add_to_norm(logit + visibility.weight(i, 1));
                const double num_logit = logit + visibility.weight(i, 0);
                if (num_logit == -INFINITY) continue;
                softmax.add_value(num_logit, visibility.value(i, row), a.head_dim, sums);
            }
            const double scale = softmax.scale();
            float* out = y.ptr() + at;
            for (uint32_t d = 0; d < a.head_dim; d++) out[d] = float(sums[d] * scale);
            if (a.hadamard) hadamard_head(out, a.head_dim, true);
            if (lse) lse.ptr()[uint64_t(t) * a.n_heads + h] = softmax.lse();
        }
    }
}

// The number of indexes that token t sees.
static uint32_t n_visible(const Visibility& visibility, uint32_t t)
{
    const AttentionArgs& a = visibility.a;
    const uint32_t end = visibility.before + t + 1;
    const uint32_t first =
        std::max(visibility.oldest, a.window && end > a.window ? end - a.window : 0);
    return end - (first > a.n_pinned ? first - a.n_pinned : 0);
}

// Adds the scores of index i from token t, which sees it, to `sum`, for the query heads of the KV
// head in order. scratch (2, head_dim).
static void add_scores(const KvScoreArgs& s, const Visibility& visibility, const Queries& q,
                       const Tensor& lse, uint32_t t, uint32_t i, float* scratch, double& sum)
{
    const AttentionArgs& a = visibility.a;
    const uint32_t group = a.n_heads / a.n_kv_heads, first = visibility.kv_head * group;
    const double visible = n_visible(visibility, t);
    const double decay = std::pow(double(s.decay), a.n_tokens - 1 - t);
    const float* key = visibility.key(i, scratch);
    for (uint32_t h = first; h < first + group; h++) {
        const uint64_t at = (uint64_t(t) * a.n_heads + h) * a.head_dim;
        const float* unclamped = visibility.query(t, q.q.ptr() + at, scratch + a.head_dim);
        const float* query = i < a.n_clamped ? q.q_clamped.ptr() + at : unclamped;
        const double logit = logit_of(visibility, q, query, at, i, key);
        const double p = std::exp2((logit + visibility.weight(i, 1)) * kLog2e -
                                   lse.ptr()[uint64_t(t) * a.n_heads + h]);
        // A token that sees one index has exactly its even share, however lse was rounded.
        const double score =
            s.kind == score_below ? (visible > 1 && p * visible < 1 ? 1.0 : 0.0) : p;
        sum += score * decay;
    }
}

void ReferenceBackend::kv_score(const KvScoreArgs& s, const AttentionArgs& a, const Tensor& scores,
                                const Tensor& chunk_scores, const Queries& q, const KvSlots& slots,
                                const Tensor& lse)
{
    check_slots(a, q, slots);
    check_rope_on_read(a, slots);
    check_values("kv_score", scores, uint64_t(a.n_kv_heads) * a.n_rows);
    check_values("kv_score", lse, uint64_t(a.n_tokens) * a.n_heads);
    if (a.chunk_rows) check_values("kv_score", chunk_scores, uint64_t(a.n_kv_heads) * a.chunk_rows);
    const bool adds = s.before == score_adds;
    const double keep = adds                       ? 1.0
                        : s.before == score_clears ? 0.0
                                                   : std::pow(double(s.decay), a.n_tokens);
    for (uint32_t g = 0; g < a.n_kv_heads; g++) {
        const Visibility visibility(a, slots, g);
        for (uint32_t i = 0; i < visibility.before + a.n_tokens; i++) {
            double sum = 0;
            bool seen = false;
            for (uint32_t t = s.first_query; t < a.n_tokens; t++) {
                if (!visibility.sees(t, i)) continue;
                seen = true;
                add_scores(s, visibility, q, lse, t, i, m_row, sum);
            }
            if (!seen && visibility.oldest > i && i >= a.n_pinned)
                continue; // a newer token has the row
            float& out = visibility.in_chunk(i) ? chunk_scores.ptr()[visibility.row(i)]
                                                : scores.ptr()[visibility.row(i)];
            out = float((visibility.in_chunk(i) && !adds ? 0.0 : out * keep) + sum);
        }
    }
}

} // namespace ks
