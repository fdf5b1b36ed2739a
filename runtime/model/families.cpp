#include "runtime/model/families.h"

#include <iterator>
#include <string>

namespace ks
{

// A row of the table: a name, how RoPE pairs values, and what differs from Llama.
struct FamilyRow : Family {
    constexpr FamilyRow(const char* its_name, uint32_t its_rope_pairs)
    {
        name = its_name;
        rope_pairs = its_rope_pairs;
    }
    template <class T>
    constexpr FamilyRow with(T Family::*member, T value) const
    {
        FamilyRow row = *this;
        row.*member = value;
        return row;
    }
    constexpr FamilyRow with(bool Family::*flag) const { return with(flag, true); }
    constexpr FamilyRow act(uint32_t its_act) const { return with(&Family::activation, its_act); }
    // An FFN without a gate.
    constexpr FamilyRow ungated(uint32_t its_act) const
    {
        return act(its_act).with(&Family::gated, false);
    }
    constexpr FamilyRow gates(AttentionGates where) const
    {
        return with(&Family::attention_gates, where);
    }
    constexpr FamilyRow named(const char* its_name) const { return with(&Family::name, its_name); }
    constexpr FamilyRow place(Norms where) const { return with(&Family::norms, where); }
    constexpr FamilyRow layer_norms() const { return with(&Family::norm_kind, norm_layer); }
    constexpr FamilyRow qk(QkNorm norm) const { return with(&Family::qk_norm, norm); }
    // n_period 1: the file has to say which layers.
    constexpr FamilyRow windows(uint32_t n_period, uint32_t n_tokens = 0) const
    {
        return with(&Family::window_period, n_period).with(&Family::window, n_tokens);
    }
    constexpr FamilyRow experts(ExpertNorm norm = ExpertNorm::always,
                                uint32_t its_gating = route_softmax) const
    {
        return with(&Family::experts)
            .with(&Family::expert_norm, norm)
            .with(&Family::gating, its_gating);
    }
    constexpr FamilyRow rope(RopeLayers layers) const { return with(&Family::rope_layers, layers); }
    constexpr FamilyRow mixes(Recurrent kind, RecurrentLayers layers) const
    {
        return with(&Family::recurrent, kind).with(&Family::recurrent_layers, layers);
    }
    constexpr FamilyRow logits(LogitScale scale) const { return with(&Family::logit_scale, scale); }
};

using F = Family;
using Row = FamilyRow;

// What several families have in common.
static constexpr FamilyRow kGemmaWindows = Row("", rope_neox)
                                               .act(act_gelu)
                                               .qk(QkNorm::head)
                                               .place(Norms::both)
                                               .with(&F::scaled_embedding)
                                               .windows(6)
                                               .with(&F::window_rope_base, 10000.)
                                               .with(&F::window_unscaled);
static constexpr FamilyRow kLfm2 = Row("", rope_neox)
                                       .mixes(Recurrent::conv, RecurrentLayers::without_kv_heads)
                                       .qk(QkNorm::head)
                                       .windows(~0u)
                                       .with(&F::output_norm, "token_embd_norm");
static constexpr FamilyRow kNemotronH =
    Row("", rope_neox)
        .mixes(Recurrent::mamba2, RecurrentLayers::without_kv_heads)
        .with(&F::one_branch)
        .ungated(act_relu2)
        .rope(RopeLayers::none);
static constexpr FamilyRow kQwen35 = Row("", rope_neox)
                                         .mixes(Recurrent::delta, RecurrentLayers::by_interval)
                                         .qk(QkNorm::head)
                                         .gates(AttentionGates::in_queries)
                                         .with(&F::ffn_norm, "post_attention_norm");

static const FamilyRow kFamilies[] = {
    Row("llama", rope_interleaved).experts(),
    kGemmaWindows.named("gemma3").with(&F::scaled_by_width, 62u),
    kGemmaWindows.named("gemma4")
        .with(&F::softcap, 30.f)
        .with(&F::attention_scale, 1.f)
        .with(&F::value_norm)
        .with(&F::shared_kv)
        .with(&F::layer_inputs)
        .experts()
        .with(&F::experts_beside_ffn),
    Row("qwen2", rope_neox),
    Row("qwen3", rope_neox).qk(QkNorm::head),
    Row("phi3", rope_neox).with(&F::fused_gate_up),
    Row("qwen2vl", rope_neox),
    Row("qwen3vl", rope_neox).qk(QkNorm::head),
    Row("internlm2", rope_interleaved),
    Row("xverse", rope_interleaved),
    Row("ernie4_5", rope_interleaved),
    Row("pangu-embedded", rope_neox),
    Row("exaone", rope_neox),
    Row("mistral3", rope_interleaved).with(&F::yarn_betas),
    Row("granite", rope_interleaved).logits(LogitScale::divisor).with(&F::rope_optional),
    Row("minicpm", rope_interleaved).logits(LogitScale::divisor).with(&F::minicpm_scales),
    Row("smollm3", rope_interleaved).rope(RopeLayers::not_every_fourth),
    Row("seed_oss", rope_neox).with(&F::ffn_norm, "post_attention_norm"),
    Row("olmo2", rope_neox)
        .qk(QkNorm::row)
        .place(Norms::after)
        .windows(4)
        .with(&F::window_unscaled),
    Row("exaone4", rope_neox)
        .qk(QkNorm::head)
        .place(Norms::after)
        .windows(4, 4096)
        .with(&F::window_layers, 64u)
        .rope(RopeLayers::windows),
    Row("hunyuan-dense", rope_neox).qk(QkNorm::head).with(&F::qk_norm_after_rope),
    Row("maincoder", rope_interleaved).qk(QkNorm::head).with(&F::qk_norm_after_rope),
    Row("glm4", rope_interleaved)
        .place(Norms::both)
        .with(&F::fused_gate_up)
        .with(&F::rope_by_sections),
    Row("gemma", rope_neox).act(act_gelu).with(&F::scaled_embedding),
    Row("gemma2", rope_neox)
        .act(act_gelu)
        .place(Norms::both)
        .with(&F::scaled_embedding)
        .windows(2, 4096)
        .with(&F::softcap, 30.f)
        .with(&F::attention_softcap, 50.f)
        .with(&F::scaled_by_width, 46u),
    Row("apertus", rope_neox).ungated(act_xielu).qk(QkNorm::head),
    Row("arcee", rope_interleaved).ungated(act_relu2),
    Row("nanbeige", rope_interleaved).with(&F::loops),
    Row("nemotron", rope_neox).ungated(act_relu2).layer_norms(),
    Row("jais2", rope_neox).ungated(act_relu2).layer_norms(),
    Row("starcoder2", rope_neox).ungated(act_gelu).layer_norms(),
    Row("stablelm", rope_neox).qk(QkNorm::layer_norms).layer_norms().with(&F::optional_ffn_norm),
    Row("phi2", rope_neox).ungated(act_gelu).place(Norms::parallel).layer_norms(),
    Row("command-r", rope_interleaved)
        .qk(QkNorm::layer_norms)
        .place(Norms::parallel)
        .layer_norms()
        .logits(LogitScale::factor),
    Row("cohere2", rope_interleaved)
        .place(Norms::parallel)
        .layer_norms()
        .windows(4)
        .rope(RopeLayers::windows)
        .logits(LogitScale::factor),
    Row("spark2_5", rope_neox).act(act_gelu).gates(AttentionGates::by_head).windows(1),
    Row("bitnet", rope_neox).with(&F::sub_norms),
    Row("deci", rope_interleaved).with(&F::partial_layers),
    Row("qwen3moe", rope_neox).qk(QkNorm::head).experts(),
    Row("qwen3vlmoe", rope_neox).qk(QkNorm::head).experts(),
    Row("qwen2moe", rope_neox).experts(ExpertNorm::never).with(&F::gated_shared),
    Row("olmoe", rope_neox).qk(QkNorm::row).experts(ExpertNorm::never),
    Row("granitemoe", rope_interleaved)
        .logits(LogitScale::divisor)
        .with(&F::rope_optional)
        .experts(),
    Row("granite_swa", rope_interleaved)
        .logits(LogitScale::divisor)
        .with(&F::sinks)
        .windows(1)
        .experts(),
    Row("gpt-oss", rope_neox)
        .act(act_swiglu_oai)
        .with(&F::ffn_norm, "post_attention_norm")
        .with(&F::sinks)
        .windows(2)
        .experts(ExpertNorm::never, route_softmax_chosen),
    Row("ernie4_5-moe", rope_interleaved).experts(),
    Row("hunyuan-moe", rope_neox).qk(QkNorm::head).with(&F::qk_norm_after_rope).experts(),
    Row("bailingmoe2", rope_neox).qk(QkNorm::head).experts(ExpertNorm::key, route_sigmoid),
    Row("glm4moe", rope_neox)
        .qk(QkNorm::head)
        .with(&F::optional_qk_norm)
        .with(&F::ffn_norm, "post_attention_norm")
        .experts(ExpertNorm::key, route_sigmoid),
    Row("afmoe", rope_neox)
        .qk(QkNorm::head)
        .place(Norms::both)
        .with(&F::scaled_embedding)
        .gates(AttentionGates::by_value)
        .windows(4)
        .rope(RopeLayers::windows)
        .experts(ExpertNorm::key, route_sigmoid),
    Row("mellum", rope_neox).qk(QkNorm::head).windows(4).with(&F::window_unscaled).experts(),
    Row("deepseek2", rope_interleaved)
        .with(&F::latent)
        .experts(ExpertNorm::key)
        .with(&F::sigmoid_vocab, 154880u),
    kLfm2.named("lfm2"),
    kLfm2.named("lfm2moe").experts(),
    kNemotronH.named("nemotron_h"),
    kNemotronH.named("nemotron_h_moe").experts(ExpertNorm::key, route_sigmoid),
    kQwen35.named("qwen35"),
    kQwen35.named("qwen35moe").experts().with(&F::gated_shared),
    Row("granitehybrid", rope_interleaved)
        .mixes(Recurrent::mamba2, RecurrentLayers::without_kv_heads)
        .logits(LogitScale::divisor)
        .with(&F::rope_optional)
        .experts(),
    Row("falcon-h1", rope_neox).mixes(Recurrent::mamba2, RecurrentLayers::all),
};

// Families that other programs run: what they need beside the rows above.
struct Lacking {
    const char* feature;
    const char* names; // separated and surrounded by spaces
};

static const Lacking kLacking[] = {
    {"mixtures of experts",
     " bailingmoe llama4 grok dbrx phimoe dots1 exaone-moe smallthinker minimax-m2 "},
    {"recurrent layers", " qwen3next mamba mamba2 jamba rwkv6 rwkv7 plamo2 plamo3 kimi-linear "},
    {"layers that share keys and values", " gemma3n "},
    {"latent attention (MLA)", " mistral4 minicpm3 plm "},
    {"encoders", " bert nomic-bert nomic-bert-moe jina-bert-v2 modern-bert t5 t5encoder "},
};

const char* missing_feature(std::string_view name)
{
    for (const Lacking& row : kLacking)
        if (std::string_view(row.names).find(" " + std::string(name) + " ") !=
            std::string_view::npos)
            return row.feature;
    return nullptr;
}

uint32_t count_families()
{
    return uint32_t(std::size(kFamilies));
}

const Family* find_family(std::string_view name)
{
    for (const Family& family : kFamilies)
        if (name == family.name) return &family;
    return nullptr;
}

} // namespace ks
