#include "tools/bench/timed_backend.h"

#include "backends/kernel_choice.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace ks
{

static const char* const kNames[] = {"matmul qkv",
                                     "matmul output",
                                     "matmul gate, up",
                                     "matmul down",
                                     "matmul vocabulary",
                                     "matmul router",
                                     "route",
                                     "matmul experts gate, up",
                                     "matmul experts down",
                                     "matmul heads",
                                     "combine_experts",
                                     "attention",
                                     "attention_sinks",
                                     "kv_score",
                                     "select",
                                     "kv_write",
                                     "kv_read",
                                     "kv_move",
                                     "embed",
                                     "norm",
                                     "rope",
                                     "glu",
                                     "add",
                                     "scale",
                                     "copy_cols",
                                     "softcap",
                                     "conv",
                                     "delta",
                                     "ssm_scan",
                                     "argmax",
                                     "copies"};

TimedBackend::TimedBackend(std::unique_ptr<Backend> timed) : m_timed(std::move(timed))
{
    static_assert(sizeof kNames / sizeof *kNames == op_count, "every op has a name");
    reset();
}

void TimedBackend::reset()
{
    for (size_t i = 0; i < op_count; i++) m_times[i] = {kNames[i], 0, 0, 0, 0, {}};
    m_chosen.clear();
}

Status TimedBackend::start()
{
    Result<bool> by_device = m_timed->time_kernels(true);
    if (!by_device.ok()) return by_device.status();
    m_by_device = by_device.value();
    return {};
}

// The device also times the work between two tests. Turning counting on discards these times.
void TimedBackend::count(bool on)
{
    m_on = on;
    for (const KernelTime& t : m_timed->take_kernel_times()) {
        if (on) continue;
        m_times[t.op].seconds += t.seconds;
        std::vector<KernelTime>& kernels = m_times[t.op].kernels;
        auto known = std::find_if(kernels.begin(), kernels.end(),
                                  [&](const KernelTime& k) { return k.kernel == t.kernel; });
        if (known == kernels.end()) known = kernels.insert(kernels.end(), {t.op, t.kernel, 0, 0});
        known->n_dispatches += t.n_dispatches;
        known->seconds += t.seconds;
    }
}

std::vector<ChosenKernel> TimedBackend::chosen() const
{
    std::vector<ChosenKernel> all;
    for (const auto& [call, chosen] : m_chosen) all.push_back(chosen);
    return all;
}

void TimedBackend::note_choice(const AttentionArgs& a, const KvSlots& slots)
{
    const Format k = slots.coded_k ? slots.coded_k.format : slots.k.format,
                 v = slots.coded_v ? slots.coded_v.format : slots.v.format;
    const KernelChoice choice = m_timed->attention_choice(a, slots);
    ChosenKernel& noted =
        m_chosen[{{a.n_tokens, a.n_heads, a.n_kv_heads, a.head_dim, uint32_t(k), uint32_t(v)},
                  choice.reason}];
    if (noted.n_calls++) return;
    noted.call = std::to_string(a.n_tokens) + (a.n_tokens == 1 ? " token, " : " tokens, ") +
                 std::to_string(a.n_heads / a.n_kv_heads) + " queries a key head of " +
                 std::to_string(a.head_dim) + " values, keys " + codec_info(k).name + ", values " +
                 codec_info(v).name;
    if (*choice.kernel) noted.kernel = choice_text(choice);
}

std::vector<OpTime> TimedBackend::times() const
{
    std::vector<OpTime> called;
    for (const OpTime& t : m_times)
        if (t.n_calls) called.push_back(t);
    return called;
}

// On a GPU, marks the op for the device's clock. Else the host's clock times the call and a sync.
template <class Call>
void TimedBackend::time(Op op, const Call& call)
{
    if (m_by_device) {
        m_timed->begin_op(op);
        m_times[op].n_calls += m_on;
        return call();
    }
    if (!m_on) return call();
    const auto begin = std::chrono::steady_clock::now();
    call();
    Status done = m_timed->sync();
    if (!done.ok() && m_error.ok()) m_error = done;
    m_times[op].seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    m_times[op].n_calls++;
}

Status TimedBackend::sync()
{
    KS_TRY(m_timed->sync());
    return std::exchange(m_error, Status());
}

void TimedBackend::upload(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes)
{
    time(op_copies, [&] { m_timed->upload(to, offset, from, bytes); });
}

void TimedBackend::download(void* to, const Buffer& from, uint64_t offset, uint64_t bytes)
{
    time(op_copies, [&] { m_timed->download(to, from, offset, bytes); });
}

void TimedBackend::fill(const Buffer& to, uint64_t offset, uint64_t bytes, uint32_t word)
{
    time(op_copies, [&] { m_timed->fill(to, offset, bytes, word); });
}

void TimedBackend::set_scratch(const Buffer& buffer, uint64_t offset, const ScratchShape& shape)
{
    m_timed->set_scratch(buffer, offset, shape);
}

void TimedBackend::embed(const EmbedArgs& a, const Tensor& y, const Tensor& table,
                         const Tensor& ids)
{
    m_vocabulary = std::max(m_vocabulary, table.rows); // other tables are smaller
    time(op_embed, [&] { m_timed->embed(a, y, table, ids); });
}

void TimedBackend::norm(const NormArgs& a, const Tensor& y, const Tensor& x, const Tensor& w)
{
    time(op_norm, [&] { m_timed->norm(a, y, x, w); });
    if (m_input != op_delta) m_input = op_norm;
}

void TimedBackend::matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets,
                          const Tensor& x)
{
    const bool of_branch = m_input == op_attention || m_input == op_delta;
    const Op alone = of_branch                         ? op_output
                     : m_input == op_glu               ? op_down
                     : m_input == op_conv              ? op_qkv
                     : targets->w.rows == m_vocabulary ? op_vocabulary
                                                       : op_router;
    if (m_input == op_delta) m_input = op_norm;
    const Op op = n_targets == 3 ? op_qkv : n_targets == 2 ? op_gate_up : alone;
    time(op, [&] { m_timed->matmul(a, targets, n_targets, x); });
    for (int i = 0; m_on && i < n_targets; i++) {
        const Tensor& w = targets[i].w;
        m_times[op].weight_bytes += weight_bytes(w.format, w.rows, w.cols);
        m_times[op].operations += 2.0 * w.rows * w.cols * a.n_tokens;
    }
}

void TimedBackend::route(const RouteArgs& a, const Tensor& ids, const Tensor& weights,
                         const Tensor& logits, const Tensor& bias)
{
    time(op_route, [&] { m_timed->route(a, ids, weights, logits, bias); });
}

// Counts the bytes of as many experts as may be chosen.
void TimedBackend::matmul_experts(const ExpertsArgs& a, const ExpertsTarget* targets, int n_targets,
                                  const Tensor& x, const Tensor& ids)
{
    const bool all = a.per_choice && a.n_used == a.n_experts; // the matrices of all heads
    const Op op = n_targets == 2 ? op_gate_up_experts : all ? op_heads : op_down_experts;
    const uint32_t n_choices = a.n_tokens * a.n_used, n_read = std::min(a.n_experts, n_choices);
    time(op, [&] { m_timed->matmul_experts(a, targets, n_targets, x, ids); });
    for (int i = 0; m_on && i < n_targets; i++) {
        m_times[op].weight_bytes += n_read * weight_bytes(targets[i].w.format, a.rows, a.cols);
        m_times[op].operations += 2.0 * a.rows * a.cols * n_choices;
    }
}

void TimedBackend::combine_experts(const CombineExpertsArgs& a, const Tensor& y, const Tensor& z,
                                   const Tensor& weights)
{
    time(op_combine_experts, [&] { m_timed->combine_experts(a, y, z, weights); });
}

void TimedBackend::attention_sinks(const SinksArgs& a, const Tensor& y, const Tensor& lse,
                                   const Tensor& sinks)
{
    time(op_attention_sinks, [&] { m_timed->attention_sinks(a, y, lse, sinks); });
    m_input = op_attention;
}

void TimedBackend::rope(const RopeTarget* targets, int n_targets)
{
    time(op_rope, [&] { m_timed->rope(targets, n_targets); });
}

void TimedBackend::glu(const GluArgs& a, const Tensor& y, const Tensor& gate, const Tensor& up)
{
    time(op_glu, [&] { m_timed->glu(a, y, gate, up); });
    m_input = m_input == op_conv || m_input == op_delta ? op_delta : op_glu;
}

void TimedBackend::add(const AddArgs& a, const Tensor& x, const Tensor& b)
{
    time(op_add, [&] { m_timed->add(a, x, b); });
}

void TimedBackend::scale(const ScaleArgs& a, const Tensor& x, const Tensor& s)
{
    time(op_scale, [&] { m_timed->scale(a, x, s); });
}

void TimedBackend::copy_cols(const CopyColsArgs& a, const Tensor& y, const Tensor& x)
{
    time(op_copy_cols, [&] { m_timed->copy_cols(a, y, x); });
}

void TimedBackend::softcap(const SoftcapArgs& a, const Tensor& x)
{
    time(op_softcap, [&] { m_timed->softcap(a, x); });
}

void TimedBackend::kv_write(const KvWriteArgs& a, const KvPair& to, const KvPair& x,
                            const Tensor& table, const Tensor& head_layout)
{
    time(op_kv_write, [&] { m_timed->kv_write(a, to, x, table, head_layout); });
}

void TimedBackend::kv_read(const KvReadArgs& a, const Tensor& y, const Tensor& from,
                           const Tensor& rows)
{
    time(op_kv_read, [&] { m_timed->kv_read(a, y, from, rows); });
}

void TimedBackend::kv_move(const KvMoveArgs& a, const Tensor& to, const Tensor& from,
                           const Tensor& moves)
{
    time(op_kv_move, [&] { m_timed->kv_move(a, to, from, moves); });
}

void TimedBackend::attention(const AttentionArgs& a, const Tensor& y, const Queries& q,
                             const KvSlots& slots, const Tensor& lse)
{
    if (m_on) note_choice(a, slots);
    time(op_attention, [&] { m_timed->attention(a, y, q, slots, lse); });
    m_input = op_attention;
}

void TimedBackend::kv_score(const KvScoreArgs& s, const AttentionArgs& a, const Tensor& scores,
                            const Tensor& chunk_scores, const Queries& q, const KvSlots& slots,
                            const Tensor& lse)
{
    time(op_kv_score, [&] { m_timed->kv_score(s, a, scores, chunk_scores, q, slots, lse); });
}

void TimedBackend::select(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                          const Queries& q, const KvSlots& slots)
{
    time(op_select, [&] { m_timed->select(s, a, to, q, slots); });
}

void TimedBackend::conv(const ConvArgs& a, const Tensor& y, const Tensor& x, const Tensor& w,
                        const Tensor& bias, const Tensor& state)
{
    time(op_conv, [&] { m_timed->conv(a, y, x, w, bias, state); });
    m_input = op_conv;
}

void TimedBackend::delta(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    time(op_delta, [&] { m_timed->delta(a, y, in); });
    m_input = op_delta;
}

void TimedBackend::ssm_scan(const ScanArgs& a, const Tensor& y, const ScanInputs& in)
{
    time(op_ssm_scan, [&] { m_timed->ssm_scan(a, y, in); });
    m_input = op_delta;
}

void TimedBackend::argmax(const ArgmaxArgs& a, const Tensor& out, const Tensor& x)
{
    time(op_argmax, [&] { m_timed->argmax(a, out, x); });
}

} // namespace ks
