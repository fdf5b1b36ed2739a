// A small model with random f32 weights for tests, as a GGUF file and as arrays.
#pragma once

#include "tests/model/gguf_builder.h"

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace ks
{

struct TinyShape {
    std::string arch = "llama"; // or "gemma3", "qwen2"
    uint32_t dim = 48, n_layers = 2, n_heads = 4, n_kv_heads = 2, head_dim = 16, ffn_dim = 96,
             context = 512, window = 12;
    uint32_t seed = 1;
    float query_gain = 1;
    float key_bias = 0; // size of two values in sixteen; the others have a hundredth of it
    std::string chat_template;
    std::vector<int32_t> suppressed; // tokens
    // Writes a matrix in another format to *bytes and returns its ggml type. Matrices with the
    // result 0 stay f32.
    std::function<uint32_t(const std::string& name, uint64_t cols, uint64_t rows, float deviation,
                           Bytes* bytes)>
        coded;
};

struct TinyModel {
    TinyShape shape;
    uint32_t n_vocab = 258; // 256 bytes, an end token, and a BOS token
    std::map<std::string, std::vector<float>> tensors;
    Bytes file;

    bool gemma() const { return shape.arch == "gemma3"; }
    // RoPE pairs value i with value i + n_rot / 2, not with its neighbour.
    bool rope_neox() const { return shape.arch != "llama"; }
};

inline std::vector<std::string> byte_letters()
{
    std::vector<std::string> letters;
    int next = 256;
    for (int b = 0; b < 256; b++) {
        bool plain = (b >= 33 && b < 127) || (b >= 161 && b < 173) || b >= 174;
        int c = plain ? b : next++;
        if (c < 128)
            letters.push_back(std::string(1, char(c)));
        else
            letters.push_back({char(0xc0 | c >> 6), char(0x80 | (c & 63))});
    }
    return letters;
}

// The keys of a tiny model: its shape and a vocabulary of bytes.
inline void add_tiny_keys(GgufBuilder& b, const TinyModel& m)
{
    const TinyShape& s = m.shape;
    auto key = [&](const char* name) { return s.arch + "." + name; };
    b.string("general.architecture", s.arch);
    b.u32(key("context_length"), s.context)
        .u32(key("embedding_length"), s.dim)
        .u32(key("block_count"), s.n_layers);
    b.u32(key("feed_forward_length"), s.ffn_dim).u32(key("attention.head_count"), s.n_heads);
    b.u32(key("attention.head_count_kv"), s.n_kv_heads)
        .u32(key("attention.key_length"), s.head_dim);
    b.u32(key("attention.value_length"), s.head_dim)
        .f32(key("attention.layer_norm_rms_epsilon"), 1e-5f);
    b.f32(key("rope.freq_base"), 10000.f);
    if (m.gemma()) b.u32(key("attention.sliding_window"), s.window);
    std::vector<std::string> tokens = byte_letters();
    tokens.insert(tokens.end(), {"<|im_end|>", "<|im_start|>"});
    std::vector<int32_t> types(256, 1);
    types.insert(types.end(), {3, 3});
    b.string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "gpt-2")
        .strings("tokenizer.ggml.tokens", tokens);
    b.array("tokenizer.ggml.token_type", GgufType::i32, types)
        .strings("tokenizer.ggml.merges", {"q z"});
    b.u32("tokenizer.ggml.eos_token_id", 256)
        .u32("tokenizer.ggml.bos_token_id", 257)
        .boolean("tokenizer.ggml.add_bos_token", 1);
    if (!s.suppressed.empty())
        b.array("tokenizer.ggml.suppress_tokens", GgufType::i32, s.suppressed);
    if (!s.chat_template.empty()) b.string("tokenizer.chat_template", s.chat_template);
}

// Draws the tensors of a tiny model, in a fixed order.
struct TinyTensors {
    TinyModel& m;
    GgufBuilder& b;
    std::mt19937 rng;

    void add(const std::string& name, uint64_t cols, uint64_t rows, float mean, float deviation)
    {
        const TinyShape& s = m.shape;
        std::normal_distribution<float> normal(mean, deviation);
        std::vector<float>& values = m.tensors[name];
        for (uint64_t i = 0; i < cols * rows; i++) values.push_back(normal(rng));
        Bytes bytes(reinterpret_cast<const char*>(values.data()), values.size() * 4);
        const uint32_t type =
            s.coded && rows > 1 ? s.coded(name, cols, rows, deviation, &bytes) : 0;
        b.tensor(name, rows == 1 ? std::vector<uint64_t>{cols} : std::vector<uint64_t>{cols, rows},
                 type, bytes);
    }
    void matrix(const std::string& name, uint64_t cols, uint64_t rows)
    {
        add(name, cols, rows, 0.f, 1.5f / std::sqrt(float(cols)));
    }
    void biases(const std::string& p)
    {
        const TinyShape& s = m.shape;
        add(p + "attn_q.bias", s.n_heads * s.head_dim, 1, 0.f, 0.3f * s.query_gain);
        std::vector<float>& bias = m.tensors[p + "attn_k.bias"];
        for (uint32_t i = 0; i < s.n_kv_heads * s.head_dim; i++)
            bias.push_back(s.key_bias * (i % 16 == 3    ? 1.f
                                         : i % 16 == 14 ? -0.7f
                                         : i % 2        ? 0.01f
                                                        : -0.01f));
        b.tensor(p + "attn_k.bias", {bias.size()}, 0,
                 Bytes(reinterpret_cast<const char*>(bias.data()), 4 * bias.size()));
    }
    void layer(const std::string& p)
    {
        const TinyShape& s = m.shape;
        add(p + "attn_norm.weight", s.dim, 1, 1.f, 0.2f);
        add(p + "attn_q.weight", s.dim, s.n_heads * s.head_dim, 0.f,
            1.5f / std::sqrt(float(s.dim)) * s.query_gain);
        matrix(p + "attn_k.weight", s.dim, s.n_kv_heads * s.head_dim);
        matrix(p + "attn_v.weight", s.dim, s.n_kv_heads * s.head_dim);
        matrix(p + "attn_output.weight", s.n_heads * s.head_dim, s.dim);
        add(p + "ffn_norm.weight", s.dim, 1, 1.f, 0.2f);
        matrix(p + "ffn_gate.weight", s.dim, s.ffn_dim);
        matrix(p + "ffn_up.weight", s.dim, s.ffn_dim);
        matrix(p + "ffn_down.weight", s.ffn_dim, s.dim);
        if (s.key_bias != 0) biases(p);
        if (!m.gemma()) return;
        add(p + "attn_q_norm.weight", s.head_dim, 1, 1.4f, 0.2f);
        add(p + "attn_k_norm.weight", s.head_dim, 1, 1.4f, 0.2f);
        add(p + "post_attention_norm.weight", s.dim, 1, 2.f, 0.5f);
        add(p + "post_ffw_norm.weight", s.dim, 1, 2.f, 0.5f);
    }
};

inline TinyModel make_tiny_model(const TinyShape& s)
{
    TinyModel m{s, 258, {}, {}};
    GgufBuilder b;
    add_tiny_keys(b, m);
    TinyTensors tensors{m, b, std::mt19937(s.seed)};
    tensors.add("token_embd.weight", s.dim, m.n_vocab, 0.f, 0.4f);
    tensors.add("output_norm.weight", s.dim, 1, 1.f, 0.2f);
    for (uint32_t il = 0; il < s.n_layers; il++) tensors.layer("blk." + std::to_string(il) + ".");
    m.file = b.bytes();
    return m;
}

} // namespace ks
