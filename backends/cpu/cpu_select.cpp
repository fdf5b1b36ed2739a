// select on several threads: candidates in blocks, then query heads, then lists. No sum depends on
// how they are divided.
#include "backends/cpu/cpu_backend.h"
#include "kernels/cpu/select.h"

#include <algorithm>

namespace ks
{

constexpr uint32_t kSelectBlock = 1024; // candidates or values that are worth a thread, whole tiles
constexpr uint32_t kSpeakers = 256;     // of them, where they lie apart
constexpr uint32_t kPageBlock = 64;     // pages
constexpr uint32_t kNone = ~0u; // instead of a block's first representative: they are to be found

// body(head, first, n, thread) for blocks of at most `block` of the n_of(head) things of every
// head.
template <class Count, class Body>
void CpuBackend::for_blocks(uint32_t n_heads, const Count& n_of, uint32_t block, const Body& body)
{
    uint32_t most = 0;
    for (uint32_t h = 0; h < n_heads; h++) most = std::max(most, n_of(h));
    const uint32_t n_blocks = (most + block - 1) / block;
    m_pool.parallel_for(n_heads * n_blocks, [&](uint32_t i, int thread) {
        const uint32_t head = i / n_blocks, first = i % n_blocks * block, n = n_of(head);
        if (first < n) body(head, first, std::min(block, n - first), thread);
    });
}

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
    auto old = [&](uint32_t head) {
        return (before(head) - std::min(before(head), n_to_refresh)) / select_page;
    }; // pages that are as they were
    auto n_new = [&](uint32_t head) {
        return (before(head) + select_page - 1) / select_page - old(head);
    };
    for_blocks(a.n_kv_heads, n_new, kPageBlock,
               [&](uint32_t head, uint32_t first, uint32_t n, int thread) {
                   float* scratch = attention_scratch(thread);
                   for (uint32_t page = old(head) + first; n--; page++) {
                       uint16_t* low = bounds(head, page);
                       m_kernels.attention.page_bounds(
                           task, head, page * select_page,
                           std::min(before(head), (page + 1) * select_page), low, low + a.head_dim,
                           scratch);
                   }
               });
    const uint32_t skipped = s.n_first / select_page;
    auto n_queried = [&](uint32_t head) { return n_units(s, before(head)); };
    for_blocks(a.n_kv_heads, n_queried, 4 * kPageBlock,
               [&](uint32_t head, uint32_t first, uint32_t n, int) {
                   m_kernels.attention.page_votes(m_select.query + head * group * a.head_dim, group,
                                                  a.head_dim, bounds(head, skipped + first), n,
                                                  m_select.votes + head * m_select.stride + first);
               });
}

// Logits of n_queried(head) of every head's keys, from index `from` on, `block` of them by one
// thread.
template <class Count>
void CpuBackend::key_logits(const AttentionTask& task, uint32_t from, uint32_t block,
                            const Count& n_queried)
{
    const uint32_t group = task.a.n_heads / task.a.n_kv_heads;
    for_blocks(task.a.n_kv_heads, n_queried, block,
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

// As block_representatives has it, but who spoke for a block at the last choice speaks for it again
// if attention has not looked at it since.
void CpuBackend::keep_representatives(const SelectArgs& s, const AttentionArgs& a,
                                      const Selection& to, const KvSlots& slots, uint32_t head,
                                      uint32_t n_to_refresh)
{
    const uint32_t* head_layout = slots.head_layout.ptr<uint32_t>() + head * layout_words;
    const uint32_t *table = slots.table.ptr<uint32_t>() + head_layout[layout_table_begin],
                   first = head * (m_select.table.cols / m_select.head_layout.rows);
    const uint32_t before = head_layout[layout_n_held],
                   then = before - std::min(before, n_to_refresh); // at the last choice
    const uint32_t known = then > s.n_read ? then - s.n_last : 0;  // indexes that were candidates
    ChosenList list{head_layout, table, m_select.table.ptr<uint32_t>() + first};
    add_representatives(list, s, [&](const Unit& unit, uint32_t nth) {
        uint32_t* few = kept_representatives(to, a, head) + nth * select_n_representatives;
        if (unit.begin + unit.n > known || *few == kNone) {
            const TopFew found(unit.begin, unit.begin + unit.n,
                               [&](uint32_t i) { return to.scores.ptr()[table[i]]; });
            std::copy_n(found.index, found.n, few);
        }
        return few;
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
    key_logits(representatives, 0, kSpeakers, [&](uint32_t head) {
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
    auto n_queried = [&](uint32_t head) {
        return n_units(s, task.head_layout[head * layout_words + layout_n_held]);
    };
    key_logits(task, s.n_first, kSelectBlock, n_queried);
    m_pool.parallel_for(a.n_heads, [&](uint32_t h, int) {
        if (const uint32_t n = n_queried(h / group))
            m_kernels.attention.softmax(m_select.logits + h * m_select.stride, n);
    });
    const uint32_t n_sets = s.shared_across_heads ? 1 : a.n_kv_heads, voters = a.n_heads / n_sets;
    for_blocks(n_sets, n_queried, kSelectBlock, [&](uint32_t set, uint32_t first, uint32_t n, int) {
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
    task.v = nullptr;          // values are not asked for
    task.a.n_rope_on_read = 0; // and keys as they are stored
    task.a.n_clamped =
        0; // by the same queries, where representatives are asked, too, whose indexes begin anew
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
                    kept_representatives(to, a, head)[i * select_n_representatives] = kNone;
                });
        };
        s.shared_across_heads ? list(shared) : list(best_units(s, before(head), votes));
    });
    list_chunk(s, a, to, slots);
}

} // namespace ks
