// A model's hyperparameters, read from GGUF keys and range-checked, and its family. A family is a
// row of flags; architectures differ in nothing else.
#pragma once

#include "kernels/common/args.h"
#include "runtime/kv/layout.h"

#include <cstdint>
#include <string>

namespace ks
{

class Gguf;

struct Family {
    const char* name = "";   // general.architecture
    uint32_t rope_pairs = 0; // rope_interleaved or rope_neox
    uint32_t activation = 0; // act_silu or act_gelu
    bool qkv_bias = false;   // attn_{q,k,v}.bias are possible
    bool qk_norm = false;    // attn_{q,k}_norm, per head, before RoPE
    bool post_norms = false; // post_attention_norm, post_ffw_norm: on a branch before it is added
    bool scale_embedding = false; // by sqrt(dim)
    bool window_layers = false;   // sliding_window on five of six layers
    bool fused_qkv = false;       // attn_qkv holds Q, K, V rows; ffn_up holds gate, then up
};

constexpr uint32_t kMaxLayers = 512;

constexpr uint32_t kMaxContext = 1u << 30; // sums of two positions fit into 32 bits

struct Config {
    const Family* family = nullptr;
    std::string name; // general.name
    uint32_t dim = 0;
    uint32_t n_layers = 0;
    uint32_t n_heads = 0;
    uint32_t n_kv_heads = 0;
    uint32_t head_dim = 0;
    uint32_t ffn_dim = 0;
    uint32_t n_vocab = 0;
    uint32_t n_context = 0; // trained context
    uint32_t n_rot = 0;     // values of a head that RoPE rotates
    float norm_eps = 0;
    float attention_scale = 0;
    float final_softcap = 0; // 0: none
    double rope_base = 10000;
    double rope_base_window = 10000; // of window layers
    double rope_factor = 1;          // divides positions, except in window layers
    double rope_yarn = 1;            // divides the frequencies of slow pairs
    // Pairs with at least so many rotations within the original context are fast, those with at
    // most so many are slow.
    double rope_yarn_fast = 32, rope_yarn_slow = 1;
    double rope_mscale = 1;     // factor of cos and sin
    bool rope_longrope = false; // the file has factors for texts beyond the original context
    // longrope uses the long factors beyond it; yarn counts rotations within it.
    uint32_t rope_original_context = 0;
    uint32_t window = 0;        // tokens; 0: no window layers
    uint32_t window_period = 6; // layer il is a window layer if il % period < period - 1
    bool tied = false;          // output is token_embd
    bool key_bias = false;      // some layer has attn_k.bias

    bool is_window_layer(uint32_t il) const
    {
        return window != 0 && il % window_period < window_period - 1;
    }
    // Such keys lose much in few bits.
    bool has_wide_normed_keys() const { return family->qk_norm && head_dim >= 256; }
    ModelShape model_shape() const;
};

Result<Config> read_config(const Gguf& gguf);

} // namespace ks
