// select: scores the units of each head by their keys, by the bounds of their pages, or by their
// representatives, and lists the slots of the best units.
#include "backends/reference/reference_backend.h"
#include "backends/reference/visibility.h"
#include "kernels/cpu/select.h"

#include <algorithm>
#include <cmath>

namespace ks
{

// The mean over the chunk of every head's query. With n_rope_on_read token t gets the RoPE of index
// n_last + t.
void ReferenceBackend::mean_query(const AttentionArgs& a, const KvSlots& slots, uint32_t n_last,
                                  const Tensor& q, float* mean)
{
    double* sums = reinterpret_cast<double*>(m_row); // (head_dim), then a query
    float* scratch = reinterpret_cast<float*>(sums + a.head_dim);
    for (uint32_t h = 0; h < a.n_heads; h++, mean += a.head_dim) {
        std::fill_n(sums, a.head_dim, 0.0);
        for (uint32_t t = 0; t < a.n_tokens; t++) {
            const float* query =
                roped(a, slots, n_last + t, q.ptr() + (uint64_t(t) * a.n_heads + h) * a.head_dim,
                      scratch);
            for (uint32_t d = 0; d < a.head_dim; d++) sums[d] += query[d];
        }
        for (uint32_t d = 0; d < a.head_dim; d++) mean[d] = float(sums[d] / a.n_tokens);
    }
}

ReferenceBackend::SelectScratch ReferenceBackend::place_select(const ScratchShape& shape,
                                                               uint8_t* memory, uint64_t* bytes)
{
    SelectScratch s;
    const uint64_t n = (shape.selected_slots + 7) / 8 * 8,
                   n_values = uint64_t(shape.n_heads) * shape.head_dim;
    *bytes = 0;
    auto take = [&](uint64_t n_floats) {
        float* at = memory ? reinterpret_cast<float*>(memory + *bytes) : nullptr;
        *bytes += align_up(4 * n_floats, kRegionAlign);
        return at;
    };
    if (!n) return s;
    s.stride = n;
    s.query = take(n_values);
    s.before_rope = take(n_values);
    s.logits = take(n * shape.n_heads);
    s.votes = take(n * shape.n_kv_heads);
    const uint64_t n_representatives = n / 2 + select_n_representatives, n_heads = shape.n_kv_heads;
    s.table = {{take(n_representatives * n_heads), 4 * n_representatives * n_heads},
               0,
               1,
               uint32_t(n_representatives * n_heads)};
    s.head_layout = {{take(layout_words * n_heads), 4 * layout_words * n_heads},
                     0,
                     uint32_t(n_heads),
                     layout_words};
    return s;
}

void ReferenceBackend::check_select(const SelectArgs& s, const AttentionArgs& a,
                                    const Selection& to, const Queries& q,
                                    const KvSlots& slots) const
{
    check_slots(a, q, slots);
    KS_CHECK(!s.shared_across_heads || s.kind != select_pages, "select: %s",
             "pages are chosen by head");
    const uint32_t n_blocks =
        to.representatives.cols / a.n_kv_heads / select_n_representatives; // of a head
    KS_CHECK(slots.table && s.n_first >= a.n_clamped && s.n_first + s.n_last <= s.n_read,
             "select: first %u, last %u of %u", s.n_first, s.n_last, s.n_read);
    if (a.n_rope_on_read)
        check_values("select", slots.rope_table,
                     uint64_t(s.n_last + a.n_tokens) * a.n_rope_on_read);
    check_values("select", to.table, uint64_t(a.n_kv_heads) * s.stride);
    check_values("select", to.head_layout, uint64_t(a.n_kv_heads) * layout_words);
    check_values("select", to.query, uint64_t(a.n_heads) * a.head_dim);
    check_values("select", to.state, select_words);
    for (uint32_t h = 0; h < a.n_kv_heads; h++) {
        const uint32_t before = slots.head_layout.ptr<uint32_t>()[h * layout_words + layout_n_held];
        KS_CHECK(before <= m_shape.selected_slots, "select: %u slots, scratch for %u", before,
                 m_shape.selected_slots);
        KS_CHECK(s.kind != select_blocks ||
                     (s.unit >= 2 * select_n_representatives &&
                      to.scores.cols >= a.n_kv_heads * a.n_rows && n_units(s, before) <= n_blocks),
                 "select: blocks of %u", s.unit);
        KS_CHECK(s.stride >= s.n_read + s.n_last / 2 + a.n_tokens, "select: %u read, a table of %u",
                 s.n_read, s.stride);
        if (s.kind != select_pages) continue;
        const uint64_t n_pages = (before + select_page - 1) / select_page;
        KS_CHECK(to.bounds.rows >= 2 * n_pages * a.n_kv_heads && to.bounds.cols == a.head_dim,
                 "select: bounds of %u", to.bounds.rows);
    }
}

// Whether the cosine of these queries and those of the last choice reaches s.reuse. Leaves the mean
// of these queries in m_select.before_rope.
bool ReferenceBackend::query_is_similar(const SelectArgs& s, const AttentionArgs& a,
                                        const Selection& to, const Queries& q, const KvSlots& slots)
{
    const uint32_t n_values = a.n_heads * a.head_dim;
    const float *last = to.query.ptr(), *now = m_select.before_rope;
    mean_query(a, slots, s.n_last, q.q_before_rope ? q.q_before_rope : q.q, m_select.before_rope);
    return reference_dot(last, now, n_values) >=
           s.reuse *
               std::sqrt(reference_dot(last, last, n_values) * reference_dot(now, now, n_values));
}

// Whether the last choice is used again. If not, m_select.query becomes the mean query that scores
// the keys.
bool ReferenceBackend::reuses_choice(const SelectArgs& s, const AttentionArgs& a,
                                     const Selection& to, const Queries& q, const KvSlots& slots)
{
    uint32_t *state = to.state.ptr<uint32_t>(), *head_layout = to.head_layout.ptr<uint32_t>();
    const uint32_t n_to_refresh = state[select_tokens],
                   n_since_choice = state[select_n_since] + n_to_refresh;
    const bool similar = s.reuse < 1 && query_is_similar(s, a, to, q, slots);
    state[select_tokens] = a.n_tokens;
    if (similar && may_reuse_choice(s.reuse, s.must_reselect, n_since_choice, s.n_last)) {
        state[select_n_since] = n_since_choice;
        state[select_reuses]++;
        for (uint32_t h = 0; h < a.n_kv_heads; h++)
            head_layout[h * layout_words + layout_n_held] += n_to_refresh;
        list_chunk(s, a, to, slots);
        return true;
    }
    state[select_n_since] = 0;
    state[select_choices]++;
    const uint32_t n_values = a.n_heads * a.head_dim;
    if (s.reuse < 1) std::copy_n(m_select.before_rope, n_values, to.query.ptr());
    if (s.reuse < 1 && !q.q_before_rope)
        std::copy_n(m_select.before_rope, n_values, m_select.query);
    else
        mean_query(a, slots, s.n_last, q.q, m_select.query);
    return false;
}

// tokens_to_refresh, from the state before reuses_choice changes it.
uint32_t ReferenceBackend::tokens_since_choice(const SelectArgs& s, const Selection& to) const
{
    const uint32_t* state = to.state.ptr<uint32_t>();
    return tokens_to_refresh(s.must_reselect, state[select_choices],
                             state[select_n_since] + state[select_tokens]);
}

// Lists the slots of the chunk behind the chosen ones.
void ReferenceBackend::list_chunk(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                                  const KvSlots& slots) const
{
    for (uint32_t h = 0; h < a.n_kv_heads && !a.chunk_rows; h++) {
        const uint32_t *from = slots.head_layout.ptr<uint32_t>() + h * layout_words,
                       *listed = to.head_layout.ptr<uint32_t>() + h * layout_words;
        std::copy_n(slots.table.ptr<uint32_t>() + from[layout_table_begin] + from[layout_n_held],
                    a.n_tokens, to.table.ptr<uint32_t>() + h * s.stride + listed[layout_n_held]);
    }
}

// Writes the bounds of the pages that hold the last n_to_refresh tokens.
void ReferenceBackend::bound_pages(const AttentionArgs& a, const Selection& to,
                                   const KvSlots& slots, uint32_t head, uint32_t n_to_refresh)
{
    const Visibility visibility(a, slots, head);
    const uint32_t first = first_page_to_refresh(visibility.before, n_to_refresh),
                   n_pages = to.bounds.rows / (2 * a.n_kv_heads);
    for (uint32_t page = first; page * select_page < visibility.before; page++) {
        uint16_t* low =
            to.bounds.ptr<uint16_t>() + (uint64_t(head) * n_pages + page) * 2 * a.head_dim;
        uint16_t* high = low + a.head_dim;
        const uint32_t end = std::min(visibility.before, (page + 1) * select_page);
        for (uint32_t i = page * select_page; i < end; i++) {
            const float* key = visibility.stored_key(i, m_row);
            for (uint32_t d = 0; d < a.head_dim; d++) {
                const bool is_first = i % select_page == 0;
                if (is_first || key[d] < HALF_TO_FLOAT(low[d]))
                    low[d] = uint16_t(HALF_FLOOR(key[d]));
                if (is_first || key[d] > HALF_TO_FLOAT(high[d]))
                    high[d] = uint16_t(HALF_CEIL(key[d]));
            }
        }
    }
}

// The votes on n pages of a head from page `first` on. A softcap would not change their order.
void ReferenceBackend::page_votes(const AttentionArgs& a, const Selection& to, uint32_t head,
                                  uint32_t first, uint32_t n)
{
    const uint32_t group = a.n_heads / a.n_kv_heads, n_pages = to.bounds.rows / (2 * a.n_kv_heads);
    float* votes = m_select.votes + head * m_select.stride;
    for (uint32_t i = 0; i < n; i++) {
        const uint16_t* low =
            to.bounds.ptr<uint16_t>() + (uint64_t(head) * n_pages + first + i) * 2 * a.head_dim;
        double max = -INFINITY;
        for (uint32_t h = head * group; h < (head + 1) * group; h++) {
            const float* q = m_select.query + uint64_t(h) * a.head_dim;
            double sum = 0;
            for (uint32_t d = 0; d < a.head_dim; d++)
                sum += std::max(double(q[d]) * HALF_TO_FLOAT(low[d]),
                                double(q[d]) * HALF_TO_FLOAT(low[a.head_dim + d]));
            max = std::max(max, sum);
        }
        votes[i] = float(max * a.scale);
    }
}

// Logits of n keys of a head from index `first` on, with the mean query of each query head.
void ReferenceBackend::select_logits(const AttentionArgs& a, const KvSlots& slots, uint32_t head,
                                     uint32_t first, uint32_t n)
{
    const Visibility visibility(a, slots, head);
    const uint32_t group = a.n_heads / a.n_kv_heads;
    for (uint32_t i = 0; i < n; i++) {
        const float* key = visibility.stored_key(first + i, m_row);
        for (uint32_t h = head * group; h < (head + 1) * group; h++)
            m_select.logits[h * m_select.stride + i] =
                float(visibility.logit(reference_dot(m_select.query + uint64_t(h) * a.head_dim, key,
                                                     a.head_dim)) +
                      visibility.weight(first + i, 1));
    }
}

// Adds the votes of query head h on n candidates.
void ReferenceBackend::add_votes(uint32_t kind, uint32_t h, uint32_t n, uint32_t n_wanted,
                                 float* votes)
{
    const float* logits = m_select.logits + h * m_select.stride;
    if (kind == select_sum) {
        for (uint32_t i = 0; i < n; i++) votes[i] += logits[i];
        return;
    }
    if (kind == select_hard) {
        return TopK(logits, n, n_wanted).each([&](uint32_t i) { votes[i] += 1.f; });
    }
    const double max = *std::max_element(logits, logits + n);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += std::exp(double(logits[i]) - max);
    for (uint32_t i = 0; i < n; i++)
        votes[i] = float(votes[i] + std::exp(double(logits[i]) - max) / sum);
}

// The slots of the representatives of a head's blocks, with a table and a head layout of their own.
KvSlots ReferenceBackend::block_representatives(const SelectArgs& s, const Selection& to,
                                                const KvSlots& slots, uint32_t head) const
{
    KvSlots representatives = slots;
    representatives.table = m_select.table;
    representatives.head_layout = m_select.head_layout;
    const uint32_t* head_layout = slots.head_layout.ptr<uint32_t>() + head * layout_words;
    const uint32_t *table = slots.table.ptr<uint32_t>() + head_layout[layout_table_begin],
                   first = head * (m_select.table.cols / m_select.head_layout.rows);
    ChosenList list{head_layout, table, m_select.table.ptr<uint32_t>() + first};
    uint32_t indexes[select_n_representatives];
    add_representatives(list, s, [&](const Unit& unit, uint32_t) {
        const TopFew found(unit.begin, unit.begin + unit.n,
                           [&](uint32_t i) { return to.scores.ptr()[table[i]]; });
        std::copy_n(found.index, found.n, indexes);
        return indexes;
    });
    list.finish(first, m_select.head_layout.ptr<uint32_t>() + head * layout_words);
    return representatives;
}

// Adds a head's votes on its blocks: the mean logit of each block's representatives, summed over
// the query heads.
void ReferenceBackend::add_block_votes(const SelectArgs& s, const AttentionArgs& a,
                                       const KvSlots& slots, uint32_t head, float* votes) const
{
    const uint32_t group = a.n_heads / a.n_kv_heads,
                   before = slots.head_layout.ptr<uint32_t>()[head * layout_words + layout_n_held];
    uint32_t representative = 0;
    for (uint32_t i = 0; i < n_units(s, before); i++) {
        const uint32_t n = Unit(s, before, i).n_representatives();
        double sum = 0;
        for (uint32_t h = head * group; h < (head + 1) * group; h++)
            for (uint32_t k = 0; k < n; k++)
                sum += m_select.logits[h * m_select.stride + representative + k];
        votes[i] += float(sum / n);
        representative += n;
    }
}

// Writes a head's list: the first indexes, the best units, the last indexes.
void ReferenceBackend::list_head(const SelectArgs& s, const Selection& to, const KvSlots& slots,
                                 uint32_t head, const TopK& best) const
{
    const uint32_t *head_layout = slots.head_layout.ptr<uint32_t>() + head * layout_words,
                   before = head_layout[layout_n_held];
    ChosenList list{head_layout, slots.table.ptr<uint32_t>() + head_layout[layout_table_begin],
                    to.table.ptr<uint32_t>() + head * s.stride};
    if (before <= s.n_read) {
        list.add_range(0, before);
    } else {
        const uint32_t end = before - s.n_last;
        list.add_range(0, s.n_first);
        best.each([&](uint32_t i) {
            const Unit unit(s, before, i);
            list.add_range(unit.begin, unit.begin + unit.n);
        });
        list.add_range(end, before);
    }
    list.finish(head * s.stride, to.head_layout.ptr<uint32_t>() + head * layout_words);
}

// Writes the votes on a head's units. With shared_across_heads they are added to the votes of the
// heads before.
void ReferenceBackend::vote(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                            const KvSlots& slots, uint32_t head, float* votes)
{
    const uint32_t n = n_units(
                       s, slots.head_layout.ptr<uint32_t>()[head * layout_words + layout_n_held]),
                   group = a.n_heads / a.n_kv_heads;
    if (s.kind == select_pages) return page_votes(a, to, head, s.n_first / select_page, n);
    if (head == 0 || !s.shared_across_heads) std::fill_n(votes, n, 0.f);
    if (s.kind == select_blocks && n) {
        const KvSlots representatives = block_representatives(s, to, slots, head);
        select_logits(
            a, representatives, head, 0,
            representatives.head_layout.ptr<uint32_t>()[head * layout_words + layout_n_held]);
        return add_block_votes(s, a, slots, head, votes);
    }
    select_logits(a, slots, head, s.n_first, n);
    for (uint32_t h = head * group; n && h < (head + 1) * group; h++)
        add_votes(s.kind, h, n, s.n_read - s.n_first - s.n_last, votes);
}

void ReferenceBackend::select(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                              const Queries& q, const KvSlots& slots)
{
    check_select(s, a, to, q, slots);
    const uint32_t n_to_refresh = tokens_since_choice(s, to);
    if (reuses_choice(s, a, to, q, slots)) return;
    auto before = [&](uint32_t head) {
        return slots.head_layout.ptr<uint32_t>()[head * layout_words + layout_n_held];
    };
    for (uint32_t head = 0; head < a.n_kv_heads; head++) {
        float* votes = m_select.votes + (s.shared_across_heads ? 0 : head * m_select.stride);
        if (s.kind == select_pages) bound_pages(a, to, slots, head, n_to_refresh);
        vote(s, a, to, slots, head, votes);
        if (!s.shared_across_heads)
            list_head(s, to, slots, head, best_units(s, before(head), votes));
    }
    const TopK best = best_units(s, s.shared_across_heads ? before(0) : 0, m_select.votes);
    for (uint32_t head = 0; s.shared_across_heads && head < a.n_kv_heads; head++)
        list_head(s, to, slots, head, best);
    list_chunk(s, a, to, slots);
}

} // namespace ks
