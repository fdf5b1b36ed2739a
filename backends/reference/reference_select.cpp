// Which slots a step reads: all keys are asked, or the bounds of their pages, and the best are listed.
#include "backends/reference/reference_backend.h"
#include "backends/reference/sight.h"
#include "kernels/cpu/select.h"

#include <algorithm>
#include <cmath>

namespace ks
{

// The chunk's queries in the mean, those of every head; where attention turns them, token t as if at index n_last + t.
void ReferenceBackend::mean_query(const AttentionArgs& a, const KvSlots& slots, uint32_t n_last, const Tensor& q, float* mean)
{
    double* sums = reinterpret_cast<double*>(m_row); // (head_dim), then a query
    float* room = reinterpret_cast<float*>(sums + a.head_dim);
    for (uint32_t h = 0; h < a.n_heads; h++, mean += a.head_dim) {
        std::fill_n(sums, a.head_dim, 0.0);
        for (uint32_t t = 0; t < a.n_tokens; t++) {
            const float* query = turned(a, slots, n_last + t, q.ptr() + (uint64_t(t) * a.n_heads + h) * a.head_dim, room);
            for (uint32_t d = 0; d < a.head_dim; d++) sums[d] += query[d];
        }
        for (uint32_t d = 0; d < a.head_dim; d++) mean[d] = float(sums[d] / a.n_tokens);
    }
}

ReferenceBackend::SelectScratch ReferenceBackend::place_select(const ScratchShape& shape, uint8_t* memory, uint64_t* bytes)
{
    SelectScratch s;
    const uint64_t n = (shape.selected_slots + 7) / 8 * 8, n_values = uint64_t(shape.n_heads) * shape.head_dim;
    *bytes = 0;
    auto take = [&](uint64_t n_floats) {
        float* at = memory ? reinterpret_cast<float*>(memory + *bytes) : nullptr;
        *bytes += align_up(4 * n_floats, kRegionAlign);
        return at;
    };
    if (!n) return s;
    s.stride = n;
    s.query = take(n_values);
    s.plain = take(n_values);
    s.logits = take(n * shape.n_heads);
    s.votes = take(n * shape.n_kv_heads);
    const uint64_t n_speakers = n / 2 + select_few, n_heads = shape.n_kv_heads;
    s.table = {{take(n_speakers * n_heads), 4 * n_speakers * n_heads}, 0, 1, uint32_t(n_speakers * n_heads)};
    s.view = {{take(view_words * n_heads), 4 * view_words * n_heads}, 0, uint32_t(n_heads), view_words};
    return s;
}

void ReferenceBackend::check_select(const SelectArgs& s, const AttentionArgs& a, const Selection& to, const Queries& q,
                                    const KvSlots& slots) const
{
    check_slots(a, q, slots);
    KS_CHECK(!s.alike || s.kind != select_pages, "select: %s", "pages are chosen by head");
    const uint32_t n_blocks = to.speakers.cols / a.n_kv_heads / select_few; // of a head
    KS_CHECK(slots.table && s.n_first >= a.n_far && s.n_first + s.n_last <= s.n_read, "select: first %u, last %u of %u", s.n_first,
             s.n_last, s.n_read);
    if (a.n_turn) check_values("select", slots.turns, uint64_t(s.n_last + a.n_tokens) * a.n_turn);
    check_values("select", to.table, uint64_t(a.n_kv_heads) * s.stride);
    check_values("select", to.view, uint64_t(a.n_kv_heads) * view_words);
    check_values("select", to.query, uint64_t(a.n_heads) * a.head_dim);
    check_values("select", to.state, select_words);
    for (uint32_t h = 0; h < a.n_kv_heads; h++) {
        const uint32_t before = slots.view.ptr<uint32_t>()[h * view_words + view_before];
        KS_CHECK(before <= m_shape.selected_slots, "select: %u slots, scratch for %u", before, m_shape.selected_slots);
        KS_CHECK(s.kind != select_blocks ||
                     (s.unit >= 2 * select_few && to.signal.cols >= a.n_kv_heads * a.n_rows && n_units(s, before) <= n_blocks),
                 "select: blocks of %u", s.unit);
        KS_CHECK(s.stride >= s.n_read + s.n_last / 2 + a.n_tokens, "select: %u read, a table of %u", s.n_read, s.stride);
        if (s.kind != select_pages) continue;
        const uint64_t n_pages = (before + select_page - 1) / select_page;
        KS_CHECK(to.bounds.rows >= 2 * n_pages * a.n_kv_heads && to.bounds.cols == a.head_dim, "select: bounds of %u", to.bounds.rows);
    }
}

// Whether these queries, whose mean it leaves in m_select.plain, point where those of the last choice did.
bool ReferenceBackend::asks_alike(const SelectArgs& s, const AttentionArgs& a, const Selection& to, const Queries& q, const KvSlots& slots)
{
    const uint32_t n_values = a.n_heads * a.head_dim;
    const float *last = to.query.ptr(), *now = m_select.plain;
    mean_query(a, slots, s.n_last, q.plain ? q.plain : q.q, m_select.plain);
    return dot(last, now, n_values) >= s.reuse * std::sqrt(dot(last, last, n_values) * dot(now, now, n_values));
}

// If it does not, m_select.query is what keys are asked with.
bool ReferenceBackend::reuses_choice(const SelectArgs& s, const AttentionArgs& a, const Selection& to, const Queries& q,
                                     const KvSlots& slots)
{
    uint32_t *state = to.state.ptr<uint32_t>(), *view = to.view.ptr<uint32_t>();
    const uint32_t came = state[select_tokens], since = state[select_since] + came;
    const bool alike = s.reuse < 1 && asks_alike(s, a, to, q, slots);
    state[select_tokens] = a.n_tokens;
    if (alike && !s.fresh && 2 * since <= s.n_last) {
        state[select_since] = since;
        state[select_reuses]++;
        for (uint32_t h = 0; h < a.n_kv_heads; h++) view[h * view_words + view_before] += came;
        list_chunk(s, a, to, slots);
        return true;
    }
    state[select_since] = 0;
    state[select_choices]++;
    const uint32_t n_values = a.n_heads * a.head_dim;
    if (s.reuse < 1) std::copy_n(m_select.plain, n_values, to.query.ptr());
    if (s.reuse < 1 && !q.plain)
        std::copy_n(m_select.plain, n_values, m_select.query);
    else
        mean_query(a, slots, s.n_last, q.q, m_select.query);
    return false;
}

// What SELECT_CAME says; before reuses_choice changes it.
uint32_t ReferenceBackend::came_since(const SelectArgs& s, const Selection& to) const
{
    const uint32_t* state = to.state.ptr<uint32_t>();
    return SELECT_CAME(s.fresh, state[select_choices], state[select_since] + state[select_tokens]);
}

// The chunk's own slots follow on the chosen ones.
void ReferenceBackend::list_chunk(const SelectArgs& s, const AttentionArgs& a, const Selection& to, const KvSlots& slots) const
{
    for (uint32_t h = 0; h < a.n_kv_heads && !a.chunk_rows; h++) {
        const uint32_t *from = slots.view.ptr<uint32_t>() + h * view_words, *made = to.view.ptr<uint32_t>() + h * view_words;
        std::copy_n(slots.table.ptr<uint32_t>() + from[view_begin] + from[view_before], a.n_tokens,
                    to.table.ptr<uint32_t>() + h * s.stride + made[view_before]);
    }
}

// Bounds of the pages that the last tokens are in.
void ReferenceBackend::bound_pages(const AttentionArgs& a, const Selection& to, const KvSlots& slots, uint32_t head, uint32_t came)
{
    const Sight sight(a, slots, head);
    const uint32_t first = (sight.before - std::min(sight.before, came)) / select_page, n_pages = to.bounds.rows / (2 * a.n_kv_heads);
    for (uint32_t page = first; page * select_page < sight.before; page++) {
        uint16_t* low = to.bounds.ptr<uint16_t>() + (uint64_t(head) * n_pages + page) * 2 * a.head_dim;
        uint16_t* high = low + a.head_dim;
        const uint32_t end = std::min(sight.before, (page + 1) * select_page);
        for (uint32_t i = page * select_page; i < end; i++) {
            const float* key = sight.stored_key(i, m_row);
            for (uint32_t d = 0; d < a.head_dim; d++) {
                const bool is_first = i % select_page == 0;
                if (is_first || key[d] < HALF_TO_FLOAT(low[d])) low[d] = uint16_t(HALF_BELOW(key[d]));
                if (is_first || key[d] > HALF_TO_FLOAT(high[d])) high[d] = uint16_t(HALF_ABOVE(key[d]));
            }
        }
    }
}

void ReferenceBackend::page_votes(const AttentionArgs& a, const Selection& to, uint32_t head, uint32_t first, uint32_t n)
{
    const uint32_t group = a.n_heads / a.n_kv_heads, n_pages = to.bounds.rows / (2 * a.n_kv_heads);
    float* votes = m_select.votes + head * m_select.stride;
    for (uint32_t i = 0; i < n; i++) {
        const uint16_t* low = to.bounds.ptr<uint16_t>() + (uint64_t(head) * n_pages + first + i) * 2 * a.head_dim;
        double most = -INFINITY;
        for (uint32_t h = head * group; h < (head + 1) * group; h++) {
            const float* q = m_select.query + uint64_t(h) * a.head_dim;
            double sum = 0;
            for (uint32_t d = 0; d < a.head_dim; d++)
                sum += std::max(double(q[d]) * HALF_TO_FLOAT(low[d]), double(q[d]) * HALF_TO_FLOAT(low[a.head_dim + d]));
            most = std::max(most, sum);
        }
        votes[i] = float(most * a.scale);
    }
}

// Logits of a head's candidates with the mean query of each of its query heads.
void ReferenceBackend::select_logits(const AttentionArgs& a, const KvSlots& slots, uint32_t head, uint32_t first, uint32_t n)
{
    const Sight sight(a, slots, head);
    const uint32_t group = a.n_heads / a.n_kv_heads;
    for (uint32_t i = 0; i < n; i++) {
        const float* key = sight.stored_key(first + i, m_row);
        for (uint32_t h = head * group; h < (head + 1) * group; h++)
            m_select.logits[h * m_select.stride + i] =
                float(dot(m_select.query + uint64_t(h) * a.head_dim, key, a.head_dim) * a.scale + sight.weight(first + i, 1));
    }
}

// What query head h says of its candidates is added to the votes.
void ReferenceBackend::add_votes(uint32_t kind, uint32_t h, uint32_t n, uint32_t n_wanted, float* votes)
{
    const float* logits = m_select.logits + h * m_select.stride;
    if (kind == select_sum) {
        for (uint32_t i = 0; i < n; i++) votes[i] += logits[i];
        return;
    }
    if (kind == select_hard) {
        return Highest(logits, n, n_wanted).each([&](uint32_t i) { votes[i] += 1.f; });
    }
    const double top = *std::max_element(logits, logits + n);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += std::exp(double(logits[i]) - top);
    for (uint32_t i = 0; i < n; i++) votes[i] = float(votes[i] + std::exp(double(logits[i]) - top) / sum);
}

// The slots of a head whose keys speak for its blocks, as a table and a view of their own.
KvSlots ReferenceBackend::block_speakers(const SelectArgs& s, const Selection& to, const KvSlots& slots, uint32_t head) const
{
    KvSlots speakers = slots;
    speakers.table = m_select.table;
    speakers.view = m_select.view;
    const uint32_t* view = slots.view.ptr<uint32_t>() + head * view_words;
    const uint32_t *table = slots.table.ptr<uint32_t>() + view[view_begin], first = head * (m_select.table.cols / m_select.view.rows);
    ChosenList list{view, table, m_select.table.ptr<uint32_t>() + first};
    uint32_t few[select_few];
    add_speakers(list, s, [&](const Unit& unit, uint32_t) {
        const FewHighest found(unit.begin, unit.begin + unit.n, [&](uint32_t i) { return to.signal.ptr()[table[i]]; });
        return std::copy_n(found.index, found.n, few), few;
    });
    list.finish(first, m_select.view.ptr<uint32_t>() + head * view_words);
    return speakers;
}

// What a head's query heads say of the keys that speak is added to the votes on their blocks.
void ReferenceBackend::add_block_votes(const SelectArgs& s, const AttentionArgs& a, const KvSlots& slots, uint32_t head, float* votes) const
{
    const uint32_t group = a.n_heads / a.n_kv_heads, before = slots.view.ptr<uint32_t>()[head * view_words + view_before];
    uint32_t speaker = 0;
    for (uint32_t i = 0; i < n_units(s, before); i++) {
        const uint32_t n = std::min(Unit(s, before, i).n, select_few);
        double sum = 0;
        for (uint32_t h = head * group; h < (head + 1) * group; h++)
            for (uint32_t k = 0; k < n; k++) sum += m_select.logits[h * m_select.stride + speaker + k];
        votes[i] += float(sum / n);
        speaker += n;
    }
}

// A head's list from the best of its units.
void ReferenceBackend::list_head(const SelectArgs& s, const Selection& to, const KvSlots& slots, uint32_t head, const Highest& best) const
{
    const uint32_t *view = slots.view.ptr<uint32_t>() + head * view_words, before = view[view_before];
    ChosenList list{view, slots.table.ptr<uint32_t>() + view[view_begin], to.table.ptr<uint32_t>() + head * s.stride};
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
    list.finish(head * s.stride, to.view.ptr<uint32_t>() + head * view_words);
}

// Votes on a head's units; those of heads that choose together add up.
void ReferenceBackend::vote(const SelectArgs& s, const AttentionArgs& a, const Selection& to, const KvSlots& slots, uint32_t head,
                            float* votes)
{
    const uint32_t n = n_units(s, slots.view.ptr<uint32_t>()[head * view_words + view_before]), group = a.n_heads / a.n_kv_heads;
    if (s.kind == select_pages) return page_votes(a, to, head, s.n_first / select_page, n);
    if (head == 0 || !s.alike) std::fill_n(votes, n, 0.f);
    if (s.kind == select_blocks && n) {
        const KvSlots speakers = block_speakers(s, to, slots, head);
        select_logits(a, speakers, head, 0, speakers.view.ptr<uint32_t>()[head * view_words + view_before]);
        return add_block_votes(s, a, slots, head, votes);
    }
    select_logits(a, slots, head, s.n_first, n);
    for (uint32_t h = head * group; n && h < (head + 1) * group; h++) add_votes(s.kind, h, n, s.n_read - s.n_first - s.n_last, votes);
}

void ReferenceBackend::select(const SelectArgs& s, const AttentionArgs& a, const Selection& to, const Queries& q, const KvSlots& slots)
{
    check_select(s, a, to, q, slots);
    const uint32_t came = came_since(s, to);
    if (reuses_choice(s, a, to, q, slots)) return;
    auto before = [&](uint32_t head) { return slots.view.ptr<uint32_t>()[head * view_words + view_before]; };
    for (uint32_t head = 0; head < a.n_kv_heads; head++) {
        float* votes = m_select.votes + (s.alike ? 0 : head * m_select.stride);
        if (s.kind == select_pages) bound_pages(a, to, slots, head, came);
        vote(s, a, to, slots, head, votes);
        if (!s.alike) list_head(s, to, slots, head, best_units(s, before(head), votes));
    }
    const Highest best = best_units(s, s.alike ? before(0) : 0, m_select.votes);
    for (uint32_t head = 0; s.alike && head < a.n_kv_heads; head++) list_head(s, to, slots, head, best);
    list_chunk(s, a, to, slots);
}

} // namespace ks
