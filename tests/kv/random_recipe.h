// Recipes of every policy with options at random.
#pragma once

#include "runtime/kv/recipe.h"
#include "tests/kv/random_values.h"

namespace ks
{

// For at least 16 slots. The options leave some slots for candidates.
inline std::string random_recipe(RandomValues& random, uint32_t slots)
{
    const char* const policies[] = {"window", "sink",    "h2o",     "scissorhands", "tova",
                                    "snapkv", "keydiff", "kcenter", "mix",          "subgen"};
    const std::string name = policies[random.below(10)];
    const auto option = [&](const char* key, uint32_t value) {
        return std::string(",") + key + "=" + std::to_string(value);
    };
    std::string text = name + option("sink", random.below(slots / 4)) +
                       option("recent", 1 + random.below(slots / 2));
    if (random.below(2)) text += option("delta", 1 + random.below(slots / 3));
    if (random.below(2)) text += option("observe", 1 + random.below(40));
    if (random.below(2)) text += option("pool", 1 + 2 * random.below(5));
    if (name == "h2o" && random.below(2)) text += ",decay=0.9" + std::to_string(random.below(10));
    if (name == "h2o" && random.below(2)) text += ",lifetime=0";
    const bool subgen = name == "subgen";
    if (subgen) text += option("seed", random.below(1000));
    if (!subgen && random.below(3) == 0) text += ",victims=merge";
    const bool has_scores = !subgen && name != "tova" && name != "window" && name != "sink";
    const uint32_t split = random.below(4);
    if (split == 0) text += ",split=pyramid";
    if (split == 1 && has_scores) text += ",split=ada";
    return text;
}

// Options to append to a recipe: codecs of keys and values. Codecs in groups only if the recipe
// allows them.
inline std::string random_codecs(RandomValues& random, const std::string& recipe)
{
    const char* const codecs[] = {"f32",    "f16",    "q8",    "q4",   "turbo4",
                                  "turbo3", "turbo2", "polar", "kivi", "kivi2"};
    const bool alone = parse_recipe(recipe + ",k=kivi").ok();
    const std::string k = codecs[random.below(alone ? 10 : 8)], v = codecs[random.below(9)];
    return ",k=" + k + ",v=" + v + ",boundary=" + std::to_string(random.below(3));
}

} // namespace ks
