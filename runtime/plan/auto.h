// The ladder of `auto`: the recipes that are tried in turn. The first that holds the context is the
// last that a text climbs to.
#pragma once

#include "runtime/kv/layout.h"

#include <vector>

namespace ks
{

constexpr double kWhole = 0.95; // the share of tokens that counts as all of them

struct Rung {
    Recipe recipe;
    double share; // the smallest share of the context's tokens for which the rung is the last
    bool climbs = false; // the rungs before it can be climbed
};

// shorter: the context is shorter than the model's. A recipe that leaves nothing open is the only
// rung of its ladder.
std::vector<Rung> ladder(const ModelShape& model, const DeviceInfo& device, const Recipe& recipe,
                         bool shorter);

} // namespace ks
