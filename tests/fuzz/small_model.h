// The smallest working model: one layer, width 32 or a block, six tokens.
#pragma once

#include "tests/model/gguf_builder.h"

#include <algorithm>

namespace ks
{

// Gives the tensors plausible values; matrices have the ggml type `type` (2: q4_0).
inline GgufBuilder with_values(GgufBuilder b, uint32_t type = 2)
{
    uint32_t random = 1;
    for (GgufBuilder::TensorInfo& t : b.tensors) {
        const bool matrix = t.n_dims >= 2 && t.name.find("ssm_conv") == Bytes::npos &&
                            t.name.find(".conv.") == Bytes::npos && t.dims[0] % 32 == 0;
        const GgmlType* format = find_ggml_type(matrix ? type : 0);
        uint64_t n = 1;
        for (uint64_t dim : t.dims) n *= dim;
        t.type = format->number;
        t.values.clear();
        for (uint64_t i = 0; i < n / format->block; i++) {
            Bytes block = matrix ? Bytes(format->block_bytes, 0) : le(1.f);
            for (size_t at = 2; matrix && at < block.size(); at++)
                block[at] = char((random = random * 1664525 + 1013904223) >> 24);
            if (matrix && type == 39)
                block[0] = 120; // the exponent of mxfp4, also 2^-7
            else if (matrix && type == 40)
                block.replace(0, 4, "\x08\x08\x08\x08", 4); // scales of nvfp4, 2^-6
            else if (matrix)
                block.replace(0, 2, "\0\x20", 2); // a scale of 2^-7
            t.values += block;
        }
    }
    return b;
}

inline void add_smallest_tokenizer(GgufBuilder& b)
{
    b.string("tokenizer.ggml.pre", "gpt-2").strings("tokenizer.ggml.merges", {"a b", "ab c"});
    b.strings("tokenizer.ggml.tokens", {"a", "b", "c", "ab", "abc", "<|im_end|>"});
}

inline GgufBuilder smallest_model(const std::string& family, uint32_t type = 2)
{
    GgufBuilder b = small_model(family, 1);
    const uint32_t wide = std::max(find_ggml_type(type)->block / 32, 1u);
    if (wide > 1) b.u32(family + ".embedding_length", 32 * wide);
    b.u32(family + ".feed_forward_length", 32 * wide);
    add_smallest_tokenizer(b);
    for (GgufBuilder::TensorInfo& t : b.tensors) {
        if (t.name.find(".ffn_") != Bytes::npos && t.n_dims == 2)
            for (uint64_t& dim : t.dims) dim = dim == 64 ? 32 : dim == 128 ? 64 : dim;
        for (uint64_t& dim : t.dims) dim *= dim == 6 ? 1 : wide;
    }
    return with_values(b, type);
}

inline void add_mixed_keys(GgufBuilder& b, const std::string& family)
{
    const std::string a = family + ".";
    if (family == "qwen3moe")
        b.u32(a + "expert_count", 4)
            .u32(a + "expert_used_count", 2)
            .u32(a + "expert_feed_forward_length", 32);
    else if (family == "lfm2")
        b.array(a + "attention.head_count_kv", GgufType::u32, std::vector<uint32_t>{0, 1})
            .u32(a + "shortconv.l_cache", 3);
    else if (family == "gemma4")
        b.u32(a + "attention.sliding_window", 8)
            .u32(a + "attention.key_length_swa", 16)
            .u32(a + "attention.value_length_swa", 16)
            .u32(a + "embedding_length_per_layer_input", 32)
            .u32(a + "attention.shared_kv_layers", 1)
            .array(a + "attention.sliding_window_pattern", GgufType::boolean,
                   std::vector<uint8_t>{1, 1})
            .tensor("per_layer_token_embd.weight", {64, 6})
            .tensor("per_layer_model_proj.weight", {32, 64})
            .tensor("per_layer_proj_norm.weight", {32});
    else
        b.u32(a + "ssm.conv_kernel", 4)
            .u32(a + "ssm.state_size", 16)
            .u32(a + "ssm.inner_size", 32)
            .u32(a + "ssm.time_step_rank", 2)
            .u32(a + "ssm.group_count", 1)
            .u32(a + "full_attention_interval", 2);
}

inline void add_recurrent_branch(GgufBuilder& b, const std::string& family, const std::string& p)
{
    if (family == "lfm2")
        b.tensor(p + "shortconv.in_proj.weight", {32, 96})
            .tensor(p + "shortconv.conv.weight", {3, 32})
            .tensor(p + "shortconv.out_proj.weight", {32, 32});
    if (family == "qwen35")
        b.tensor(p + "attn_qkv.weight", {32, 64})
            .tensor(p + "attn_gate.weight", {32, 32})
            .tensor(p + "ssm_alpha.weight", {32, 2})
            .tensor(p + "ssm_beta.weight", {32, 2})
            .tensor(p + "ssm_norm.weight", {16});
    if (family == "falcon-h1")
        b.tensor(p + "ssm_in.weight", {32, 98})
            .tensor(p + "ssm_conv1d.bias", {64})
            .tensor(p + "ssm_d", {1, 2});
    if (family != "lfm2")
        b.tensor(p + "ssm_conv1d.weight", {4, 64})
            .tensor(p + "ssm_dt.bias", {2})
            .tensor(p + "ssm_a", {family == "qwen35" ? 2u : 1u, family == "qwen35" ? 1u : 2u})
            .tensor(p + "ssm_out.weight", {32, 32});
}

inline void add_mixed_layer(GgufBuilder& b, const std::string& family, uint32_t il)
{
    const std::string p = "blk." + std::to_string(il) + ".";
    const bool gemma4 = family == "gemma4", falcon = family == "falcon-h1",
               experts = family == "qwen3moe", qwen35 = family == "qwen35",
               attends = il == 1 || experts || gemma4 || falcon;
    b.tensor(p + "attn_norm.weight", {32});
    if (attends)
        b.tensor(p + "attn_q.weight", {32, qwen35 ? 64u : 32u})
            .tensor(p + "attn_k.weight", {32, 16})
            .tensor(p + "attn_v.weight", {32, 16})
            .tensor(p + "attn_output.weight", {32, 32});
    if (attends && !falcon)
        b.tensor(p + "attn_q_norm.weight", {16}).tensor(p + "attn_k_norm.weight", {16});
    if (!attends || falcon) add_recurrent_branch(b, family, p);
    if (gemma4)
        b.tensor(p + "post_attention_norm.weight", {32})
            .tensor(p + "post_ffw_norm.weight", {32})
            .tensor(p + "inp_gate.weight", {32, 32})
            .tensor(p + "proj.weight", {32, 32})
            .tensor(p + "post_norm.weight", {32})
            .tensor(p + "layer_output_scale.weight", {1});
    b.tensor(p + (qwen35   ? "post_attention_norm.weight"
                  : falcon ? "ffn_norm"
                           : "ffn_norm.weight"),
             {32});
    if (experts) b.tensor(p + "ffn_gate_inp.weight", {32, 4});
    for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"})
        experts ? b.tensor(p + name + "_exps.weight", {32, 32, 4})
                : b.tensor(p + name + ".weight", {32, 32});
}

// The same with experts (qwen3moe), recurrent layers (lfm2, qwen35, falcon-h1), or layers that
// differ (gemma4).
inline GgufBuilder smallest_mixed(const std::string& family)
{
    GgufBuilder b = small_model(family, 0);
    b.u32(family + ".block_count", 2).u32(family + ".feed_forward_length", 32);
    add_smallest_tokenizer(b);
    add_mixed_keys(b, family);
    for (uint32_t il = 0; il < 2; il++) add_mixed_layer(b, family, il);
    if (family == "lfm2")
        for (GgufBuilder::TensorInfo& t : b.tensors)
            if (t.name == le_string("output_norm.weight"))
                t.name = le_string("token_embd_norm.weight");
    return with_values(b);
}

} // namespace ks
