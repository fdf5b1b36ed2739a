// A backend that wraps another one and sums up the time of each op. On GPUs the device's clock
// times the kernels, which stay batched. Elsewhere the host's clock times each call.
#pragma once

#include "runtime/base/backend.h"

#include <array>
#include <map>
#include <string>

namespace ks
{

// The calls of one op. The name of a matmul includes its matrix.
struct OpTime {
    const char* name;
    uint64_t n_calls;
    double seconds;
    uint64_t weight_bytes;           // read by matmuls
    double operations;               // of matmuls; a multiply-add counts as two
    std::vector<KernelTime> kernels; // run for this op; only on devices with a clock
};

// The attention kernel that was chosen for calls of one shape and format.
struct ChosenKernel {
    std::string call;   // "1 token, 3 queries a key head of 64 values, keys q8, values q8"
    std::string kernel; // "attention_decode: at most 4 tokens"
    uint64_t n_calls;
};

class TimedBackend : public Backend
{
public:
    explicit TimedBackend(std::unique_ptr<Backend> timed);

    // Uses the device's clock, if it is a GPU. Fails if that GPU has no clock; then nothing is
    // timed.
    Status start();
    bool by_device() const { return m_by_device; }
    void reset();
    void count(bool on);               // initially off
    std::vector<OpTime> times() const; // of the ops called since reset()
    std::vector<ChosenKernel> chosen() const;

    DeviceInfo info() const override { return m_timed->info(); }
    uint64_t align() const override { return m_timed->align(); }
    uint64_t range_align() const override { return m_timed->range_align(); }
    Result<Buffer> alloc(uint64_t bytes, const std::vector<uint64_t>& starts) override
    {
        return m_timed->alloc(bytes, starts);
    }
    void free(Buffer& buffer) override { m_timed->free(buffer); }
    void* mapped(const Buffer& to, uint64_t offset, uint64_t bytes) const override
    {
        return m_timed->mapped(to, offset, bytes);
    }
    void upload(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes) override;
    void download(void* to, const Buffer& from, uint64_t offset, uint64_t bytes) override;
    void fill(const Buffer& to, uint64_t offset, uint64_t bytes, uint32_t word) override;
    Status sync() override;
    uint64_t scratch_bytes(const ScratchShape& shape) const override
    {
        return m_timed->scratch_bytes(shape);
    }
    void set_scratch(const Buffer& buffer, uint64_t offset, const ScratchShape& shape) override;

    void embed(const EmbedArgs& a, const Tensor& y, const Tensor& table,
               const Tensor& ids) override;
    void norm(const NormArgs& a, const Tensor& y, const Tensor& x, const Tensor& w) override;
    void matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets,
                const Tensor& x) override;
    void route(const RouteArgs& a, const Tensor& ids, const Tensor& weights, const Tensor& logits,
               const Tensor& bias) override;
    void matmul_experts(const ExpertsArgs& a, const ExpertsTarget* targets, int n_targets,
                        const Tensor& x, const Tensor& ids) override;
    void combine_experts(const CombineExpertsArgs& a, const Tensor& y, const Tensor& z,
                         const Tensor& weights) override;
    void rope(const RopeTarget* targets, int n_targets) override;
    void glu(const GluArgs& a, const Tensor& y, const Tensor& gate, const Tensor& up) override;
    void add(const AddArgs& a, const Tensor& x, const Tensor& b) override;
    void scale(const ScaleArgs& a, const Tensor& x, const Tensor& s) override;
    void copy_cols(const CopyColsArgs& a, const Tensor& y, const Tensor& x) override;
    void softcap(const SoftcapArgs& a, const Tensor& x) override;
    void kv_write(const KvWriteArgs& a, const KvPair& to, const KvPair& x, const Tensor& table,
                  const Tensor& head_layout) override;
    void kv_read(const KvReadArgs& a, const Tensor& y, const Tensor& from,
                 const Tensor& rows) override;
    void kv_move(const KvMoveArgs& a, const Tensor& to, const Tensor& from,
                 const Tensor& moves) override;
    void attention(const AttentionArgs& a, const Tensor& y, const Queries& q, const KvSlots& slots,
                   const Tensor& lse) override;
    void attention_sinks(const SinksArgs& a, const Tensor& y, const Tensor& lse,
                         const Tensor& sinks) override;
    void kv_score(const KvScoreArgs& s, const AttentionArgs& a, const Tensor& scores,
                  const Tensor& chunk_scores, const Queries& q, const KvSlots& slots,
                  const Tensor& lse) override;
    void select(const SelectArgs& s, const AttentionArgs& a, const Selection& to, const Queries& q,
                const KvSlots& slots) override;
    void conv(const ConvArgs& a, const Tensor& y, const Tensor& x, const Tensor& w,
              const Tensor& bias, const Tensor& state) override;
    void delta(const ScanArgs& a, const Tensor& y, const ScanInputs& in) override;
    void ssm_scan(const ScanArgs& a, const Tensor& y, const ScanInputs& in) override;
    void argmax(const ArgmaxArgs& a, const Tensor& out, const Tensor& x) override;

private:
    enum Op {
        op_qkv,
        op_output,
        op_gate_up,
        op_down,
        op_vocabulary,
        op_router,
        op_route,
        op_gate_up_experts,
        op_down_experts,
        op_heads,
        op_combine_experts,
        op_attention,
        op_attention_sinks,
        op_kv_score,
        op_select,
        op_kv_write,
        op_kv_read,
        op_kv_move,
        op_embed,
        op_norm,
        op_rope,
        op_glu,
        op_add,
        op_scale,
        op_copy_cols,
        op_softcap,
        op_conv,
        op_delta,
        op_ssm_scan,
        op_argmax,
        op_copies,
        op_count
    };
    template <class Call>
    void time(Op op, const Call& call);
    void note_choice(const AttentionArgs& a, const KvSlots& slots);

    std::unique_ptr<Backend> m_timed;
    std::array<OpTime, op_count> m_times;
    // The key: tokens, heads, formats, and the reason, which may differ between layers.
    std::map<std::pair<std::array<uint32_t, 6>, const char*>, ChosenKernel> m_chosen;
    bool m_on = false, m_by_device = false;
    // The op whose output a matmul with one target reads; op_delta: all of a recurrent branch.
    Op m_input = op_norm;
    uint32_t m_vocabulary = 0; // rows of the embedding
    Status m_error;            // the first error since the last sync()
};

} // namespace ks
