// select on several threads: first over blocks of candidates, then over query heads, then over
// lists. The order of a sum does not depend on the number of threads.
#include "backends/cpu/cpu_backend.h"
#include "kernels/cpu/select.h"

#include <algorithm>

namespace ks
{

// The share of a thread at a time.
constexpr uint32_t kSelectBlock = 1024;        // candidates: whole tiles
constexpr uint32_t kRepresentativeBlock = 256; // representatives, whose rows are not neighbours
constexpr uint32_t kPageBlock = 64;            // pages

// Instead of a block's first representative: the block's representatives are unknown.
constexpr uint32_t kUnknown = ~0u;

// Calls body(head, first, n, thread) for blocks of at most `block` of every head's n_of(head)
// items.
template <class Count, class Body>
void CpuBackend::for_blocks(uint32_t n_heads, const Count& n_of, uint32_t block, const Body& body)
{
    uint32_t max_n = 0;
    for (uint32_t h = 0; h < n_heads; h++) max_n = std::max(max_n, n_of(h));
    const uint32_t n_blocks = (max_n + block - 1) / block;
    m_pool.parallel_for(n_heads * n_blocks, [&](uint32_t i, int thread) {
        const uint32_t head = i / n_blocks, first = i % n_blocks * block, n = n_of(head);
        if (first < n) body(head, first, std::min(block, n - first), thread);
    });
}

// Refreshes the bounds of pages and votes by them.
void CpuBackend::vote_for_pages(const SelectArgs& s, const AttentionTask& task, const Selection& to,
                                uint32_t n_to_refresh)
{
    const AttentionArgs& a = task.a;
    const uint32_t n_pages = to.bounds.rows / (2 * a.n_kv_heads), group = a.n_heads / a.n_kv_heads;
    auto before = [&](uint32_t head) {
        return task.head_layout[head * layout_words + layout_n_held];
    };
    auto bounds = [&](uint32_t head, uint32_t page) {
        return to.bounds.ptr<uint16_t>() + (uint64_t(head) * n_pages + page) * 2 * a.head_dim;
    };
    auto first_page = [&](uint32_t head) {
        return first_page_to_refresh(before(head), n_to_refresh);
    };
    auto n_changed = [&](uint32_t head) {
        return (before(head) + select_page - 1) / select_page - first_page(head);
    };
    for_blocks(a.n_kv_heads, n_changed, kPageBlock,
               [&](uint32_t head, uint32_t first, uint32_t n, int thread) {
                   float* scratch = attention_scratch(thread);
                   for (uint32_t page = first_page(head) + first; n--; page++) {
                       uint16_t* low = bounds(head, page);
                       m_kernels.attention.page_bounds(
                           task, head, page * select_page,
                           std::min(before(head), (page + 1) * select_page), low, low + a.head_dim,
                           scratch);
                   }
               });
    const uint32_t skipped = s.n_first / select_page;
    auto n_candidates = [&](uint32_t head) { return n_units(s, before(head)); };
    for_blocks(a.n_kv_heads, n_candidates, 4 * kPageBlock,
               [&](uint32_t head, uint32_t first, uint32_t n, int) {
                   m_kernels.attention.page_votes(m_select.query + head * group * a.head_dim, group,
                                                  a.head_dim, bounds(head, skipped + first), n,
                                                  m_select.votes + head * m_select.stride + first);
               });
}

// Logits of n_of(head) keys of every head from index `from` on. A thread has `block` of them at a
// time.
template <class Count>
void CpuBackend::key_logits(const AttentionTask& task, uint32_t from, uint32_t block,
                            const Count& n_of)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads;
    for_blocks(task.a.n_kv_heads, n_of, block,
               [&](uint32_t head, uint32_t first, uint32_t n, int thread) {
                   float* scratch = attention_scratch(thread);
                   m_kernels.attention.select_logits(task, head, from + first, from + first + n,
                                                     m_select.logits +
                                                         head * group * m_select.stride + first,
                                                     uint32_t(m_select.stride), scratch);
               });
}

static uint32_t* kept_representatives(const Selection& to, const AttentionArgs& a, uint32_t head)
{
    return to.representatives.ptr<uint32_t>() +
           uint64_t(head) * (to.representatives.cols / a.n_kv_heads);
}

// Lists the representatives of a head's blocks, as block_representatives does. A block that
// attention has not read since the last choice keeps its representatives: attention changes only
// the scores of blocks that it reads.
void CpuBackend::keep_representatives(const SelectArgs& s, const AttentionArgs& a,
                                      const Selection& to, const KvSlots& slots, uint32_t head,
                                      uint32_t n_to_refresh)
{
    const uint32_t* head_layout = slots.head_layout.ptr<uint32_t>() + head * layout_words;
    const uint32_t *table = slots.table.ptr<uint32_t>() + head_layout[layout_table_begin],
                   first = head * (m_select.table.cols / m_select.head_layout.rows);
    const uint32_t before = head_layout[layout_n_held],
                   then = before - std::min(before, n_to_refresh);    // at the last choice
    const uint32_t known_end = then > s.n_read ? then - s.n_last : 0; // of its candidates
    ChosenList list{head_layout, table, m_select.table.ptr<uint32_t>() + first};
    add_representatives(list, s, [&](const Unit& unit, uint32_t nth) {
        uint32_t* indexes = kept_representatives(to, a, head) + nth * select_n_representatives;
        if (unit.begin + unit.n > known_end || *indexes == kUnknown) {
            const TopFew found(unit.begin, unit.begin + unit.n,
                               [&](uint32_t i) { return to.scores.ptr()[table[i]]; });
            std::copy_n(found.index, found.n, indexes);
        }
        return indexes;
    });
    list.finish(first, m_select.head_layout.ptr<uint32_t>() + head * layout_words);
}

void CpuBackend::vote_for_blocks(const SelectArgs& s, const AttentionTask& task,
                                 const Selection& to, const KvSlots& slots, uint32_t n_to_refresh)
{
    const AttentionArgs& a = task.a;
    m_pool.parallel_for(a.n_kv_heads, [&](uint32_t head, int) {
        keep_representatives(s, a, to, slots, head, n_to_refresh);
    });
    AttentionTask representatives = task;
    representatives.table = m_select.table.ptr<uint32_t>();
    representatives.head_layout = m_select.head_layout.ptr<uint32_t>();
    key_logits(representatives, 0, kRepresentativeBlock, [&](uint32_t head) {
        return representatives.head_layout[head * layout_words + layout_n_held];
    });
    for (uint32_t head = 0; head < a.n_kv_heads; head++) {
        float* votes = m_select.votes + (s.shared_across_heads ? 0 : head * m_select.stride);
        if (head == 0 || !s.shared_across_heads)
            std::fill_n(votes, n_units(s, task.head_layout[head * layout_words + layout_n_held]),
                        0.f);
        add_block_votes(s, a, slots, head, votes);
    }
}

void CpuBackend::vote_for_keys(const SelectArgs& s, const AttentionTask& task)
{
    const AttentionArgs& a = task.a;
    const uint32_t group = a.n_heads / a.n_kv_heads;
    auto n_candidates = [&](uint32_t head) {
        return n_units(s, task.head_layout[head * layout_words + layout_n_held]);
    };
    key_logits(task, s.n_first, kSelectBlock, n_candidates);
    m_pool.parallel_for(a.n_heads, [&](uint32_t h, int) {
        if (const uint32_t n = n_candidates(h / group))
            m_kernels.attention.softmax(m_select.logits + h * m_select.stride, n);
    });
    const uint32_t n_sets = s.shared_across_heads ? 1 : a.n_kv_heads, voters = a.n_heads / n_sets;
    for_blocks(
        n_sets, n_candidates, kSelectBlock, [&](uint32_t set, uint32_t first, uint32_t n, int) {
            float* votes = m_select.votes + set * m_select.stride + first;
            std::fill_n(votes, n, 0.f);
            for (uint32_t h = set * voters; h < (set + 1) * voters; h++)
                m_kernels.vector.add(votes, m_select.logits + h * m_select.stride + first, n);
        });
}

void CpuBackend::select(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                        const Queries& q, const KvSlots& slots)
{
    if (a.head_dim % 8 != 0) return ReferenceBackend::select(s, a, to, q, slots);
    check_select(s, a, to, q, slots);
    KS_CHECK(s.kind != select_hard && s.kind != select_sum,
             "select: kind %u, which only the reference has", s.kind);
    const uint32_t n_to_refresh = tokens_since_choice(s, to);
    if (reuses_choice(s, a, to, q, slots)) return;
    AttentionTask task = attention_task(a, nullptr, q, slots, {});
    task.q = m_select.query;
    task.v = nullptr;          // values are not read
    task.a.n_rope_on_read = 0; // keys are scored as they are stored
    // All keys meet the same queries. Representatives are listed with indexes of their own.
    task.a.n_clamped = 0;
    if (s.kind == select_pages)
        vote_for_pages(s, task, to, n_to_refresh);
    else if (s.kind == select_blocks)
        vote_for_blocks(s, task, to, slots, n_to_refresh);
    else
        vote_for_keys(s, task);
    auto before = [&](uint32_t head) {
        return task.head_layout[head * layout_words + layout_n_held];
    };
    const TopK shared = best_units(s, s.shared_across_heads ? before(0) : 0, m_select.votes);
    m_pool.parallel_for(a.n_kv_heads, [&](uint32_t head, int) {
        const float* votes = m_select.votes + head * m_select.stride;
        auto list = [&](const TopK& best) {
            list_head(s, to, slots, head, best);
            if (s.kind == select_blocks)
                best.each([&](uint32_t i) {
                    kept_representatives(to, a, head)[i * select_n_representatives] = kUnknown;
                });
        };
        s.shared_across_heads ? list(shared) : list(best_units(s, before(head), votes));
    });
    list_chunk(s, a, to, slots);
}

} // namespace ks
