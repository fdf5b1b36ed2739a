// select: chooses the slots that a step reads. It runs entirely on the device.
#include "backends/cuda/cuda_backend.h"

namespace ks
{

void CudaBackend::select(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                         const Queries& q, const KvSlots& slots)
{
    const uint64_t n = uint64_t(a.n_tokens) * a.n_heads * a.head_dim,
                   n_layouts = uint64_t(a.n_kv_heads) * layout_words;
    KS_CHECK(!s.shared_across_heads || s.kind != select_pages, "select: %s",
             "pages are chosen by head");
    KS_CHECK(slots.table && s.n_first >= a.n_clamped && s.n_first + s.n_last <= s.n_read,
             "select: first %u, last %u of %u", s.n_first, s.n_last, s.n_read);
    KS_CHECK(s.kind != select_blocks || (s.unit >= 2 * select_n_representatives &&
                                         to.scores.cols >= a.n_kv_heads * a.n_rows),
             "select: blocks of %u", s.unit);
    KS_CHECK(m_scratch.select.words && a.head_dim <= codec_max_dim,
             "select: heads of %u, no scratch", a.head_dim);
    CudaSelect c{};
    c.s = s;
    c.a = a;
    c.slots = slots_of(a, slots);
    c.to.table = cuda_values<uint32_t>(to.table, uint64_t(a.n_kv_heads) * s.stride);
    c.to.head_layout = cuda_values<uint32_t>(to.head_layout, n_layouts);
    c.to.state = cuda_values<uint32_t>(to.state, select_words);
    c.to.query = cuda_values(to.query, uint64_t(a.n_heads) * a.head_dim);
    c.to.scores = cuda_values(to.scores, to.scores.cols);
    if (to.bounds) c.to.bounds = to.bounds.ptr<uint16_t>();
    c.to.n_pages = to.bounds.rows / (2 * a.n_kv_heads);
    c.scratch = m_scratch.select;
    c.q = cuda_values(q.q, n);
    c.q_before_rope = cuda_values(q.q_before_rope, n);
    m_stream.run({"select", slots.coded_k ? slots.coded_k.format : slots.k.format}, select_launch,
                 c);
}

} // namespace ks
