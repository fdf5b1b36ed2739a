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
    std::string id;        // what --device takes: "cpu", "reference", "vulkan:0"
    std::string name;      // "AMD EPYC, 2 threads, avx2"
    std::string backend;   // "cpu"
    uint64_t memory_bytes; // total
    uint64_t free_bytes;   // what a budget may take now
    bool unified;          // device and host memory are one pool
};

// The largest shapes that a session will ask of the ops, known before anything is allocated.
struct ScratchShape {
    uint32_t n_tokens = 0; // in one chunk
    uint32_t max_cols = 0; // of any weight
    uint32_t n_heads = 0;
    uint32_t n_kv_heads = 0;
    uint32_t head_dim = 0;
};

// Up to three products that share their input: Q, K and V, or gate and up.
struct MatmulTarget {
    Tensor y; // (n_tokens, rows)
    Tensor w; // (rows, cols), tiles
};

class Backend
{
public:
    virtual ~Backend() = default;

    virtual DeviceInfo info() const = 0;
    virtual Result<Buffer> alloc(uint64_t bytes) = 0;
    virtual void free(Buffer& buffer) = 0;
    virtual void upload(const Buffer& to, uint64_t offset, const void* from, uint64_t bytes) = 0;
    virtual void download(void* to, const Buffer& from, uint64_t offset, uint64_t bytes) = 0; // waits for what was enqueued
    virtual void fill(const Buffer& to, uint64_t offset, uint64_t bytes, uint32_t word) = 0;
    virtual Status sync() = 0;

    // Device memory that the ops themselves need, a region of the plan; depends on tiles and splits, never on context.
    virtual uint64_t scratch_bytes(const ScratchShape& shape) const = 0;
    virtual void set_scratch(const Buffer& buffer, uint64_t offset, const ScratchShape& shape) = 0;

    // y[t] = table[ids[t]] * scale.          y (n_tokens, dim), table (vocab, dim) tiles, ids (1, n_tokens) u32
    virtual void embed(const EmbedArgs& a, const Tensor& y, const Tensor& table, const Tensor& ids) = 0;
    // y[r] = x[r] / rms(x[r]) * w.           y may be x. w (1, dim) f32
    virtual void rmsnorm(const RmsnormArgs& a, const Tensor& y, const Tensor& x, const Tensor& w) = 0;
    // y = x W^T, or y += x W^T.              x (n_tokens, cols); args hold the first target's rows
    virtual void matmul(const MatmulArgs& a, const MatmulTarget* targets, int n_targets, const Tensor& x) = 0;
    // Rotates in place: (u, v) becomes (u cos - v sin, u sin + v cos). x (n_tokens, n_heads * head_dim), angles (n_tokens, n_rot):
    // pair i's cos at [2i], its sin at [2i + 1]; pair i of a head is (2i, 2i + 1) or (i, i + n_rot / 2)
    virtual void rope(const RopeArgs& a, const Tensor& x, const Tensor& angles) = 0;
    // y = act(gate) * up.                    y may be gate
    virtual void glu(const GluArgs& a, const Tensor& y, const Tensor& gate, const Tensor& up) = 0;
    // x += b
    virtual void add(const AddArgs& a, const Tensor& x, const Tensor& b) = 0;
    virtual void softcap(const SoftcapArgs& a, const Tensor& x) = 0;
    // Stores token t's heads in slot slots[t]. cache (n_kv_heads * n_slots, head_dim) f16 or f32, x (n_tokens, n_kv_heads * head_dim)
    virtual void kv_write(const KvWriteArgs& a, const Tensor& cache, const Tensor& x, const Tensor& slots) = 0;
    // y (n_tokens, n_heads * head_dim), q the same; positions (1, n_tokens) u32, consecutive, already in the cache. Caches as in
    // kv_write, K and V apart. A query sees position p in slot p % n_slots if p is not after it, not out of its window, and
    // among the last n_slots positions up to the chunk's end
    virtual void attention(const AttentionArgs& a, const Tensor& y, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                           const Tensor& positions) = 0;
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
std::vector<DeviceInfo> list_devices();

} // namespace ks
