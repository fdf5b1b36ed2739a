// select: its steps, each a dispatch (shaders/select.comp).
#include "backends/vulkan/vulkan_ops.h"

#include <algorithm>

namespace ks
{

constexpr uint32_t kHeaderWords = 64; // of the scratch, whose layout is in shaders/select.comp
constexpr uint32_t kHasWeights = 1, kHasBeforeRope = 2, kNeox = 4; // flags of shaders/select.comp
enum Step : uint32_t {
    queries,
    bounds,
    representatives,
    logits,
    pages,
    votes,
    list,
    chunk,
    n_steps
};

const char* vulkan_select_step(uint32_t step)
{
    static const char* const kNames[] = {
        "queries", "bounds", "representatives", "logits", "pages", "votes", "list", "chunk"};
    static_assert(sizeof kNames / sizeof *kNames == n_steps, "a name for each step");
    return step < n_steps ? kNames[step] : "?";
}

static uint32_t stride_of(const ScratchShape& shape)
{
    return uint32_t(align_up(shape.selected_slots, 8));
}

uint64_t vulkan_select_bytes(const ScratchShape& shape)
{
    if (!shape.selected_slots) return 0;
    return 4 * (kHeaderWords + 2ull * shape.n_heads * shape.head_dim +
                uint64_t(stride_of(shape)) * (shape.n_heads + 3 * shape.n_kv_heads));
}

// Arguments and bindings that the steps share.
struct VulkanBackend::SelectCall {
    const SelectArgs& s;
    const AttentionArgs& a;
    const Selection& to;
    const KvSlots& slots;
    SelectPass pass;
    VulkanBinding scratch, head_layout, to_layout;
};

void VulkanBackend::run_step(const SelectCall& c, uint32_t step, const VulkanSpecial& special,
                             const VulkanBinding& table, const VulkanBinding& keys,
                             const VulkanBinding& weights, const VulkanBinding& prepared,
                             Groups groups)
{
    const VulkanBinding bound[] = {
        c.scratch, step == queries ? values(c.to.state, select_words) : c.head_layout,
        table,     c.to_layout,
        keys,      weights,
        prepared};
    const AttentionArgs& a = c.a;
    struct {
        SelectArgs s;
        SelectShape a;
        SelectPass pass;
    } push{c.s,
           {a.n_tokens, a.n_heads, a.n_kv_heads, a.n_rows, a.chunk_rows, a.n_rope_on_read, a.scale,
            a.softcap},
           c.pass};
    VulkanSpecial constants = special;
    constants.value[0] = step;
    constants.value[2] = c.a.head_dim;
    run("select", "", constants, push, bound, groups);
}

// Runs a step that reads keys, for every part of every pool that fits into one binding.
void VulkanBackend::run_on_keys(SelectCall& c, uint32_t step, const VulkanBinding& prepared,
                                Groups groups)
{
    const Tensor& table = c.slots.table;
    c.pass.continues = 0;
    for (uint32_t source : {pass_plain, pass_coded}) {
        const Tensor& k = source == pass_plain ? c.slots.k : c.slots.coded_k;
        const uint32_t rows = k ? cache_rows(k) : 0;
        for (uint32_t row = 0; k && row < k.rows; row += rows) {
            const CachePart part{row, std::min(rows, k.rows - row), k.rows};
            c.pass.source = source;
            c.pass.first_row = part.first_row;
            c.pass.n_rows = part.n_rows;
            c.pass.pool_rows = k.rows;
            run_step(c, step, {{0, codec_number(k.format), 0, c.slots.weights ? kHasWeights : 0}},
                     values(table, table.cols), cache_part(k, part),
                     optional(c.slots.weights, 2ull * c.slots.weights.rows), prepared, groups);
            c.pass.continues = 1;
        }
    }
}

VulkanBackend::SelectCall VulkanBackend::make_select_call(const SelectArgs& s,
                                                          const AttentionArgs& a,
                                                          const Selection& to,
                                                          const KvSlots& slots) const
{
    KS_CHECK(slots.table && a.head_dim % 2 == 0 && slots.table.cols &&
                 s.stride >= s.n_read + s.n_last / 2 + a.n_tokens,
             "select: %u read, a table of %u", s.n_read, s.stride);
    const uint64_t n_layout = uint64_t(a.n_kv_heads) * layout_words;
    SelectCall c{s, a, to, slots, {}, {}, {}, {}};
    c.pass.stride = stride_of(m_shape);
    c.pass.n_pages = to.bounds ? to.bounds.rows / (2 * a.n_kv_heads) : 0;
    c.scratch = {m_scratch.buffer, m_scratch.offset, vulkan_select_bytes(m_shape)};
    c.head_layout = values(slots.head_layout, n_layout);
    c.to_layout = values(to.head_layout, n_layout);
    return c;
}

void VulkanBackend::select(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                           const Queries& q, const KvSlots& slots)
{
    const uint64_t n_values = uint64_t(a.n_tokens) * a.n_heads * a.head_dim;
    SelectCall c = make_select_call(s, a, to, slots);
    const VulkanBinding none = optional({}, 0), table = values(slots.table, slots.table.cols);
    const VulkanBinding prepared = values(to.table, uint64_t(a.n_kv_heads) * s.stride);
    const VulkanBinding page_bounds =
        to.bounds ? bytes_of(to.bounds.buffer, to.bounds.offset, 2ull * to.bounds.rows * a.head_dim)
                  : none;
    const Groups each_head{a.n_kv_heads}, by_key{divide_up(c.pass.stride, kThreads), a.n_kv_heads};
    const VulkanSpecial special{
        {0, 0, 0, (q.q_before_rope ? kHasBeforeRope : 0) | (a.pairs == rope_neox ? kNeox : 0)}};

    run_step(c, queries, special,
             optional(a.n_rope_on_read ? slots.rope_table : Tensor(),
                      uint64_t(slots.rope_table.rows) * slots.rope_table.cols),
             q.q_before_rope ? values(q.q_before_rope, n_values) : none, values(q.q, n_values),
             values(to.query, uint64_t(a.n_heads) * a.head_dim), {1});
    if (s.kind == select_pages) {
        run_on_keys(c, bounds, page_bounds, {std::max(1u, c.pass.n_pages), a.n_kv_heads});
        run_step(c, pages, {}, table, none, none, page_bounds, by_key);
    } else {
        if (s.kind == select_blocks)
            run_step(c, representatives, {}, table, values(to.scores, to.scores.cols), none, none,
                     by_key);
        run_on_keys(c, logits, none, by_key);
        run_step(c, votes, {}, table, none, none, none, each_head);
    }
    run_step(c, list, {}, table, none, none, prepared, each_head);
    run_step(c, chunk, {}, table, none, none, prepared, {1});
}

} // namespace ks
