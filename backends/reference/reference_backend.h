// The specification: every op in its plainest form, single-threaded, with sums in float64. Buffers
// are host memory. The cpu backend derives from this class and overrides the hot ops.
#pragma once

#include "runtime/base/backend.h"

namespace ks
{

class TopK;

class ReferenceBackend : public Backend
{
public:
    explicit ReferenceBackend(const BackendOptions& options);

    DeviceInfo info() const override;
    Result<Buffer> alloc(uint64_t bytes, const std::vector<uint64_t>& split_points = {}) override;
    void free(Buffer& buffer) override;
    void give_back(const Buffer& buffer, uint64_t offset, uint64_t bytes) override;
    void upload(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes) override;
    void* mapped(const Buffer& to, uint64_t offset, uint64_t bytes) const override;
    void download(void* to, const Buffer& from, uint64_t offset, uint64_t bytes) override;
    void fill(const Buffer& to, uint64_t offset, uint64_t bytes, uint32_t word) override;
    Status sync() override { return {}; }
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

protected:
    struct SelectScratch {
        float* query = nullptr;       // (n_heads, head_dim), the mean query
        float* before_rope = nullptr; // (n_heads, head_dim), the mean query before RoPE
        float* logits = nullptr;      // (n_heads, selected_slots)
        float* votes = nullptr;       // (n_kv_heads, selected_slots)
        Tensor table;                 // (1, n_kv_heads * stride / 2) u32, block representatives
        Tensor head_layout;           // (n_kv_heads, layout_words) u32
        uint64_t stride = 0; // of logits and votes: selected_slots, rounded up to whole vectors
    };
    void check_select(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                      const Queries& q, const KvSlots& slots) const;
    void mean_query(const AttentionArgs& a, const KvSlots& slots, uint32_t n_last, const Tensor& q,
                    float* mean);
    bool query_is_similar(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                          const Queries& q, const KvSlots& slots);
    uint32_t tokens_since_choice(const SelectArgs& s, const Selection& to) const;
    bool reuses_choice(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                       const Queries& q, const KvSlots& slots);
    KvSlots block_representatives(const SelectArgs& s, const Selection& to, const KvSlots& slots,
                                  uint32_t head) const;
    void add_block_votes(const SelectArgs& s, const AttentionArgs& a, const KvSlots& slots,
                         uint32_t head, float* votes) const;
    void list_head(const SelectArgs& s, const Selection& to, const KvSlots& slots, uint32_t head,
                   const TopK& best) const;
    void list_chunk(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                    const KvSlots& slots) const;

    ScratchShape m_shape; // of set_scratch
    SelectScratch m_select;

private:
    static SelectScratch place_select(const ScratchShape& shape, uint8_t* memory, uint64_t* bytes);
    void bound_pages(const AttentionArgs& a, const Selection& to, const KvSlots& slots,
                     uint32_t head, uint32_t n_to_refresh);
    void page_votes(const AttentionArgs& a, const Selection& to, uint32_t head, uint32_t first,
                    uint32_t n);
    void select_logits(const AttentionArgs& a, const KvSlots& slots, uint32_t head, uint32_t first,
                       uint32_t n);
    void vote(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
              const KvSlots& slots, uint32_t head, float* votes);
    void add_votes(uint32_t kind, uint32_t h, uint32_t n, uint32_t n_wanted, float* votes);

    MemorySource m_system;
    MemorySource* m_memory; // the caller's, or m_system
    // Scratch. matmul: (max_cols), a row of a weight. attention: double sums (head_dim), a row of K
    // or V, a query after RoPE.
    float* m_row = nullptr;
};

std::unique_ptr<Backend> make_reference_backend(const BackendOptions& options);

// Checks that a tensor is inside its buffer and has at least n values.
void check_values(const char* op, const Tensor& t, uint64_t n);

// Checks that a cache is inside its buffer and has at least n_rows rows of head_dim values in a
// valid cache format.
void check_rows(const char* op, const Tensor& t, uint64_t n_rows, uint32_t head_dim);

// The Hadamard transform of a head in place: H D, or its inverse D H. RopeArgs and AttentionArgs
// define it.
void hadamard_head(float* head, uint32_t head_dim, bool inverse);

// Checks that a weight is inside its buffer and has whole blocks.
void check_weight(const char* op, const Tensor& w);
// Decodes one row of a weight, all cols values.
void decode_row(const Tensor& w, uint32_t row, float* out);

// Check the arguments of norm, glu, matmul_experts, conv, delta, ssm_scan, rope and kv_write.
void check_copy(const CopyColsArgs& a, const Tensor& y, const Tensor& x);
void check_norm(const NormArgs& a, const Tensor& y, const Tensor& x, const Tensor& w);
void check_glu(const GluArgs& a, const Tensor& y, const Tensor& gate, const Tensor& up);
void check_experts(const ExpertsArgs& a, const ExpertsTarget* targets, int n_targets,
                   const Tensor& x, const Tensor& ids);
void check_conv(const ConvArgs& a, const Tensor& y, const Tensor& x, const Tensor& w,
                const Tensor& bias, const Tensor& state);
void check_delta(const ScanArgs& a, const Tensor& y, const ScanInputs& in);
void check_ssm_scan(const ScanArgs& a, const Tensor& y, const ScanInputs& in);
void check_target(const RopeTarget& target);
void check_kv_write(const KvWriteArgs& a, const Tensor& to, const Tensor& x);
// The row that kv_write writes for head h of token t of the chunk.
uint32_t kv_write_row(const KvWriteArgs& a, const Tensor& table, const Tensor& head_layout,
                      uint32_t h, uint32_t t);

// The dot product in float64, as eight partial sums, which shorten the chain of dependent
// additions.
double reference_dot(const float* a, const float* b, uint32_t n);

// From /proc: the name of the processor; total and available memory in bytes.
std::string processor_name();
void host_memory(uint64_t* total_bytes, uint64_t* free_bytes);

} // namespace ks
