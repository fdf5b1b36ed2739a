// The names and shapes of the tensors that a model family needs. A missing or misshapen tensor is
// an error before anything is loaded.
#pragma once

#include "runtime/base/status.h"
#include "runtime/model/config.h"
#include "runtime/model/gguf.h"

#include <cstdint>
#include <vector>

namespace ks
{

enum class Role {
    // matrices
    token_embd,
    output,
    attn_q,
    attn_k,
    attn_v,
    attn_gate,
    attn_q_a,
    attn_q_rope,
    attn_kv_a,
    attn_k_rope,
    attn_k_b,
    attn_v_b,
    attn_output,
    ssm_in,
    ssm_gate,
    ssm_dt,
    ssm_beta,
    ssm_out,
    ffn_gate,
    ffn_up,
    ffn_down,
    ffn_router,
    ffn_gate_exps,
    ffn_up_exps,
    ffn_down_exps,
    ffn_gate_shared,
    ffn_up_shared,
    ffn_down_shared,
    ffn_shared_gate,
    ffn_latent_down,
    ffn_latent_up,
    layer_proj,
    layer_gate,
    layer_output,
    // norms and other vectors
    output_norm,
    attn_norm,
    attn_q_norm,
    attn_k_norm,
    attn_q_a_norm,
    attn_kv_a_norm,
    attn_sub_norm,
    attn_post_norm,
    ffn_norm,
    ffn_sub_norm,
    ffn_post_norm,
    ffn_dense_post_norm,
    experts_norm,
    experts_post_norm,
    router_norm,
    attn_sinks,
    expert_bias,
    ssm_conv,
    ssm_a,
    ssm_d,
    ssm_norm,
    layer_proj_norm,
    layer_post_norm,
    // a number
    layer_scale,
    // divisors of RoPE's frequencies
    rope_freqs,
    rope_factors_long,
    rope_factors_short,
};

// What a tensor is to its role: the tensors NAME.weight, NAME.bias and NAME.scale, which has a
// value for each expert in `scales`.
enum class Piece { weight, bias, scale, scales };

inline bool is_matrix(Role role)
{
    return role < Role::output_norm;
}

// Rows of one tensor with one role; a fused tensor yields several parts. Norms, biases, scales and
// divisors are vectors of F32, F16 or BF16. Matrices may have any known format.
struct TensorPart {
    Role role;
    uint32_t layer; // 0 if the part belongs to no layer
    const GgufTensor* tensor;
    uint32_t first; // row of a matrix, value of a vector
    uint32_t rows;
    uint32_t cols;
    Piece piece = Piece::weight;
    // Rows of a matrix lie in runs, whose first rows are `stride` rows apart: one run, unless the
    // rows of several matrices alternate.
    uint32_t run = ~0u, stride = 0;

    uint64_t row_in_tensor(uint64_t row) const { return first + row / run * stride + row % run; }
    bool of_experts() const
    {
        return role == Role::ffn_gate_exps || role == Role::ffn_up_exps ||
               role == Role::ffn_down_exps;
    }
    // The file has the values of a column of the convolution side by side.
    bool transposed() const { return piece == Piece::weight && role == Role::ssm_conv; }
    bool is_matrix() const { return piece == Piece::weight && ks::is_matrix(role); }
    // Divisors and scales stay on the host.
    bool on_device() const { return piece != Piece::scale && role < Role::layer_scale; }
};

// The tensor of the embeddings for each layer, a row per token with those of all layers. It is not
// a part: its rows stay in the file.
constexpr const char* kLayerEmbeddings = "per_layer_token_embd.weight";

// Parts in the order of the forward pass. Missing optional tensors and a tied output yield no part.
Result<std::vector<TensorPart>> bind_tensors(const Gguf& gguf, const Config& config);

} // namespace ks
