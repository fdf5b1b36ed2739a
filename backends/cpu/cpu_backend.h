// The cpu backend: reference with the hot ops overridden by vector kernels on a pool of threads.
// Activations that meet quantised weights are rounded to int8 in blocks of 32. Results do not
// depend on the number of threads.
#pragma once

#include "backends/reference/reference_backend.h"
#include "kernels/cpu/codec_rows.h"
#include "kernels/cpu/cpu_kernels.h"
#include "runtime/base/thread_pool.h"

#include <algorithm>

namespace ks
{

struct VisibleGroups;

class CpuBackend : public ReferenceBackend
{
public:
    explicit CpuBackend(const BackendOptions& options);

    DeviceInfo info() const override;
    uint64_t scratch_bytes(const ScratchShape& shape) const override;
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
    KernelChoice attention_choice(const AttentionArgs& a, const KvSlots& slots) const override;
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
    static constexpr uint32_t kMaxTokenBlock = 256;    // tokens whose sums of one tile stay in L1
    static constexpr uint32_t kMaxSplits = 32;         // of one token, whose partials have space
    static constexpr uint32_t kValuesPerThread = 8192; // of an op that touches each value once

    // The regions of the scratch.
    struct Scratch {
        ActBlock* acts = nullptr;   // blocks of tokens, each (cols / 32, tokens of the block)
        float* sums = nullptr;      // (threads, kMaxTokenBlock * max_lanes)
        float* attention = nullptr; // (threads, attention_scratch_floats)
        float* partials = nullptr;  // (n_heads, kMaxSplits, kPartialHead + head_dim), then totals
                                    // (n_heads, kPartialHead + head_dim)
        float* logits = nullptr;    // (n_heads, logits_stride) of the last single token
        uint32_t logits_stride = 0;
        uint32_t* choices = nullptr;      // (expert_rows) the choices of each expert in turn
        uint32_t* first_choice = nullptr; // (n_experts + 1) in `choices`
        uint32_t* chosen = nullptr;       // (n_experts) the experts that some token has chosen
        uint64_t bytes = 0;
        uint64_t reference_offset = 0;
    };
    // With null as `memory` it only counts the bytes.
    Scratch place(const ScratchShape& shape, uint8_t* memory) const;

    // Calls body(first_row, end_row) for parts of the rows, on several threads if there is enough
    // work.
    template <class Body>
    void for_rows(uint32_t n_rows, uint32_t row_values, const Body& body)
    {
        const uint32_t step = std::max(1u, kValuesPerThread / std::max(1u, row_values));
        if (n_rows <= 2 * step) return body(0u, n_rows);
        m_pool.parallel_for((n_rows + step - 1) / step, [&](uint32_t i, int) {
            body(i * step, std::min(n_rows, (i + 1) * step));
        });
    }
    void encode(const Tensor& to, uint64_t row, const float* x) const;
    void decode(const Tensor& from, uint64_t row, float* x) const;
    void quantize(const MatmulArgs& a, const Tensor& x, uint32_t token_block, bool half_scales);
    uint32_t group_by_expert(const ExpertsArgs& a, const uint32_t* ids);
    void quantize_choices(const ExpertsArgs& a, const Tensor& x, uint32_t n_chosen,
                          bool half_scales);
    void multiply_expert(const ExpertsArgs& a, const ExpertsTarget& target, const Tensor& x,
                         uint32_t expert, uint32_t row, MatmulTask task);
    CodedRows coded_rows(const Tensor& t) const;
    float* attention_scratch(int thread) const
    {
        return m_scratch.attention + uint64_t(thread) * attention_scratch_floats(m_shape.head_dim);
    }
    AttentionTask attention_task(const AttentionArgs& a, const Tensor* y, const Queries& q,
                                 const KvSlots& slots, const Tensor& lse) const;
    void attention_partials(const AttentionTask& task, uint32_t token, const VisibleGroups& groups,
                            uint32_t base, uint32_t n_splits);
    void attention_split(const AttentionTask& task, uint32_t token);
    void attention_chunks(const AttentionTask& task, AttentionChunkKernel kernel);
    template <class Count, class Body>
    void for_blocks(uint32_t n_heads, const Count& n_of, uint32_t block, const Body& body);
    void vote_for_pages(const SelectArgs& s, const AttentionTask& task, const Selection& to,
                        uint32_t n_to_refresh);
    template <class Count>
    void key_logits(const AttentionTask& task, uint32_t from, uint32_t block,
                    const Count& n_queried);
    void keep_representatives(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                              const KvSlots& slots, uint32_t head, uint32_t n_to_refresh);
    void vote_for_blocks(const SelectArgs& s, const AttentionTask& task, const Selection& to,
                         const KvSlots& slots, uint32_t n_to_refresh);
    void vote_for_keys(const SelectArgs& s, const AttentionTask& task);

    const CpuKernels m_kernels;
    ThreadPool m_pool;
    Scratch m_scratch;
    float m_signs[codec_max_dim]; // hadamard_sign of each dim
};

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options);

} // namespace ks
