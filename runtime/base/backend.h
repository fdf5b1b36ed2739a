// The seam between the model and a device: buffers and a small closed set of fused ops. Ops enqueue; they never
// allocate and never fail: a wrong shape is a bug and asserts, a device's error comes out of sync().
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

struct DeviceInfo {
    std::string id;                      // what --device takes: "cpu", "reference", "vulkan:0"
    std::string name;                    // "AMD EPYC, 2 threads, avx2"
    std::string backend;                 // "cpu"
    uint64_t memory_bytes;               // total
    uint64_t free_bytes;                 // what a budget may take now
    bool unified;                        // device and host memory are one pool
    std::vector<std::string> paths = {}; // which ways it goes, and why: for people

    bool selects = true;    // it has the op select
    bool turns_keys = true; // attention takes n_turn
    bool adds_bias = true;  // attention takes n_wave
    bool groups = true;     // keys can have a codec of groups
};

// The largest shapes that a session will ask of the ops, known before anything is allocated.
struct ScratchShape {
    uint32_t n_tokens = 0; // in one chunk
    uint32_t max_cols = 0; // of any weight
    uint32_t n_heads = 0;
    uint32_t n_kv_heads = 0;
    uint32_t head_dim = 0;
    uint32_t scored_slots = 0;   // per head, in layers whose attention is asked for scores
    uint32_t selected_slots = 0; // per head, in layers that read some of their slots
    uint32_t coded_slots = 0;    // per head, in layers whose slots are not all f16
    bool grouped = false;        // attention is asked for groups of indexes
};

// Up to three products that share their input: Q, K and V, or gate and up.
struct MatmulTarget {
    Tensor y; // (n_tokens, rows)
    Tensor w; // (rows, cols), tiles
};

// What rope makes of one tensor of heads: queries, keys or values.
struct RopeTarget {
    RopeArgs a;
    Tensor y, x;   // (n_tokens, n_heads * head_dim); y may be x
    Tensor angles; // (n_tokens, n_rot), or (n_groups, n_rot): pair i's cos at [2i], its sin at [2i + 1]; none where n_rot is 0
};

struct KvPair {
    Tensor k, v;
};

// The slots of one layer, as attention reads them (kernels/common/args.h says where an index lies).
struct KvSlots {
    Tensor k, v;             // (n_kv_heads * n_rows, head_dim) f16 or f32
    Tensor coded_k, coded_v; // (n_kv_heads * n_coded, head_dim) of any codec; none: every slot is plain
    Tensor table;            // (1, slots) u32, slots counted over all heads, the plain ones first; none: a ring
    Tensor weights;          // (slots, 2) f32: the log-weights a and b of each slot; none: zeros
    Tensor view;             // (n_kv_heads, view_words) u32
    Tensor positions;        // (1, slots) u32 in the text, by index as `table`; where keys are stored without their bias
    Tensor waves;            // (wave_digits * wave_base, n_wave)
    Tensor turns;            // (indexes, n_turn) as angles of rope; where keys are stored as before RoPE
    Tensor chunk_k, chunk_v; // (n_kv_heads * chunk_rows, head_dim) as k and v, where the chunk is staged
    uint32_t n_before = ~0u; // indexes that a head has before the chunk at most, where that is known
};

// A chunk's queries, (n_tokens, n_heads * head_dim).
struct Queries {
    Tensor q;
    Tensor far;                      // what the first n_far indexes are seen by; none where n_far is 0
    Tensor plain = {};               // before RoPE, what select compares with earlier ones; none: q
    Tensor bias = {}, bias_far = {}; // q and far times the keys' bias, where keys are stored without it
};

// What a step reads of a layer's slots: a table and a view that stand for those of KvSlots, and what select keeps between calls.
struct Selection {
    Tensor table;  // (1, n_kv_heads * stride) u32: the chosen slots in the order of their indexes, then the chunk's own
    Tensor view;   // (n_kv_heads, view_words) u32
    Tensor query;  // (1, n_heads * head_dim) the mean query that the choice was made for
    Tensor state;  // (1, select_words) u32
    Tensor signal; // (1, n_kv_heads * n_rows) by row, of KvScore: where blocks are chosen
    Tensor bounds; // (n_kv_heads * n_pages * 2, head_dim) f16: the least and the largest values of the keys of each page
    // (1, n_kv_heads * blocks * select_few) u32: indexes of the keys that speak for each block. Attention changes only those of what it
    // reads; a backend may keep the others here.
    Tensor speakers;
};

// Time that the device spent on one kernel within one op, summed over its dispatches.
struct KernelTime {
    uint32_t op;        // as begin_op() named it
    std::string kernel; // its name and what it was specialised for: "matvec q8_0 1 16 1"
    uint64_t n_dispatches;
    double seconds;
};

// The kernel that a backend chooses for a call, and why; texts that live as long as the program.
struct KernelChoice {
    const char* kernel = ""; // "attention_decode"; empty: there is nothing to choose
    const char* variant = "";
    const char* reason = "";
};

class Backend
{
public:
    virtual ~Backend() = default;

    virtual DeviceInfo info() const = 0;
    // Bytes at whose multiples tensors begin; a multiple of kRegionAlign. Unlike info() it asks no driver.
    virtual uint64_t align() const { return kRegionAlign; }
    // starts, in order: where it may be put together from several blocks. What lies between two of them stays together.
    virtual Result<Buffer> alloc(uint64_t bytes, const std::vector<uint64_t>& starts = {}) = 0;
    virtual void free(Buffer& buffer) = 0;
    virtual void upload(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes) = 0;
    virtual void download(void* to, const Buffer& from, uint64_t offset, uint64_t bytes) = 0; // waits for what was enqueued
    virtual void fill(const Buffer& to, uint64_t offset, uint64_t bytes, uint32_t word) = 0;
    virtual Status sync() = 0;

    // Switches the timing of kernels by the device's clock, which needs no sync between ops. It is off at first, and then costs nothing.
    // False: ops are done when they return, so the host's clock times them. An error: the device has no clock.
    virtual Result<bool> time_kernels(bool) { return false; }
    // Names the op that the commands enqueued from now on belong to.
    virtual void begin_op(uint32_t) {}
    // Waits for what was enqueued, and returns the times since the last call.
    virtual std::vector<KernelTime> take_kernel_times() { return {}; }
    // What attention() runs for these arguments.
    virtual KernelChoice attention_choice(const AttentionArgs&, const KvSlots&) const { return {}; }

    // Device memory that the ops themselves need, a region of the plan; depends on tiles and splits, never on context.
    virtual uint64_t scratch_bytes(const ScratchShape& shape) const = 0;
    virtual void set_scratch(const Buffer& buffer, uint64_t offset, const ScratchShape& shape) = 0;

    // y[t] = table[ids[t]] * scale.          y (n_tokens, dim), table (vocab, dim) tiles, ids (1, n_tokens) u32
    virtual void embed(const EmbedArgs& a, const Tensor& y, const Tensor& table, const Tensor& ids) = 0;
    // y[r] = x[first + r] / its rms * w.     y may be x. w (1, dim) f32
    virtual void rmsnorm(const RmsnormArgs& a, const Tensor& y, const Tensor& x, const Tensor& w) = 0;
    // y = x W^T, or y += x W^T.              x (n_tokens, cols); args hold the first target's rows
    virtual void matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets, const Tensor& x) = 0;
    // Turns pairs by angles: (u, v) becomes (u cos - v sin, u sin + v cos). Pair i of a head is (2i, 2i + 1) or (i, i + n_rot / 2).
    // Where heads are rotated, too, all backends make the same bits of the same pairs: a block's sums and differences are of
    // neighbours 1, 2, 4, ... apart, in f32, and then times rotate_scale. No target reads what another one writes.
    virtual void rope(const RopeTarget* targets, int n_targets) = 0;
    // y = act(gate) * up.                    y may be gate
    virtual void glu(const GluArgs& a, const Tensor& y, const Tensor& gate, const Tensor& up) = 0;
    // x += b
    virtual void add(const AddArgs& a, const Tensor& x, const Tensor& b) = 0;
    virtual void softcap(const SoftcapArgs& a, const Tensor& x) = 0;
    // Stores the heads of the chunk's tokens, encoding them if `to` is coded; rotated codecs want x rotated. One of a pair may be none.
    // to (n_kv_heads * rows, head_dim) f32, f16 or coded, x (n_tokens, n_kv_heads * head_dim)
    virtual void kv_write(const KvWriteArgs& a, const KvPair& to, const KvPair& x, const Tensor& table, const Tensor& view) = 0;
    // y[i] = row rows[i] as f32, still rotated if it was. y (n, head_dim), rows (1, n) u32
    virtual void kv_read(const KvReadArgs& a, const Tensor& y, const Tensor& from, const Tensor& rows) = 0;
    // Copies rows as they are, their bytes if they are coded; rows of f32 and f16 are encoded where `to` is coded.
    // Groups move as a whole, to the rows of one in order. moves (n_moves, 2) u32: from and to, none of which is another's
    virtual void kv_move(const KvMoveArgs& a, const Tensor& to, const Tensor& from, const Tensor& moves) = 0;
    // y (n_tokens, n_heads * head_dim). The chunk's keys and values are written already. A token sees itself and
    // what is before it; rows of a ring that were written again are not there. With weights a slot counts exp(a) times in the
    // numerator and exp(b) times in the denominator. lse (n_tokens, n_heads): log of the denominator, base 2; may be none
    virtual void attention(const AttentionArgs& a, const Tensor& y, const Queries& q, const KvSlots& slots, const Tensor& lse) = 0;
    // Column sums of the attention that was computed last, over the queries and the query heads of each KV head: signal
    // (1, slots), and where the chunk is staged chunk_signal (1, n_kv_heads * chunk_rows)
    virtual void kv_score(const KvScoreArgs& s, const AttentionArgs& a, const Tensor& signal, const Tensor& chunk_signal, const Queries& q,
                          const KvSlots& slots, const Tensor& lse) = 0;
    // Chooses what attention is to read of slots that have a table: `to` is then in the place of table and view.
    virtual void select(const SelectArgs& s, const AttentionArgs& a, const Selection& to, const Queries& q, const KvSlots& slots) = 0;
    // out (1, rows) u32; ties: the lower index
    virtual void argmax(const ArgmaxArgs& a, const Tensor& out, const Tensor& x) = 0;
};

struct BackendOptions {
    std::string device;             // empty: the best that is there
    int n_threads = 0;              // 0: as many as the machine has cores
    MemorySource* memory = nullptr; // for backends whose device memory is the host's; null: the operating system
};

// Both are defined in backends/registry.cpp, the only place that knows which backends exist.
Result<std::unique_ptr<Backend>> open_backend(const BackendOptions& options);
// refused: takes those that are there and cannot be used, each with its id, its name and the reason.
std::vector<DeviceInfo> list_devices(std::vector<std::string>* refused = nullptr);

} // namespace ks
