// The keys of mixtures of experts.
#include "runtime/model/config.h"
#include "runtime/model/gguf.h"

#include <algorithm>

namespace ks
{

constexpr uint32_t kMaxExpertDim = 1u << 20;
constexpr uint32_t kMaxSharedExperts = 64;

// GGUF's numbers of the routers, from 1 on.
static Status read_gating(const Keys& keys, const Family& family, RouteArgs& route)
{
    constexpr uint32_t kKinds[] = {route_softmax, route_sigmoid, route_softmax_chosen};
    uint32_t number = 0;
    KS_TRY(keys.integer("expert_gating_func", 0, UINT32_MAX, &number));
    route.kind =
        keys.config.n_vocab == family.sigmoid_vocab ? uint32_t(route_sigmoid) : family.gating;
    if (number > 3)
        return fail(Code::unsupported,
                    "%s: experts are chosen by function %u, only 1 (softmax), 2 (sigmoid) and 3 "
                    "(softmax of the chosen) are supported",
                    keys.label().c_str(), number);
    if (number) route.kind = kKinds[number - 1];
    return {};
}

static Status read_router(const Keys& keys, const Family& family, RouteArgs& route)
{
    bool normalise = family.expert_norm == ExpertNorm::always;
    if (family.expert_norm == ExpertNorm::key) KS_TRY(keys.flag("expert_weights_norm", &normalise));
    route.normalise = normalise;
    KS_TRY(read_gating(keys, family, route));
    KS_TRY(keys.real("expert_weights_scale", 0, 1e6, &route.scale));
    if (route.scale == 0) route.scale = 1;
    KS_TRY(keys.integer("expert_group_count", 0, route.n_experts, &route.n_groups));
    route.n_groups = std::max(1u, route.n_groups);
    route.n_groups_used = route.n_groups;
    KS_TRY(keys.integer("expert_group_used_count", 0, route.n_groups, &route.n_groups_used));
    if (route.n_groups_used == 0) route.n_groups_used = route.n_groups;
    if (route.n_experts % route.n_groups == 0 &&
        route.n_used <= route.n_experts / route.n_groups * route.n_groups_used)
        return {};
    return fail(Code::invalid, "%s: %u of %u experts cannot come from %u of %u groups",
                keys.label().c_str(), route.n_used, route.n_experts, route.n_groups_used,
                route.n_groups);
}

// The width of an expert is a key or, in older files, that of the tensors.
static Status read_widths(const Keys& keys, uint32_t n_dense, ExpertsConfig& e)
{
    const std::string name = "blk." + std::to_string(n_dense) + ".ffn_down_exps.weight";
    const GgufTensor* down = keys.gguf.find_tensor(name);
    if (down) e.dim = uint32_t(std::min<uint64_t>(down->dims[0], kMaxExpertDim));
    KS_TRY(keys.integer("expert_feed_forward_length", 0, kMaxExpertDim, &e.dim));
    if (e.dim == 0)
        return fail(Code::invalid, "%s has neither '%s' nor a tensor '%s'", keys.label().c_str(),
                    keys.key("expert_feed_forward_length").c_str(), name.c_str());
    if (e.dim % tile_rows != 0)
        return fail(Code::unsupported, "%s: experts of %u values, a multiple of %u was expected",
                    keys.label().c_str(), e.dim, tile_rows);
    uint32_t n_shared = 0;
    KS_TRY(keys.integer("expert_shared_count", 0, kMaxSharedExperts, &n_shared));
    e.shared_dim = n_shared * std::min(e.dim, kMaxExpertDim / kMaxSharedExperts);
    return keys.integer("expert_shared_feed_forward_length", 0, kMaxExpertDim, &e.shared_dim);
}

Status read_experts(const Keys& keys, Config& c)
{
    ExpertsConfig& e = c.experts;
    uint32_t n_dense = 0, step = 1;
    KS_TRY(keys.integer("expert_count", 0, UINT32_MAX, &e.n));
    if (e.n <= 1) return e.n = 0, Status();
    if (!c.family->experts)
        return fail(Code::unsupported, "%s is a mixture of %u experts, %s models are dense",
                    keys.label().c_str(), e.n, c.family->name);
    if (e.n > route_max_experts)
        return fail(Code::unsupported, "%s is a mixture of %u experts, at most %u are supported",
                    keys.label().c_str(), e.n, route_max_experts);
    KS_TRY(keys.need({"expert_used_count"}));
    KS_TRY(keys.integer("expert_used_count", 1, std::min(e.n, route_max_used), &e.n_used));
    KS_TRY(keys.integer("leading_dense_block_count", 0, c.n_layers(), &n_dense));
    KS_TRY(keys.integer("interleave_moe_layer_step", 1, kMaxLayers, &step));
    KS_TRY(keys.integer("moe_latent_size", 0, kMaxExpertDim, &e.latent_dim));
    if (c.expert_cols() % tile_rows != 0)
        return fail(Code::unsupported,
                    "%s: experts in a width of %u, a multiple of %u was expected",
                    keys.label().c_str(), c.expert_cols(), tile_rows);
    e.route = {0, e.n, e.n_used, 0, 0, 1, 1, 1};
    KS_TRY(read_router(keys, *c.family, e.route));
    KS_TRY(read_widths(keys, (n_dense + step) / step * step - 1, e));
    c.ffn_dim = e.shared_dim;
    for (uint32_t il = 0; il < c.n_layers(); il++) {
        LayerConfig& layer = c.layers[il];
        layer.experts = layer.ffn_dim && il >= n_dense && (il + 1) % step == 0;
        const bool dense = !layer.experts || c.family->experts_beside_ffn;
        if (!dense) layer.ffn_dim = e.dim;
        if (dense) c.ffn_dim = std::max(c.ffn_dim, layer.ffn_dim);
    }
    return {};
}

} // namespace ks
