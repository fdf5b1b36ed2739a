// A model's hyperparameters, read from GGUF keys and range-checked.
#pragma once

#include "runtime/kv/layout.h"
#include "runtime/model/families.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ks
{

class Gguf;

constexpr uint32_t kMaxLayers = 512;

constexpr uint32_t kMaxContext = 1u << 30; // sums of two positions fit into 32 bits

// What layers of one model may differ in.
struct LayerConfig {
    uint32_t n_heads = 0;    // 0: no attention
    uint32_t n_kv_heads = 0; // 0: the output matrix reads the normed input in place of attention
    uint32_t head_dim = 0;
    uint32_t ffn_dim = 0;   // of each expert in a mixture; 0: no FFN
    bool experts = false;   // the FFN is a mixture of experts
    bool recurrent = false; // has a branch of Family::recurrent, beside attention or alone
    uint32_t il_cache = 0;  // the layer of the cache; the cache counts those that own one
    bool owns_kv = true;    // false: reads the keys and values of an earlier layer
    bool window = false;    // sees Config::window tokens
    bool rope = true;       // queries and keys are rotated
    float xielu[4] = {};    // alpha_p, alpha_n, beta, eps of the activation

    bool runs() const { return n_heads || recurrent || ffn_dim; }
    bool attends() const { return n_kv_heads != 0; }
    bool stores() const { return attends() && owns_kv; }
    uint32_t q_cols() const { return n_heads * head_dim; }
    uint32_t kv_cols() const { return n_kv_heads * head_dim; }
};

// The recurrent layers, which are all alike.
struct RecurrentConfig {
    uint32_t kernel = 0;    // of the convolution
    uint32_t conv_cols = 0; // that it runs over
    uint32_t n_heads = 0;   // 0: there is only a convolution
    uint32_t n_groups = 0;  // of keys, or of B and C, that heads share
    uint32_t head_dim = 0;
    uint32_t state_dim = 0; // a head's state has head_dim rows of so many values

    uint32_t inner() const { return n_heads * head_dim; }
};

// RoPE of the layers that see everything, or of window layers.
struct RopeConfig {
    uint32_t n_rot = 0; // values of a head that RoPE rotates; all until the keys are read
    double base = 10000;
    double factor = 1;   // divides positions
    double yarn = 1;     // divides the frequencies of slow pairs
    double mscale = 1;   // factor of cos and sin
    bool divided = true; // by the divisors of the file
};

// Latent attention. A token's row in the cache is its key after RoPE, which all heads share, then
// its latent. A head's matrices map its query to one for latents, and latents to its values.
struct LatentConfig {
    uint32_t dim = 0;       // of a latent; 0: other attention
    uint32_t q_dim = 0;     // of the latent that queries come from; 0: they come from the input
    uint32_t key_dim = 0;   // of a head's query without RoPE
    uint32_t value_dim = 0; // of a head's output
};

// The mixtures of experts.
struct ExpertsConfig {
    uint32_t n = 0;          // experts; 0: no layer is a mixture
    uint32_t n_used = 0;     // of a token
    uint32_t dim = 0;        // values between the matrices of an expert
    uint32_t latent_dim = 0; // that experts map to as many; 0: the model's
    uint32_t shared_dim = 0; // of the shared expert; 0: none
    RouteArgs route = {};    // without tokens
};

// Where the embeddings for each layer are: a row per token has those of all layers. They stay
// there.
struct LayerTable {
    Format format = Format::f32;
    uint32_t file = 0; // of a split set
    uint64_t offset = 0, bytes = 0;
};

struct Config {
    const Family* family = nullptr;
    std::string name; // general.name
    uint32_t dim = 0;
    std::vector<LayerConfig> layers; // without the blocks that predict further tokens
    uint32_t n_blocks = 0;           // with them
    uint32_t n_loops = 1;            // times that the layers run
    uint32_t n_heads = 0;            // the largest of the layers, like the following
    uint32_t n_kv_heads = 0;
    uint32_t ffn_dim = 0; // of the layers that are no mixtures, and of the shared expert
    uint32_t head_dim = 0;
    uint32_t n_vocab = 0;
    uint32_t layer_dim = 0; // of the embeddings for each layer; 0: none
    LayerTable layer_table;
    uint32_t n_context = 0;  // trained context
    uint32_t activation = 0; // of the FFN
    float norm_eps = 0;
    float attention_scale = 0;
    float embedding_scale = 1;
    float residual_scale = 1; // of the output of a branch
    float logit_scale = 1;
    float attention_softcap = 0; // 0: none
    float final_softcap = 0;     // 0: none
    bool norms_between_loops = true;
    // Queries are scaled by 1 + temperature * ln(1 + floor(position / original context)); 0: none
    double temperature = 0;
    LatentConfig latent;
    ExpertsConfig experts;
    RopeConfig rope, rope_window; // the latter of window layers
    uint32_t rope_pairs = 0;      // rope_interleaved or rope_neox
    // Pairs with at least so many rotations within the original context are fast, those with at
    // most so many are slow.
    double rope_yarn_fast = 32, rope_yarn_slow = 1;
    double rope_yarn_log = 0;   // the file's yarn_log_multiplier (scale_by_yarn)
    bool rope_longrope = false; // the file has factors for texts beyond the original context
    // longrope uses the long factors beyond it; yarn counts rotations within it.
    uint32_t rope_original_context = 0;
    uint32_t window = 0; // tokens; 0: no window layers
    RecurrentConfig recurrent;
    bool tied = false;     // output is token_embd
    bool key_bias = false; // some layer has attn_k.bias

    uint32_t n_layers() const { return uint32_t(layers.size()); }
    uint32_t n_cached() const; // layers of the cache, in one loop
    uint32_t q_cols() const;   // the largest of the layers
    uint32_t kv_cols() const;  // likewise
    uint32_t out_cols() const  // values of a token that the last matrix of attention reads
    {
        return latent.dim ? n_heads * latent.value_dim : q_cols();
    }
    uint32_t expert_cols() const { return experts.latent_dim ? experts.latent_dim : dim; }
    // Such keys lose much in few bits.
    bool has_wide_normed_keys() const { return family->qk_norm == QkNorm::head && head_dim >= 256; }
    // The layers of the cache: the layers that attend, once per loop.
    ModelShape model_shape() const;
};

Result<Config> read_config(const Gguf& gguf);

// Reads keys with the prefix of the family's name and checks their range. A missing key leaves the
// value as it is.
struct Keys {
    const Gguf& gguf;
    const Config& config;

    std::string label() const;
    std::string key(const char* name) const;
    bool has(const char* name) const;
    Status ranged(const std::string& key, double value, double low, double high) const;
    Status need(std::initializer_list<const char*> names) const;
    Status integer(const char* name, uint32_t low, uint32_t high, uint32_t* out) const;
    Status real(const char* name, double low, double high, double* out) const;
    Status real(const char* name, double low, double high, float* out) const;
    Status flag(const char* name, bool* out) const;
    // One value for all layers or an array with one for each. The array may go on with values for
    // blocks that do not run.
    Status per_layer(const char* name, uint32_t low, uint32_t high,
                     std::vector<uint32_t>& out) const;
};

// After the heads and FFNs of all layers.
Status read_experts(const Keys& keys, Config& config);
Status read_recurrent(const Keys& keys, Config& config);
Status read_latent(const Keys& keys, Config& config);
// After heads and windows.
Status read_rope(const Keys& keys, Config& config);
Status read_shared_kv(const Keys& keys, Config& config);
Status read_layer_inputs(const Keys& keys, Config& config);

} // namespace ks
