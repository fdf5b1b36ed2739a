// The interface between the model and a device: buffers and a small closed set of fused ops. An op
// only enqueues work: it never allocates and never fails. A wrong shape is a bug and aborts. Device
// errors are reported by sync().
#pragma once

#include "kernels/common/args.h"
#include "runtime/base/arena.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor.h"

#include <memory>
#include <string>
#include <vector>

namespace ks
{

constexpr uint32_t kPartRows = 512; // of a weight: whole tiles

struct DeviceInfo {
    std::string id;                      // the value of --device: "cpu", "reference", "vulkan:0"
    std::string name;                    // "AMD EPYC, 2 threads, avx2"
    std::string backend;                 // "cpu"
    uint64_t memory_bytes;               // total
    uint64_t free_bytes;                 // default budget: bytes that are free now
    bool unified;                        // device and host memory are one pool
    std::vector<std::string> paths = {}; // the code paths in use and why, as text for people

    bool selects = true;       // the device implements the op select
    bool ropes_on_read = true; // attention supports n_rope_on_read (RoPE as keys are read)
    bool adds_bias = true;     // attention supports n_bias_dims (a key bias by position)
    bool ablations = false;    // select supports select_hard and select_sum
    // Most bytes of a tensor that an op sees whole; 0: any. Of weights ops see parts of
    // kPartRows rows, of pools of a cache parts of any size.
    uint64_t range_bytes = 0;
};

struct HeadShape {
    uint32_t n_heads, n_kv_heads, head_dim;
    bool operator==(const HeadShape& b) const
    {
        return n_heads == b.n_heads && n_kv_heads == b.n_kv_heads && head_dim == b.head_dim;
    }
};

// The largest shapes that a session passes to the ops, known before anything is allocated.
struct ScratchShape {
    uint32_t n_tokens = 0; // in one chunk
    uint32_t max_cols = 0; // of any weight
    uint32_t n_heads = 0;
    uint32_t n_kv_heads = 0;
    uint32_t head_dim = 0;
    uint32_t scored_slots = 0;         // per head, in layers whose attention also feeds kv_score
    uint32_t selected_slots = 0;       // per head, in layers that read only selected slots
    uint32_t coded_slots = 0;          // per head, in layers with coded slots
    std::vector<HeadShape> heads = {}; // of the layers that attend; empty: the maxima
    uint32_t n_experts = 0;
    uint32_t expert_rows = 0; // of x and y of the experts' products: tokens times chosen experts
    uint32_t expert_cols = 0; // of any expert's weight

    std::vector<HeadShape> head_shapes() const
    {
        return heads.empty() ? std::vector<HeadShape>{{n_heads, n_kv_heads, head_dim}} : heads;
    }
};

// One of up to three products that share an input: Q, K and V, or gate and up.
struct MatmulTarget {
    Tensor y;        // (n_tokens, rows)
    Tensor w;        // (rows, cols), tiles
    float scale = 1; // of the product
};

// One of up to two products of the chosen experts that share an input: gate and up.
struct ExpertsTarget {
    Tensor y;      // (n_tokens * n_used, rows), the chosen experts of a token in their order
    Tensor w;      // (n_experts * rows, cols), tiles; rows is a multiple of tile_rows
    Tensor scales; // (1, n_experts) f32, of the products; empty: ones
    Tensor bias;   // (n_experts, rows) f32; empty: none
};

// One tensor of heads for the op rope: queries, keys or values.
struct RopeTarget {
    RopeArgs a;
    Tensor y, x; // (n_tokens, n_heads * head_dim); y may be x
    // (n_tokens, n_rot) or (n_groups, n_rot): the cos of pair i at [2i], its sin at [2i + 1]; empty
    // if n_rot is 0.
    Tensor angles;
};

struct KvPair {
    Tensor k, v;
};

// The slots of one layer as attention reads them. kernels/common/slots.h defines index, slot and
// row, and where an index lies.
struct KvSlots {
    Tensor k, v; // (n_kv_heads * n_rows, head_dim) f16 or f32: the plain pool
    // (n_kv_heads * n_coded, head_dim) of any codec: the coded pool; empty: every slot is plain.
    Tensor coded_k, coded_v;
    Tensor table;       // (1, slots) u32: slots by index, head after head; empty: a ring
    Tensor weights;     // (slots, 2) f32, by slot: log-weights a and b; empty: zeros
    Tensor head_layout; // (n_kv_heads, layout_words) u32
    // (1, slots) u32: positions in the order of `table` and right behind it; only if keys are
    // stored without their bias.
    Tensor positions;
    Tensor
        bias_phasors; // (phasor_digits * phasor_base, n_bias_dims): phasors (kernels/common/args.h)
    Tensor rope_table; // (indexes, n_rope_on_read) RoPE angles; only if keys are stored before RoPE
    // (n_kv_heads * chunk_rows, head_dim) like k and v: the chunk, only if it is staged.
    Tensor chunk_k, chunk_v;
    uint32_t n_before = ~0u; // upper bound of the indexes per head before the chunk, if known
};

// The queries of a chunk, each (n_tokens, n_heads * head_dim).
struct Queries {
    Tensor q;
    Tensor q_clamped; // at the clamped position, for the first n_clamped indexes; empty if none
    // Select compares these with earlier queries; empty: q.
    Tensor q_before_rope = {};
    // Products of q and q_clamped with the key bias, pair by pair, if keys are stored without it.
    Tensor bias = {}, bias_clamped = {};
};

// The inputs of delta or ssm_scan, and the state that it updates.
struct ScanInputs {
    Tensor x;       // (n_tokens, scan_cols())
    Tensor dt;      // (n_tokens, n_heads), before the bias and softplus
    Tensor beta;    // (n_tokens, n_heads), before the sigmoid; only of delta
    Tensor a;       // (1, n_heads)
    Tensor d;       // (1, n_heads); only of ssm_scan
    Tensor dt_bias; // (1, n_heads)
    Tensor state;   // (n_heads * head_dim, state_dim) f32
};

// What a step reads of a layer after select: a table and a head layout, which replace the ones in
// KvSlots, and the state of select.
struct Selection {
    Tensor table; // (1, n_kv_heads * stride) u32: the selected slots by ascending index, then the
                  // slots of the chunk
    Tensor head_layout; // (n_kv_heads, layout_words) u32
    Tensor query;       // (1, n_heads * head_dim): mean query of the last selection
    Tensor state;       // (1, select_words) u32
    Tensor scores;      // (1, slots) attention scores by slot; only if blocks are selected
    // (n_kv_heads * n_pages * 2, head_dim) f16: minimum and maximum of the keys of each page.
    Tensor bounds;
    // (1, n_kv_heads * blocks * select_n_representatives) u32: indexes of the representative keys
    // of each block. Attention changes only the entries of blocks that it reads, so a backend may
    // keep the others here.
    Tensor representatives;
};

// The device time of one kernel within one op, summed over its dispatches.
struct KernelTime {
    uint32_t op;        // the argument of begin_op()
    std::string kernel; // its name and its specialisation: "matvec q8_0 1 16 1"
    uint64_t n_dispatches;
    double seconds;
};

// The kernel that a backend chooses for a call, and why. The texts are static.
struct KernelChoice {
    const char* kernel = ""; // "attention_decode"; empty: there is no choice
    const char* variant = "";
    const char* reason = "";
};

class Backend
{
public:
    virtual ~Backend() = default;

    virtual DeviceInfo info() const = 0;
    // Alignment of tensors in bytes, a multiple of kRegionAlign. Unlike info(), it does not query a
    // driver.
    virtual uint64_t align() const { return kRegionAlign; }
    // Of the rows of a tensor that an op gets.
    virtual uint64_t range_align() const { return 16; }
    // split_points, ascending: offsets at which the buffer may be split into several allocations.
    virtual Result<Buffer> alloc(uint64_t bytes,
                                 const std::vector<uint64_t>& split_points = {}) = 0;
    virtual void free(Buffer& buffer) = 0;
    // The bytes are not used until they are written again.
    virtual void give_back(const Buffer&, uint64_t /*offset*/, uint64_t /*bytes*/) {}
    virtual void upload(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes) = 0;
    // Where the host may write these bytes, which no enqueued work uses; null: only by upload().
    virtual void* mapped(const Buffer&, uint64_t /*offset*/, uint64_t /*bytes*/) const
    {
        return nullptr;
    }
    // Waits for all enqueued work.
    virtual void download(void* to, const Buffer& from, uint64_t offset, uint64_t bytes) = 0;
    virtual void fill(const Buffer& to, uint64_t offset, uint64_t bytes, uint32_t word) = 0;
    virtual Status sync() = 0;

    // Switches kernel timing by the device clock on or off. Timing needs no sync between ops and is
    // off by default. False: ops are done when they return, so the host clock can time them. Error:
    // the device has no clock.
    virtual Result<bool> time_kernels(bool) { return false; }
    // Assigns all commands enqueued from now on to an op.
    virtual void begin_op(uint32_t) {}
    // Waits for all enqueued work and returns the times since the last call.
    virtual std::vector<KernelTime> take_kernel_times() { return {}; }
    // The kernel that attention() runs for these arguments.
    virtual KernelChoice attention_choice(const AttentionArgs&, const KvSlots&) const { return {}; }

    // Device memory that the ops need, a region of the plan. It depends on tiles and splits, never
    // on the context.
    virtual uint64_t scratch_bytes(const ScratchShape& shape) const = 0;
    // Bytes of its largest part that an op sees whole.
    virtual uint64_t scratch_range(const ScratchShape&) const { return 0; }
    virtual void set_scratch(const Buffer& buffer, uint64_t offset, const ScratchShape& shape) = 0;

    // y[t] = table[ids[t]] * scale.
    // y (n_tokens, dim), table (vocab, dim) tiles, ids (1, n_tokens) u32
    virtual void embed(const EmbedArgs& a, const Tensor& y, const Tensor& table,
                       const Tensor& ids) = 0;
    // y[r] = norm(x[first_row + r]) * w[r % w_rows]: RMSNorm, or LayerNorm without a bias. y may be
    // x. w (w_rows, dim) f32
    virtual void norm(const NormArgs& a, const Tensor& y, const Tensor& x, const Tensor& w) = 0;
    // y = scale (x W^T), or y += scale (x W^T). x (n_tokens, cols); `a` holds the rows of the first
    // target
    virtual void matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets,
                        const Tensor& x) = 0;
    // Chooses experts. logits (n_tokens, n_experts), bias (1, n_experts) or empty. ids (n_tokens,
    // n_used) u32: experts by falling score. weights (n_tokens, n_used): probabilities of the
    // chosen, without bias.
    virtual void route(const RouteArgs& a, const Tensor& ids, const Tensor& weights,
                       const Tensor& logits, const Tensor& bias) = 0;
    // y[t, j] = scales[e] W[e] x + bias[e] for e = ids[t, j], where x is x[t] or x[t, j]. Reads
    // only the weights of chosen experts.
    virtual void matmul_experts(const ExpertsArgs& a, const ExpertsTarget* targets, int n_targets,
                                const Tensor& x, const Tensor& ids) = 0;
    // y[t] += scale * (weights[t, 0] z[t, 0] + weights[t, 1] z[t, 1] + ...), in this order.
    // y (n_tokens, dim), z (n_tokens * n_used, dim), weights (n_tokens, n_used)
    virtual void combine_experts(const CombineExpertsArgs& a, const Tensor& y, const Tensor& z,
                                 const Tensor& weights) = 0;
    // Applies RoPE: (u, v) becomes (u cos - v sin, u sin + v cos). Pair i of a head is (2i, 2i + 1)
    // or (i, i + n_rot / 2). The op also applies the Hadamard transform where a target asks for it.
    // All backends produce the same bits: butterflies at distances 1, 2, 4, ... in f32, then a
    // multiplication by hadamard_scale. No target reads what another target writes.
    virtual void rope(const RopeTarget* targets, int n_targets) = 0;
    // y[i] = act(gate[i / gate_group]) * up[i]. y may be gate, if gate_group is 1, or up. Not
    // gated: y[i] = act(gate[i]), `up` is empty. gate (n / gate_group), up (n)
    virtual void glu(const GluArgs& a, const Tensor& y, const Tensor& gate, const Tensor& up) = 0;
    // x += b
    virtual void add(const AddArgs& a, const Tensor& x, const Tensor& b) = 0;
    // x[r] *= s[r]. x (rows, cols), s (1, rows) f32
    virtual void scale(const ScaleArgs& a, const Tensor& x, const Tensor& s) = 0;
    // y[r, y_first + i] = x[r, x_first + i] for i < cols. y is not x.
    virtual void copy_cols(const CopyColsArgs& a, const Tensor& y, const Tensor& x) = 0;
    virtual void softcap(const SoftcapArgs& a, const Tensor& x) = 0;
    // Stores the heads of the chunk's tokens, encoded if `to` is coded. `to` is one pool, whose
    // rows the slots in `table` are, or the buffer of the staged chunk. Codecs with a Hadamard
    // transform expect transformed x. Either k or v may be empty. to (n_kv_heads * n_rows,
    // head_dim) f32, f16 or coded, x (n_tokens, n_kv_heads * head_dim)
    virtual void kv_write(const KvWriteArgs& a, const KvPair& to, const KvPair& x,
                          const Tensor& table, const Tensor& head_layout) = 0;
    // y[i] = row rows[i] of one pool as f32; the Hadamard transform is not undone.
    // y (n, head_dim), rows (1, n) u32
    virtual void kv_read(const KvReadArgs& a, const Tensor& y, const Tensor& from,
                         const Tensor& rows) = 0;
    // Copies rows of one pool to rows of another. Coded rows are copied byte by byte; f32 and f16
    // rows are encoded if `to` is coded. A group moves as a whole and in order. moves (n_moves, 2)
    // u32: from row, to row. No row occurs in two moves.
    virtual void kv_move(const KvMoveArgs& a, const Tensor& to, const Tensor& from,
                         const Tensor& moves) = 0;
    // y (n_tokens, n_heads * head_dim). The keys and values of the chunk are already written. A
    // token attends to itself and to earlier tokens. Overwritten rows of a ring are masked. With
    // weights, a slot counts exp(a) times in the numerator and exp(b) times in the denominator. lse
    // (n_tokens, n_heads): log2 of the denominator; may be empty.
    virtual void attention(const AttentionArgs& a, const Tensor& y, const Queries& q,
                           const KvSlots& slots, const Tensor& lse) = 0;
    // Adds e^sinks[h] to the denominators of the last computed attention: y *= 2^(lse - lse'), lse
    // = lse'. y (n_tokens, n_heads * head_dim), lse (n_tokens, n_heads), sinks (1, n_heads)
    virtual void attention_sinks(const SinksArgs& a, const Tensor& y, const Tensor& lse,
                                 const Tensor& sinks) = 0;
    // Attention scores: column sums of the last computed attention, over the queries and the query
    // heads of each KV head. scores (1, slots) by slot; chunk_scores (1, n_kv_heads * chunk_rows)
    // by row of the staged chunk.
    virtual void kv_score(const KvScoreArgs& s, const AttentionArgs& a, const Tensor& scores,
                          const Tensor& chunk_scores, const Queries& q, const KvSlots& slots,
                          const Tensor& lse) = 0;
    // Selects the slots that attention reads. The layer must have a table; `to` replaces its table
    // and layout.
    virtual void select(const SelectArgs& s, const AttentionArgs& a, const Selection& to,
                        const Queries& q, const KvSlots& slots) = 0;
    // Recurrent ops update a state token by token, so results do not depend on the chunks.
    // conv is causal, column by column: y[t] = act(sum of w[j] x[t + j - kernel + 1] + bias). Rows
    // before the chunk are in the state, which then holds the last inputs. y is not x.
    // y, x (n_tokens, cols), w (kernel, cols), bias (1, cols) or empty, state (kernel - 1, cols)
    virtual void conv(const ConvArgs& a, const Tensor& y, const Tensor& x, const Tensor& w,
                      const Tensor& bias, const Tensor& state) = 0;
    // The gated delta rule. With q = l2norm(q) / sqrt(state_dim) and k = l2norm(k), row i of a
    // head's state is M = e^(a softplus(dt + dt_bias)) M, then M += sigmoid(beta) (v[i] - M k) k,
    // and y[i] = M q. y (n_tokens, n_heads * head_dim)
    virtual void delta(const ScanArgs& a, const Tensor& y, const ScanInputs& in) = 0;
    // Mamba 2. With s = softplus(dt + dt_bias), row i is M = e^(a s) M + s x[i] B, and
    // y[i] = M C + d x[i]. y (n_tokens, n_heads * head_dim)
    virtual void ssm_scan(const ScanArgs& a, const Tensor& y, const ScanInputs& in) = 0;
    // out (1, rows) u32; on ties the lower index
    virtual void argmax(const ArgmaxArgs& a, const Tensor& out, const Tensor& x) = 0;
};

struct BackendOptions {
    std::string device; // empty: the best device
    int n_threads = 0;  // 0: one per core
    // For backends whose device memory is host memory; null: the operating system.
    MemorySource* memory = nullptr;
};

// Both are defined in backends/registry.cpp, the only file that knows which backends exist.
Result<std::unique_ptr<Backend>> open_backend(const BackendOptions& options);
// The best device first. `refused` receives the devices that exist but cannot be used: id, name and
// reason.
std::vector<DeviceInfo> list_devices(std::vector<std::string>* refused = nullptr);

struct BackendState {
    std::string name; // as in a device's id
    bool built_in;
    std::string missing; // why it has no device here, such as "no driver found"; empty: it has one
    std::string kernels; // the sets of kernels that are built in, where there are several
};
std::vector<BackendState> list_backends(); // all that a build may have

} // namespace ks
