// The keys of recurrent layers.
#include "runtime/model/config.h"

#include "runtime/model/gguf.h"

namespace ks
{

constexpr uint32_t kMaxInner = 1u << 20;
constexpr uint32_t kMaxStateHeads = 4096;

// Which layers have which branches.
static Status choose_layers(const Keys& keys, Config& c)
{
    const Family& f = *c.family;
    std::vector<uint32_t> flags;
    uint32_t interval = 4;
    if (f.recurrent_layers == RecurrentLayers::by_interval) {
        KS_TRY(keys.integer("full_attention_interval", 1, kMaxLayers, &interval));
        KS_TRY(keys.per_layer("attention.recurrent_layers", 0, 1, flags));
    }
    for (uint32_t il = 0; il < c.n_layers(); il++) {
        LayerConfig& layer = c.layers[il];
        const bool only_ffn = f.one_branch && layer.ffn_dim;
        if (f.recurrent_layers == RecurrentLayers::all)
            layer.recurrent = true;
        else if (f.recurrent_layers == RecurrentLayers::by_interval)
            layer.recurrent = flags.empty() ? (il + 1) % interval != 0 : flags[il];
        else
            layer.recurrent = !layer.n_kv_heads && !only_ffn;
        const bool attends = f.recurrent_layers == RecurrentLayers::all || !layer.recurrent;
        if (!attends || only_ffn) layer.n_heads = layer.n_kv_heads = 0;
        if (attends && !only_ffn && !layer.n_kv_heads)
            return fail(Code::invalid, "%s: layer %u attends, but has no heads or KV heads",
                        keys.label().c_str(), il);
    }
    return {};
}

static Status read_scan(const Keys& keys, Config& c)
{
    RecurrentConfig& r = c.recurrent;
    uint32_t inner = 0;
    KS_TRY(keys.need({"ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank",
                      "ssm.group_count"}));
    KS_TRY(keys.integer("ssm.conv_kernel", 2, max_conv_kernel, &r.kernel));
    KS_TRY(keys.integer("ssm.inner_size", 1, kMaxInner, &inner));
    KS_TRY(keys.integer("ssm.state_size", scan_lanes, max_state_dim, &r.state_dim));
    KS_TRY(keys.integer("ssm.time_step_rank", 1, kMaxStateHeads, &r.n_heads));
    KS_TRY(keys.integer("ssm.group_count", 1, kMaxStateHeads, &r.n_groups));
    const bool delta = c.family->recurrent == Recurrent::delta;
    const uint64_t of_delta = uint64_t(r.n_heads) * r.state_dim;
    if (inner % r.n_heads != 0 || r.n_heads % r.n_groups != 0 || r.state_dim % scan_lanes != 0 ||
        (delta && inner != of_delta))
        return fail(Code::invalid,
                    "%s: a state of %u values in %u heads, %u groups and %u columns, which is no "
                    "whole number of each, or the columns are no multiple of %u",
                    keys.label().c_str(), inner, r.n_heads, r.n_groups, r.state_dim, scan_lanes);
    r.head_dim = inner / r.n_heads;
    r.conv_cols = inner + 2 * r.n_groups * r.state_dim;
    return {};
}

Status read_recurrent(const Keys& keys, Config& c)
{
    KS_TRY(choose_layers(keys, c));
    if (c.family->recurrent != Recurrent::conv) return read_scan(keys, c);
    KS_TRY(keys.need({"shortconv.l_cache"}));
    c.recurrent.conv_cols = c.dim;
    return keys.integer("shortconv.l_cache", 2, max_conv_kernel, &c.recurrent.kernel);
}

} // namespace ks
