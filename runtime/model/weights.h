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

// y = scale * W x + bias
struct Linear {
    Tensor w;    // (rows, cols)
    Tensor bias; // (1, rows); empty: none
    float scale = 1;
};

// The matrices of all experts or heads, one after the other.
struct ExpertsLinear {
    Tensor w;      // (experts * rows, cols)
    Tensor bias;   // (experts, rows); empty: none
    Tensor scales; // (1, experts); empty: none
};

struct Norm {
    Tensor w;    // (1, cols), or (heads, cols) where each head has weights of its own; empty: none
    Tensor bias; // (1, cols); empty: none
};

struct LayerWeights {
    Norm attn_norm;     // dim
    Linear attn_q;      // (n_heads * head_dim, dim)
    Linear attn_k;      // (n_kv_heads * head_dim, dim); no bias if keys are stored without it
    Linear attn_v;      // (n_kv_heads * head_dim, dim)
    Linear attn_gate;   // (n_heads, dim), or (n_heads * head_dim, dim)
    Linear attn_output; // (dim, n_heads * head_dim)
    // Of latent attention, where attn_q has the rows without RoPE.
    Linear attn_q_a;     // (q_dim, dim); empty: attn_q and attn_q_rope read dim values, else q_dim
    Linear attn_q_rope;  // (n_heads * n_rot, dim or q_dim)
    Linear attn_kv_a;    // (latent dim, dim)
    Linear attn_k_rope;  // (n_rot, dim)
    Norm attn_q_a_norm;  // q_dim
    Norm attn_kv_a_norm; // latent dim
    ExpertsLinear attn_k_b; // (n_heads * latent dim, key_dim)
    ExpertsLinear attn_v_b; // (n_heads * value_dim, latent dim)
    // (n_kv_heads, n_rot), replaces the bias of attn_k: angles with which rope() maps queries to
    // their products with the bias.
    Tensor key_bias_pairs;
    Norm attn_q_norm;      // head_dim, or n_heads * head_dim
    Norm attn_k_norm;      // head_dim, or n_kv_heads * head_dim
    Norm attn_sub_norm;    // n_heads * head_dim
    Norm attn_post_norm;   // dim
    Norm ffn_norm;         // dim
    Linear ffn_gate;       // (ffn_dim, dim)
    Linear ffn_up;         // (ffn_dim, dim)
    Linear ffn_down;       // (dim, ffn_dim)
    Norm ffn_sub_norm;     // ffn_dim
    Norm ffn_post_norm;    // dim
    Linear layer_proj;     // (layer_dim, dim)
    Linear layer_gate;     // (layer_dim, dim)
    Linear layer_output;   // (dim, layer_dim)
    Norm layer_post_norm;  // dim
    float layer_scale = 1; // of the layer's result
    Tensor attn_sinks;     // (1, n_heads)
    // Of a recurrent branch.
    Linear ssm_in;   // (conv_cols, dim)
    Linear ssm_gate; // (inner, dim); of a short convolution (dim, dim), of its output
    Linear ssm_dt;   // (heads, dim); the op adds the bias
    Linear ssm_beta; // (heads, dim); of a short convolution (dim, dim), of its input
    Norm ssm_conv;   // (kernel, conv_cols)
    Norm ssm_a;      // heads
    Norm ssm_d;      // heads
    Norm ssm_norm;   // head_dim, or (groups, inner / groups)
    Linear ssm_out;  // (dim, inner), or (dim, dim)
    // Of a mixture of experts.
    Norm ffn_dense_post_norm; // dim; of the dense FFN beside experts, like the following
    Norm experts_norm;        // dim
    Norm experts_post_norm;   // dim
    Norm router_norm;         // dim
    Linear router;            // (experts, dim)
    Tensor expert_bias;       // (1, experts), of scores; empty: none
    ExpertsLinear gate_exps;  // (experts * ffn_dim, dim)
    ExpertsLinear up_exps;    // (experts * ffn_dim, dim)
    ExpertsLinear down_exps;  // (experts * dim, ffn_dim)
    Linear gate_shared;       // (shared_dim, dim); empty: no shared expert
    Linear up_shared;         // (shared_dim, dim)
    Linear down_shared;       // (dim, shared_dim)
    Linear shared_gate;       // (1, dim); empty: none
    Linear latent_down;       // (latent_dim, dim); empty: none
    Linear latent_up;         // (dim, latent_dim); likewise
};

struct Weights {
    Linear token_embd;    // (n_vocab, dim)
    Linear output;        // (n_vocab, dim); equals token_embd if the file ties them
    Norm output_norm;     // dim
    Norm layer_proj_norm; // layer_dim
    std::vector<LayerWeights> layers;
    // Divisors of the RoPE frequencies, one per pair; empty: none
    std::vector<double> rope_divisors, rope_divisors_long;
};

uint64_t weights_bytes(const std::vector<TensorPart>& parts, uint64_t align,
                       std::vector<uint64_t>* split_points = nullptr);
// Bytes of the largest tensor, or part of a matrix, that an op sees whole.
uint64_t weights_range(const std::vector<TensorPart>& parts);
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
