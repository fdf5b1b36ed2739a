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
    token_embd,
    output,
    output_norm,
    rope_freqs,
    rope_factors_long,
    rope_factors_short,
    attn_norm,
    attn_q,
    attn_k,
    attn_v,
    attn_q_bias,
    attn_k_bias,
    attn_v_bias,
    attn_q_norm,
    attn_k_norm,
    attn_output,
    attn_post_norm,
    ffn_norm,
    ffn_gate,
    ffn_up,
    ffn_down,
    ffn_post_norm,
};

// Rows of one tensor with one role; a fused tensor yields several parts. Vectors (norms, biases,
// RoPE factors) are one row of F32, F16 or BF16. Matrices may have any known format.
struct TensorPart {
    Role role;
    uint32_t layer; // 0 if the part belongs to no layer
    const GgufTensor* tensor;
    uint32_t first_row;
    uint32_t rows;
    uint32_t cols;
};

// Parts in the order of the forward pass. Missing optional tensors and a tied output yield no part.
Result<std::vector<TensorPart>> bind_tensors(const Gguf& gguf, const Config& config);

} // namespace ks
