// Vulkan compute for every device with Vulkan 1.1. An op is one dispatch. If a weight or cache is
// larger than a binding may be, the op is one dispatch per part.
#pragma once

#include "backends/vulkan/vulkan_pipelines.h"
#include "kernels/common/parts.h"

namespace ks
{

class VulkanBackend : public Backend
{
public:
    ~VulkanBackend() override;
    Status open(const std::string& id);

    DeviceInfo info() const override;
    uint64_t align() const override { return m_device.limits().align; }
    uint64_t range_align() const override { return align(); }
    Result<Buffer> alloc(uint64_t bytes, const std::vector<uint64_t>& split_points = {}) override;
    void free(Buffer& buffer) override;
    void upload(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes) override;
    void* mapped(const Buffer& to, uint64_t offset, uint64_t bytes) const override;
    void download(void* to, const Buffer& from, uint64_t offset, uint64_t bytes) override;
    void fill(const Buffer& to, uint64_t offset, uint64_t bytes, uint32_t word) override;
    Status sync() override;
    Result<bool> time_kernels(bool on) override;
    void begin_op(uint32_t op) override { m_stream.begin_op(op); }
    std::vector<KernelTime> take_kernel_times() override;
    KernelChoice attention_choice(const AttentionArgs& a, const KvSlots& slots) const override;
    const VulkanStream& stream() const { return m_stream; }
    uint64_t scratch_bytes(const ScratchShape& shape) const override;
    uint64_t scratch_range(const ScratchShape& shape) const override;
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
    struct Groups {
        uint64_t x, y = 1, z = 1;
    };
    template <class Push>
    void run(const char* op, const char* variant, const VulkanSpecial& special, const Push& push,
             const VulkanBinding* bindings, Groups groups, double work = 0);
    // Workgroups for n threads, limited to the device's maximum.
    Groups threads_for(uint64_t n) const;
    VulkanBinding bytes_of(const Buffer& buffer, uint64_t offset, uint64_t bytes) const;
    VulkanBinding values(const Tensor& t, uint64_t n) const; // n values of 4 bytes
    VulkanBinding optional(const Tensor& t, uint64_t n) const;
    // The rows of a weight that fit into one binding, a multiple of eight.
    uint32_t weight_rows(const Tensor& w) const;
    VulkanBinding weight_part(const Tensor& w, const RowRange& part) const;
    // The rows of a cache that fit into one binding.
    uint32_t cache_rows(const Tensor& cache) const;
    VulkanBinding cache_part(const Tensor& cache, const CachePart& part) const;

    struct Product;
    Product product_of(Format format, uint32_t n_tokens, uint32_t cols) const;
    uint64_t prepared_bytes(const ScratchShape& shape) const;
    VulkanBinding convert_input(const MatmulArgs& a, const Product& product, const Tensor& x);
    void multiply(const MatmulArgs& a, const Product& product, const MatmulTarget& target,
                  const VulkanBinding& x);

    VulkanBinding list_choices(const ExpertsArgs& a, const Tensor& ids, uint32_t max_blocks);
    void multiply_experts(const ExpertsArgs& a, const ExpertsTarget& target, const Tensor& x,
                          const VulkanBinding& list, uint32_t max_blocks);
    void scan(bool delta, const ScanArgs& a, const Tensor& y, const ScanInputs& in);

    uint32_t splits_of(uint32_t n_tokens, uint32_t n_heads, uint32_t n_kv_heads,
                       uint32_t head_dim) const;
    uint64_t partial_bytes(uint32_t n_tokens, uint32_t n_heads, uint32_t n_kv_heads,
                           uint32_t head_dim) const;
    struct Pass;
    struct SelectCall;
    SelectCall make_select_call(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                                const KvSlots& slots) const;
    void run_step(const SelectCall& c, uint32_t step, const VulkanSpecial& special,
                  const VulkanBinding& table, const VulkanBinding& keys,
                  const VulkanBinding& weights, const VulkanBinding& prepared, Groups groups);
    void run_on_keys(SelectCall& c, uint32_t step, const VulkanBinding& prepared, Groups groups);
    template <class Body>
    void for_passes(const AttentionArgs& a, const Queries& q, const KvSlots& slots,
                    uint32_t n_splits, uint32_t dequantized, const Body& body);
    uint64_t shared_bytes(const ScratchShape& shape) const;
    uint64_t dequantized_bytes(const ScratchShape& shape) const;
    uint64_t packed_queries_bytes(const ScratchShape& shape) const;
    void dequantize(const AttentionArgs& a, const KvSlots& slots, const Pass& p, VulkanBinding* k,
                    VulkanBinding* v);
    VulkanBinding queries_of(const AttentionArgs& a, const Tensor& q, const Tensor& bias,
                             const KvSlots& slots);
    VulkanBinding table_of(const AttentionArgs& a, const KvSlots& slots) const;
    VulkanBinding layout_of(const AttentionArgs& a, const KvSlots& slots) const;
    VulkanBinding angles_of(const AttentionArgs& a, const KvSlots& slots) const;
    bool reduces() const { return m_device.limits().uses & use_subgroup_reduce; }

    VulkanDevice m_device;
    VulkanStream m_stream;
    VulkanPipelines m_pipelines;
    VulkanBlock m_staging;      // for uploads and downloads
    uint64_t m_staged = 0;      // offset of the next upload in m_staging
    VulkanBlock m_dummy_buffer; // bound for tensors that an op does not have
    VulkanBinding m_scratch;
    ScratchShape m_shape;
};

// Bytes of scratch for the list of choices.
uint64_t vulkan_experts_bytes(const ScratchShape& shape);

// Bytes of scratch that select needs.
uint64_t vulkan_select_bytes(const ScratchShape& shape);

const char* vulkan_select_step(uint32_t step);

// The machine's usable devices. The other devices are added to `refused` with the reason.
// missing: why there is none, such as "no driver found".
std::vector<DeviceInfo> find_vulkan_devices(std::vector<std::string>* refused,
                                            std::string* missing);

Result<std::unique_ptr<Backend>> make_vulkan_backend(const std::string& id);

} // namespace ks
