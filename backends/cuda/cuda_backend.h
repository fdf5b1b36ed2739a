// CUDA: the kernels of kernels/cuda, one or a few launches per op. Of NVIDIA's libraries only the
// runtime is used: the others allocate memory that cannot be counted.
#pragma once

#include "backends/cuda/cuda_stream.h"
#include "kernels/common/codecs.h"
#include "kernels/cuda/ops.h"

namespace ks
{

// The kernel that attention runs, and why.
struct CudaAttention {
    enum Path { decode, prefill, general } path;
    const char *kernel, *reason;
};
CudaAttention choose_attention(const AttentionArgs& a, const CudaSlots& slots);
KernelChoice explain_attention(const CudaAttention& chosen, bool coded);

class CudaBackend : public Backend
{
public:
    ~CudaBackend() override;
    Status open(const CudaFound& device);

    DeviceInfo info() const override;
    Result<Buffer> alloc(uint64_t bytes, const std::vector<uint64_t>& split_points = {}) override;
    void free(Buffer& buffer) override;
    void upload(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes) override;
    void download(void* to, const Buffer& from, uint64_t offset, uint64_t bytes) override;
    void fill(const Buffer& to, uint64_t offset, uint64_t bytes, uint32_t word) override;
    Status sync() override { return m_stream.wait(); }
    Result<bool> time_kernels(bool on) override;
    void begin_op(uint32_t op) override { m_stream.begin_op(op); }
    std::vector<KernelTime> take_kernel_times() override { return m_stream.take_kernel_times(); }
    KernelChoice attention_choice(const AttentionArgs& a, const KvSlots& slots) const override;
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

    const CudaStream& stream() const { return m_stream; }

private:
    // The regions of the scratch. Without memory, place() only counts their bytes.
    struct Scratch {
        ActGroup* acts = nullptr;  // (max_cols / 32, n_tokens), (expert_cols / 32, expert_rows)
        uint* list = nullptr;      // the choices of each expert (ExpertsPart)
        float* partials = nullptr; // (n_tokens * n_heads, splits, 4 + head_dim)
        // (n_tokens, n_heads * head_dim) queries after RoPE, for keys to which attention applies
        // RoPE
        float* roped = nullptr;
        uint* dequantized = nullptr; // the words of a DequantScratch
        CudaSelectScratch select{};
        uint64_t bytes = 0;
    };
    Scratch place(const ScratchShape& shape, uint8_t* memory) const;
    uint32_t splits_of(const AttentionShare& share, uint32_t n_tokens, uint32_t n_heads,
                       uint32_t n_kv_heads) const;
    uint64_t n_partials(const ScratchShape& shape) const;
    uint64_t n_dequantized(const ScratchShape& shape) const;
    DequantScratch dequant_scratch(const AttentionArgs& a, const KvSlots& slots, bool all_f16,
                                   uint32_t* n_splits) const;
    ActGroup* int8_copy_of(const Tensor& y, uint32_t n_tokens, uint32_t cols, uint32_t unit);

    bool is_quantized(const float* values, uint32_t n_tokens, uint32_t cols) const
    {
        return m_quantized_input.values == values && m_quantized_input.n_tokens == n_tokens &&
               m_quantized_input.cols == cols;
    }

    CudaSlots slots_of(const AttentionArgs& a, const KvSlots& slots) const;
    CudaQueries queries_of(const AttentionArgs& a, const Queries& q, const KvSlots& slots);

    CudaFound m_device;
    CudaStream m_stream;
    Scratch m_scratch;
    // The values that m_scratch.acts has in int8. A kernel that writes the input of a matmul also
    // writes its int8 copy. Any other write to the input invalidates the copy.
    struct {
        const float* values = nullptr;
        uint32_t n_tokens = 0, cols = 0;
    } m_quantized_input;
    ScratchShape m_shape;
};

// The memory of a tensor with at least n values of 4 bytes. Null if the tensor is empty.
template <class T = float>
T* cuda_values(const Tensor& t, uint64_t n);
uint32_t* cuda_weight(const Tensor& w); // its tiles
CudaCache cuda_cache(const Tensor& cache, uint32_t head_dim);

Result<std::unique_ptr<Backend>> make_cuda_backend(const std::string& id);

} // namespace ks
