#include "runtime/plan/auto.h"

namespace ks
{

static Recipe mix(Recipe recipe, Format k, Format v)
{
    recipe.retain = find_retain("mix");
    recipe.k = k;
    recipe.v = v;
    return recipe;
}

// Whether a recipe without a policy evicts by mix when its slots are full.
static bool evicts_when_full(const Recipe& recipe)
{
    return recipe.codes() || recipe.selects() || (recipe.automatic && recipe.slots);
}

// A text climbs the ladder where every rung holds the same keys of the same tokens: not where codes
// leave out a bias, and not where heads or layers share slots unevenly.
static bool climbs(const ModelShape& model, const Recipe& recipe)
{
    return !model.key_bias && recipe.sink <= 16 && recipe.split == Split::uniform &&
           recipe.positions == Positions::absolute;
}

// `auto` first encodes and then evicts: each rung has fewer bits than the one before, and only the
// last one may hold less than kWhole of the tokens. A text may outgrow a context that is shorter
// than the model's. So the first rung then holds every token of the context, and evicts by mix when
// it is full.
std::vector<Rung> ladder(const ModelShape& model, const DeviceInfo& device, const Recipe& recipe,
                         bool shorter)
{
    const bool keeps_groups = codec_info(recipe.k).group > 1; // groups are never evicted
    if (!recipe.exact() || keeps_groups) return {{recipe, 0}};
    if (evicts_when_full(recipe)) return {{mix(recipe, recipe.k, recipe.v), 0}};
    if (!recipe.automatic) return {{recipe, 0}};
    const Recipe whole = shorter ? mix(recipe, recipe.k, recipe.v) : recipe;
    const bool can_code = !model.uncodable() && (!model.key_bias || device.adds_bias);
    if (!can_code) return {{whole, 1}, {mix(recipe, Format::f16, Format::f16), 0}};
    const bool can_climb = climbs(model, recipe);
    if (model.values_in_keys)
        return {{whole, 1, can_climb}, {mix(recipe, Format::q8, Format::q8), 0, can_climb}};
    std::vector<Rung> rungs = {
        {whole, 1, can_climb},
        {mix(recipe, Format::q8, Format::q8), kWhole, can_climb},
        {mix(recipe, Format::q8, Format::turbo4), kWhole, can_climb},
    };
    // Normed keys in wide heads lose much with one scale per row; q4 has one per 32 values.
    if (model.wide_normed_keys)
        rungs.push_back({mix(recipe, Format::q4, Format::turbo3), kWhole, can_climb});
    rungs.push_back({mix(recipe, Format::turbo4, Format::turbo3), 0, can_climb});
    return rungs;
}

} // namespace ks
