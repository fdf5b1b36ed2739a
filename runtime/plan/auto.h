// The ladder of `auto`: the recipes that are tried in turn.
#pragma once

#include "runtime/kv/layout.h"

#include <vector>

namespace ks
{

struct Rung {
    Recipe recipe;
    double share; // of the context's tokens that the recipe must hold at least to be worth it
};

// shorter: the context is shorter than the model's. A recipe that leaves nothing open is the only
// rung.
std::vector<Rung> ladder(const ModelShape& model, const DeviceInfo& device, const Recipe& recipe,
                         bool shorter);

} // namespace ks
