// The keys of RoPE: its layers, its base, and how files extend the context.
#include "runtime/model/gguf.h"
#include "runtime/model/rope.h"

#include <algorithm>
#include <cmath>

namespace ks
{

static Status read_yarn(const Keys& keys, double factor, Config& c)
{
    if (c.family->yarn_betas) {
        KS_TRY(keys.real("rope.scaling.yarn_beta_fast", 1e-3, 1e6, &c.rope_yarn_fast));
        KS_TRY(keys.real("rope.scaling.yarn_beta_slow", 1e-3, 1e6, &c.rope_yarn_slow));
    }
    KS_TRY(keys.real("rope.scaling.yarn_log_multiplier", 0, 1e3, &c.rope_yarn_log));
    if (factor < 1)
        return fail(Code::invalid, "%s: YaRN with a factor of %g, 1 and more was expected",
                    keys.label().c_str(), factor);
    c.rope.yarn = factor;
    scale_by_yarn(factor, 1, c);
    return {};
}

static Status read_scaling(const Keys& keys, Config& c)
{
    std::string_view type = "linear"; // what a factor without a type means
    double factor = 0;
    KS_TRY(keys.real("rope.scaling.attn_factor", 1e-3, 1e3, &c.rope.mscale));
    KS_TRY(keys.integer("rope.scaling.original_context_length", 1, kMaxContext,
                        &c.rope_original_context));
    for (const char* name : {"rope.scale_linear", "rope.scaling.factor"}) { // the older key first
        KS_TRY(keys.gguf.get_f64(keys.key(name), &factor));
        if (factor != 0) KS_TRY(keys.ranged(keys.key(name), factor, 1e-3, 1e6));
    }
    KS_TRY(keys.gguf.get_string(keys.key("rope.scaling.type"), &type));
    if (type != "none" && type != "linear" && type != "longrope" && type != "yarn") {
        return fail(
            Code::unsupported,
            "%s: RoPE scaling '%s' is not supported, only none, linear, yarn and longrope are",
            keys.label().c_str(), printable(type).c_str());
    }
    if (type == "yarn") KS_TRY(read_yarn(keys, factor, c));
    if (type != "none" && type != "yarn" && factor != 0) c.rope.factor = factor;
    c.rope_longrope = type == "longrope";
    if (c.rope_longrope && !keys.gguf.find_tensor("rope_factors_long.weight"))
        return fail(Code::invalid,
                    "%s has longrope scaling, but no tensor 'rope_factors_long.weight'",
                    keys.label().c_str());
    return {};
}

// The bases of all layers and of window layers. A factor alpha (NTK) is part of the base.
static Status read_bases(const Keys& keys, uint32_t head_dim, Config& c)
{
    double alpha = 0;
    KS_TRY(keys.real("rope.freq_base", 1, 1e15, &c.rope.base));
    KS_TRY(keys.real("rope.scaling.alpha", 0, 1e6, &alpha));
    if (alpha > 0 && head_dim > 2)
        c.rope.base *= std::pow(alpha, double(head_dim) / (head_dim - 2));
    if (c.family->window_rope_base == 0) c.rope_window.base = c.rope.base;
    return keys.real("rope.freq_base_swa", 1, 1e15, &c.rope_window.base);
}

// Files of vision models have sections of their positions in time, height and width, which are all
// equal for text.
static Status read_pairs(const Keys& keys, Config& c)
{
    std::vector<uint32_t> sections;
    c.rope_pairs = c.family->rope_pairs;
    if (!c.family->rope_by_sections) return {};
    KS_TRY(keys.gguf.get_u32s(keys.key("rope.dimension_sections"), 4, &sections));
    if (sections.size() >= 2 && sections[0] > 0 && sections[1] > 0) c.rope_pairs = rope_neox;
    return {};
}

// head_dim: the largest possible value.
static Status read_n_rot(const Keys& keys, const char* name, uint32_t head_dim, uint32_t* out)
{
    KS_TRY(keys.integer(name, 2, head_dim, out));
    if (*out % 2 == 0) return {};
    return fail(Code::invalid, "%s: RoPE over %u values, an even number was expected",
                keys.label().c_str(), *out);
}

// Which layers rotate: the family's, or those of the file.
static Status choose_layers(const Keys& keys, Config& c)
{
    bool rotates = true;
    std::vector<uint32_t> flags;
    KS_TRY(keys.per_layer("attention.rope_pattern", 0, 1, flags));
    if (c.family->rope_optional) KS_TRY(keys.flag("rope.scaling.finetuned", &rotates));
    for (uint32_t il = 0; il < c.n_layers(); il++) {
        bool& rope = c.layers[il].rope;
        rope = rotates;
        if (c.family->rope_layers == RopeLayers::windows && c.window) rope = c.layers[il].window;
        if (c.family->rope_layers == RopeLayers::none) rope = false;
        if (c.family->rope_layers == RopeLayers::not_every_fourth) rope = (il + 1) % 4 != 0;
        if (!flags.empty()) rope = flags[il];
    }
    return {};
}

Status read_rope(const Keys& keys, Config& c)
{
    const uint32_t head_dim = c.rope.n_rot, of_window = c.rope_window.n_rot;
    c.rope_original_context = c.n_context;
    KS_TRY(read_n_rot(keys, "rope.dimension_count", head_dim, &c.rope.n_rot));
    c.rope_window.n_rot = std::min(c.rope.n_rot, of_window);
    if (c.family->window_rope_base != 0) c.rope_window.base = c.family->window_rope_base;
    KS_TRY(read_n_rot(keys, "rope.dimension_count_swa", of_window, &c.rope_window.n_rot));
    KS_TRY(read_pairs(keys, c));
    KS_TRY(read_bases(keys, head_dim, c));
    KS_TRY(read_scaling(keys, c));
    if (c.family->window_unscaled) {
        c.rope_window.divided = false;
    } else {
        c.rope_window.factor = c.rope.factor;
        c.rope_window.yarn = c.rope.yarn;
        c.rope_window.mscale = c.rope.mscale;
    }
    return choose_layers(keys, c);
}

} // namespace ks
