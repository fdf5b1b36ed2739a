#include "runtime/kv/layout.h"

#include <algorithm>

namespace ks
{

const LayerShape* ModelShape::uncodable() const
{
    for (const LayerShape& layer : layers)
        if (!layer.can_code()) return &layer;
    return nullptr;
}

void CacheLayerSpec::code_slots(const Recipe& r, Format keys, Format values)
{
    k = keys;
    v = codec_of_values(values);
    const uint32_t in_group = codec_info(k).group;
    const uint32_t plain =
        r.sink_of(n_slots) + r.plain_recent_of(n_slots) + r.delta_of(n_slots) + in_group - 1;
    n_coded = (n_slots - std::min(n_slots, plain)) / in_group * in_group;
}

uint32_t CacheLayerSpec::slack(const Recipe& r, bool decodes) const
{
    if (!n_coded) return decodes ? r.delta_of(n_slots) - 1 : 0;
    // New tokens go to the plain pool. With groups, some of its slots hold tokens that wait until
    // their group is full.
    return group() > 1 ? r.delta_of(n_slots) - 1
                       : n_plain() - r.sink_of(n_slots) - r.plain_recent_of(n_slots);
}

// The slots of a head that pinned, recent and new tokens do not need. With fewer than kLeast there
// is no estimator, and the policy is a window.
uint32_t CacheLayerSpec::estimator_slots(const Recipe& r) const
{
    constexpr uint32_t kLeast = 4;
    if (!r.retain->estimates) return 0;
    const uint32_t n = n_slots - n_pinned - r.recent_of(n_slots) - slack(r, true);
    return n >= kLeast ? n : 0;
}

// Half of the slots are for sampled tokens, half for clusters of two.
SubgenShape CacheLayerSpec::estimator_shape(const Recipe& r, uint32_t il, uint32_t head) const
{
    constexpr uint32_t t = 2;
    const uint32_t n = estimator_slots(r), n_clusters = n / 2 / t;
    return {n_clusters, t, n - n_clusters * t, head_dim, true, r.seed, il, head};
}

uint64_t CacheLayerSpec::estimator_bytes(const Recipe& r) const
{
    return estimator_slots(r)
               ? align_up(Subgen::bytes_needed(estimator_shape(r, 0, 0)), kRegionAlign)
               : 0;
}

uint32_t read_stride(const CacheLayerSpec& s, const Recipe& recipe, uint32_t chunk)
{
    return s.n_read + recipe.read_last() / 2 + chunk;
}

// Halves the blocks of a selector, down to 8, until four fit between the first and last indexes.
uint32_t select_unit(const Recipe& recipe, uint32_t n_read, uint32_t n_first)
{
    uint32_t unit = recipe.select->unit;
    while (recipe.select->kind == select_blocks && unit > 8 &&
           4 * unit > n_read - n_first - recipe.read_last())
        unit /= 2;
    return unit;
}

static void place_selection(CacheLayer& layer, uint32_t chunk, Placer& device)
{
    const CacheLayerSpec& s = layer.spec;
    const Recipe& recipe = layer.recipe;
    const uint32_t stride = read_stride(s, recipe, chunk),
                   n_pages = (s.n_slots + select_page - 1) / select_page;
    layer.selection.table = device.take(1, s.n_kv_heads * stride);
    layer.selection.head_layout = device.take(s.n_kv_heads, layout_words);
    layer.selection.query = device.take(1, s.n_heads * s.head_dim);
    layer.selection.state = device.take(1, select_words);
    const uint32_t n_blocks = recipe.select->kind == select_blocks
                                  ? s.n_slots / select_unit(recipe, s.n_read, s.n_read / 2) + 2
                                  : 0;
    layer.selection.representatives =
        device.take(1, s.n_kv_heads * n_blocks * select_n_representatives);
    if (recipe.select->kind == select_pages)
        layer.selection.bounds = device.take(2 * s.n_kv_heads * n_pages, s.head_dim, Format::f16);
}

void CacheLayer::place(uint32_t chunk, Placer& device, Placer& host)
{
    const uint32_t n = spec.n_kv_heads * spec.n_slots, n_plain = spec.n_kv_heads * spec.n_plain(),
                   n_coded = n - n_plain;
    // Rows that end within a word, and those that a group is encoded from, are seen whole.
    const auto pool = [&](uint32_t rows, Format f) {
        const bool whole = tail_bytes(f, spec.head_dim) || (!is_coded(f) && spec.group() > 1);
        return whole ? device.take(rows, spec.head_dim, f) : device.pool(rows, spec.head_dim, f);
    };
    kv.k = pool(n_plain, plain_format(recipe.k));
    kv.coded_k = pool(n_coded, spec.k);
    kv.v = spec.values_in_keys ? kv.k : pool(n_plain, plain_format(recipe.v));
    kv.coded_v = spec.values_in_keys ? kv.coded_k : pool(n_coded, spec.v);
    if (!spec.table) return;
    if (spec.n_read) place_selection(*this, chunk, device);
    const bool merges = recipe.victims == Victims::merge;
    const uint64_t of_estimator = spec.estimator_bytes(recipe);
    kv.table = device.take(spec.n_bias_dims ? 2 : 1, n); // the second row becomes kv.positions
    kv.table.rows = 1;
    if (spec.n_bias_dims) {
        kv.positions = kv.table;
        kv.positions.offset += 4ull * n;
    }
    if (merges || of_estimator) kv.weights = device.take(n, 2);
    if (recipe.scores()) scores = device.take(1, n);
    if (recipe.select->scores) selection.scores = scores;
    begin = host.array<uint32_t>(spec.n_kv_heads);
    held = host.array<uint32_t>(spec.n_kv_heads);
    capacity = host.array<uint32_t>(spec.n_kv_heads);
    coded = host.array<uint32_t>(spec.n_kv_heads);
    slots = host.array<uint32_t>(n);
    positions = host.array<uint32_t>(n);
    if (merges) counts = host.array<uint32_t>(n);
    if (merges || of_estimator) weights = host.array<float>(2ull * n);
    if (of_estimator) estimators = host.array<uint8_t>(spec.n_kv_heads * of_estimator);
}

// Window layers are most layers of a model, and it does not bear 2 bits in all of them.
static Format window_codec(Format wanted)
{
    return wanted == Format::turbo2  ? Format::turbo3
           : wanted == Format::kivi2 ? Format::kivi
                                     : wanted;
}

static Format boundary_codec(Format wanted)
{
    return is_coded(wanted) ? Format::q8 : wanted;
}

// With few slots windows shrink as well; without slots= they shrink more than in proportion,
// because the layers that see everything lose more by a slot. A coded window takes fewer bytes per
// token, so it shrinks less. From 19/20 of the context on windows grow, to be whole with a slot for
// each token.
static uint32_t window_slots(uint32_t window, const Recipe& recipe, bool coded, uint32_t n_slots)
{
    if (recipe.slots || recipe.exact()) return std::min(window, n_slots);
    const uint32_t shrunk = std::min({window, n_slots, n_slots * (coded ? 3 : 1) / 8 + 48});
    if (!recipe.context) return shrunk;
    const uint32_t last = recipe.context / 20 + 1,
                   above = n_slots - std::min(n_slots, recipe.context - last);
    return shrunk +
           uint32_t(uint64_t(std::min(window, n_slots) - shrunk) * std::min(above, last) / last);
}

// A window layer holds only its window.
static CacheLayerSpec window_layer(CacheLayerSpec s, const ModelShape& model, const Recipe& recipe,
                                   uint32_t n_slots)
{
    const bool coded = recipe.codes() && !model.key_bias;
    s.n_slots = window_slots(model.window, recipe, coded, n_slots);
    s.window = s.n_slots;
    s.bounded = s.window < model.window && !recipe.exact();
    s.local = true;
    if (!coded) return s;
    // A coded window needs a table. If the window is whole, it also has slots for the tokens
    // between two evictions.
    const Recipe for_window_layer = recipe.for_window_layer();
    s.table = true;
    s.window = model.window;
    if (s.n_slots == model.window) s.n_slots += for_window_layer.delta_of(model.window) - 1;
    s.code_slots(for_window_layer, window_codec(recipe.k), window_codec(recipe.v));
    return s;
}

// The largest number of slots that one head can hold.
static uint32_t most_of_head(const CacheLayerSpec& s, const Recipe& recipe)
{
    return s.n_slots * (recipe.split == Split::ada ? s.n_kv_heads : 1);
}

// A layer that sees everything. selects: its selector chooses slots. boundary: it is among the
// first or the last such layers.
static CacheLayerSpec whole_layer(CacheLayerSpec s, const ModelShape& model, uint32_t n_rot,
                                  const Recipe& recipe, bool selects, bool boundary)
{
    s.bounded = !recipe.exact();
    s.table = (s.bounded && !recipe.is_ring()) || recipe.codes() || recipe.selects() ||
              recipe.ropes_on_read();
    if (selects && most_of_head(s, recipe) > recipe.read_slots()) s.n_read = recipe.read_slots();
    if (recipe.codes())
        s.code_slots(recipe, boundary ? boundary_codec(recipe.k) : recipe.k,
                     boundary ? boundary_codec(recipe.v) : recipe.v);
    s.n_bias_dims = s.n_coded && leaves_bias_out(model, recipe) ? n_rot : 0;
    s.n_rope_on_read = recipe.ropes_on_read() ? n_rot : 0;
    s.pairs = model.rope_pairs;
    return s;
}

std::vector<CacheLayerSpec> cache_specs(const ModelShape& model, const Recipe& recipe,
                                        uint32_t n_slots)
{
    const uint32_t n_layers = uint32_t(model.layers.size());
    std::vector<CacheLayerSpec> specs(n_layers);
    const bool two_bits = window_codec(recipe.k) != recipe.k;
    const uint32_t n_boundary = recipe.boundary == Recipe::kChosenByModel
                                    ? model.wide_normed_keys && two_bits
                                    : recipe.boundary;
    uint32_t n_whole = 0; // layers that see everything
    for (const LayerShape& layer : model.layers) n_whole += !layer.window;
    std::vector<uint32_t> split(n_whole);
    split_slots(recipe.split, n_whole, n_slots, std::min(n_slots, kLeastSlots), split.data());
    for (uint32_t il = 0, nth = 0; il < n_layers; il++) {
        const LayerShape& layer = model.layers[il];
        CacheLayerSpec s{layer.n_heads, layer.n_kv_heads, layer.head_dim, 0};
        s.sinks = model.sinks;
        s.values_in_keys = model.values_in_keys;
        s.n_readers = layer.n_readers;
        if (layer.window) {
            specs[il] = window_layer(s, model, recipe, n_slots);
            continue;
        }
        s.n_slots = split[nth++];
        const bool boundary = nth <= n_boundary || nth + n_boundary > n_whole;
        specs[il] = whole_layer(s, model, layer.n_rot, recipe,
                                recipe.selects() && il >= recipe.select->dense, boundary);
    }
    return specs;
}

ScratchShape cache_scratch(const ModelShape& model, const Recipe& recipe, uint32_t n_slots)
{
    ScratchShape shape;
    for (const LayerShape& layer : model.layers) {
        shape.n_heads = std::max(shape.n_heads, layer.n_heads);
        shape.n_kv_heads = std::max(shape.n_kv_heads, layer.n_kv_heads);
        shape.head_dim = std::max(shape.head_dim, layer.head_dim);
        const HeadShape heads{layer.n_heads, layer.n_kv_heads, layer.head_dim};
        if (std::find(shape.heads.begin(), shape.heads.end(), heads) == shape.heads.end())
            shape.heads.push_back(heads);
    }
    for (const CacheLayerSpec& s : cache_specs(model, recipe, n_slots)) {
        const uint32_t most = most_of_head(s, recipe);
        if (s.table && !s.local && recipe.scores())
            shape.scored_slots = std::max(shape.scored_slots, most);
        if (s.n_read) shape.selected_slots = std::max(shape.selected_slots, most);
        if (s.n_coded || recipe.k == Format::f32 || recipe.v == Format::f32)
            shape.coded_slots = std::max(shape.coded_slots, most);
    }
    return shape;
}

} // namespace ks
