// The tensors of a model on the device. Matrices are in tiles, norms and biases in f32. The header
// alone gives their size.
#pragma once

#include "runtime/base/backend.h"
#include "runtime/base/thread_pool.h"
#include "runtime/model/config.h"
#include "runtime/model/gguf.h"
#include "runtime/model/tensor_names.h"

#include <functional>
#include <vector>

namespace ks
{

struct LayerWeights {
    Tensor attn_norm;   // (1, dim)
    Tensor attn_q;      // (n_heads * head_dim, dim)
    Tensor attn_k;      // (n_kv_heads * head_dim, dim)
    Tensor attn_v;      // (n_kv_heads * head_dim, dim)
    Tensor attn_q_bias; // (1, n_heads * head_dim); this and the following may be empty
    Tensor attn_k_bias; // (1, n_kv_heads * head_dim); empty if keys are stored without their bias
    // (n_kv_heads, n_rot), replaces attn_k_bias: angles with which rope() maps queries to their
    // products with the bias.
    Tensor key_bias_pairs;
    Tensor attn_v_bias;    // (1, n_kv_heads * head_dim)
    Tensor attn_q_norm;    // (1, head_dim)
    Tensor attn_k_norm;    // (1, head_dim)
    Tensor attn_output;    // (dim, n_heads * head_dim)
    Tensor attn_post_norm; // (1, dim)
    Tensor ffn_norm;       // (1, dim)
    Tensor ffn_gate;       // (ffn_dim, dim)
    Tensor ffn_up;         // (ffn_dim, dim)
    Tensor ffn_down;       // (dim, ffn_dim)
    Tensor ffn_post_norm;  // (1, dim)
};

struct Weights {
    Tensor token_embd;  // (n_vocab, dim)
    Tensor output;      // (n_vocab, dim); equals token_embd if the file ties them
    Tensor output_norm; // (1, dim)
    std::vector<LayerWeights> layers;
    // Divisors of the RoPE frequencies, one per pair; empty: none
    std::vector<double> rope_divisors, rope_divisors_long;
};

uint64_t weights_bytes(const std::vector<TensorPart>& parts, uint64_t align,
                       std::vector<uint64_t>* split_points = nullptr);
int load_threads(int n_threads); // that load; 0: one per core
// Host memory that so many threads need to load.
uint64_t staging_bytes(const std::vector<TensorPart>& parts, int n_threads);

struct Loading {
    void* staging = nullptr;    // staging_bytes() of the pool's threads
    ThreadPool* pool = nullptr; // converts neighbouring slices at the same time
    bool keeps_cached = true;   // false: the system's cache gives up bytes that have been read
    // In bytes, on the calling thread; returning false interrupts.
    std::function<bool(uint64_t done, uint64_t total)> progress = {};
};

// Reads every part, converts it to tiles and uploads it to the buffer from `offset` on. Bits and
// errors do not depend on the number of threads.
Result<Weights> load_weights(const Gguf& gguf, const Config& config,
                             const std::vector<TensorPart>& parts, Backend& backend,
                             const Buffer& buffer, uint64_t offset, const Loading& loading);

} // namespace ks
