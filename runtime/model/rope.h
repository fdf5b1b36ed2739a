// RoPE frequencies, and how they change when the context is extended beyond the trained one.
#pragma once

#include "runtime/kv/recipe.h"
#include "runtime/model/config.h"

#include <vector>

namespace ks
{

// The factor of cos and sin when YaRN extends the context by `factor`, weakened by the key
// yarn_log_multiplier.
double yarn_mscale(double factor, double log_multiplier);

// Changes the config as if the model had been trained for `recipe.stretch` times its context.
Status stretch_context(const Recipe& recipe, Config& config);

// Radians per position, one value per pair. divisors: empty, or one per pair.
std::vector<double> rope_frequencies(const Config& c, const RopeConfig& rope,
                                     const std::vector<double>& divisors);

} // namespace ks
