// Small models with recurrent layers.
#pragma once

#include "tests/model/tiny_model.h"

namespace ks
{

// The branches of a layer that come before its FFN.
struct StateTensors {
    TinyTensors& t;
    uint32_t dim, heads = 4, groups = 2, state = 16;

    void attention(const std::string& p, uint32_t q_rows)
    {
        const TinyShape& s = t.m.shape;
        t.matrix(p + "attn_q.weight", dim, q_rows);
        t.matrix(p + "attn_k.weight", dim, s.n_kv_heads * s.head_dim);
        t.matrix(p + "attn_v.weight", dim, s.n_kv_heads * s.head_dim);
        t.matrix(p + "attn_output.weight", s.n_heads * s.head_dim, dim);
        if (s.arch == "falcon-h1") return;
        t.add(p + "attn_q_norm.weight", s.head_dim, 1, 1.4f, 0.2f);
        t.add(p + "attn_k_norm.weight", s.head_dim, 1, 1.4f, 0.2f);
    }
    void short_conv(const std::string& p)
    {
        t.matrix(p + "shortconv.in_proj.weight", dim, 3 * dim);
        t.matrix(p + "shortconv.conv.weight", 3, dim);
        t.matrix(p + "shortconv.out_proj.weight", dim, dim);
    }
    uint32_t conv_cols() const { return (heads + 2 * groups) * state; }
    void delta(const std::string& p)
    {
        t.matrix(p + "attn_qkv.weight", dim, conv_cols());
        t.matrix(p + "attn_gate.weight", dim, heads * state);
        t.matrix(p + "ssm_alpha.weight", dim, heads);
        t.matrix(p + "ssm_beta.weight", dim, heads);
        t.matrix(p + "ssm_conv1d.weight", 4, conv_cols());
        t.add(p + "ssm_dt.bias", heads, 1, 0.f, 0.3f);
        t.add(p + "ssm_a", heads, 1, -0.5f, 0.1f);
        t.add(p + "ssm_norm.weight", state, 1, 1.f, 0.2f);
        t.matrix(p + "ssm_out.weight", heads * state, dim);
    }
    void mamba2(const std::string& p)
    {
        t.matrix(p + "ssm_in.weight", dim, conv_cols() + heads * state + heads);
        t.matrix(p + "ssm_conv1d.weight", 4, conv_cols());
        t.add(p + "ssm_conv1d.bias", conv_cols(), 1, 0.f, 0.3f);
        t.add(p + "ssm_dt.bias", heads, 1, 0.f, 0.3f);
        for (const char* name : {"ssm_a", "ssm_d"}) {
            t.add(p + name, heads, 1, -0.5f, 0.1f);
            t.b.info(p + name).dims = {1, heads};
            t.b.info(p + name).n_dims = 2;
        }
        t.matrix(p + "ssm_out.weight", heads * state, dim);
    }
};

// arch: lfm2, qwen35 or falcon-h1, of four layers.
inline Bytes make_state_model(const std::string& arch, uint32_t context = 512)
{
    TinyShape s;
    s.arch = arch;
    s.context = context;
    s.n_layers = 4;
    TinyModel m{s, 258, {}, {}};
    GgufBuilder b;
    add_tiny_keys(b, m);
    TinyTensors t{m, b, std::mt19937(5)};
    StateTensors branch{t, s.dim};
    const bool lfm2 = arch == "lfm2", qwen = arch == "qwen35";
    if (lfm2) {
        b.array(arch + ".attention.head_count_kv", GgufType::u32,
                std::vector<uint32_t>{0, s.n_kv_heads, 0, 0});
        b.u32(arch + ".shortconv.l_cache", 3);
    } else {
        b.u32(arch + ".ssm.conv_kernel", 4).u32(arch + ".ssm.state_size", branch.state);
        b.u32(arch + ".ssm.inner_size", branch.heads * branch.state);
        b.u32(arch + ".ssm.time_step_rank", branch.heads);
        b.u32(arch + ".ssm.group_count", branch.groups);
    }
    t.add("token_embd.weight", s.dim, m.n_vocab, 0.f, 0.4f);
    t.add(lfm2 ? "token_embd_norm.weight" : "output_norm.weight", s.dim, 1, 1.f, 0.2f);
    for (uint32_t il = 0; il < s.n_layers; il++) {
        const std::string p = "blk." + std::to_string(il) + ".";
        const uint32_t q_rows = s.n_heads * s.head_dim;
        t.add(p + "attn_norm.weight", s.dim, 1, 1.f, 0.2f);
        if (lfm2)
            il == 1 ? branch.attention(p, q_rows) : branch.short_conv(p);
        else if (qwen)
            il == 3 ? branch.attention(p, 2 * q_rows) : branch.delta(p);
        else
            branch.attention(p, q_rows), branch.mamba2(p);
        t.add(p + (lfm2   ? "ffn_norm.weight"
                   : qwen ? "post_attention_norm.weight"
                          : "ffn_norm"),
              s.dim, 1, 1.f, 0.2f);
        t.matrix(p + "ffn_gate.weight", s.dim, s.ffn_dim);
        t.matrix(p + "ffn_up.weight", s.dim, s.ffn_dim);
        t.matrix(p + "ffn_down.weight", s.ffn_dim, s.dim);
    }
    return b.bytes();
}

} // namespace ks
