// Which tensors a family's forward needs, by what names and shapes: found in the file, or an error that says what is
// missing or misshapen before anything is loaded.
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

// Rows of one tensor that play one role; a fused tensor gives several parts. Vectors (norms, biases, rope factors) are
// one row of F32, F16 or BF16; matrices have any known format.
struct TensorPart {
    Role role;
    uint32_t layer; // 0 for what is not in a layer
    const GgufTensor* tensor;
    uint32_t first_row;
    uint32_t rows;
    uint32_t cols;
};

// Parts in the order of the forward. What is optional and absent gives none; a tied output gives none.
Result<std::vector<TensorPart>> bind_tensors(const Gguf& gguf, const Config& config);

} // namespace ks
