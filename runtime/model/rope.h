// RoPE frequencies, and how they change when the context is extended beyond the trained one.
#pragma once

#include "runtime/kv/recipe.h"
#include "runtime/model/config.h"

#include <vector>

namespace ks
{

// YaRN extends the context by `factor`, after `before`: scales cos and sin, less so with
// rope_yarn_log. In latent attention it scales logits, and only with rope_yarn_log.
void scale_by_yarn(double factor, double before, Config& config);

// Changes the config as if the model had been trained for `recipe.stretch` times its context.
Status stretch_context(const Recipe& recipe, Config& config);

// Radians per position, one value per pair. divisors: empty, or one per pair.
std::vector<double> rope_frequencies(const Config& c, const RopeConfig& rope,
                                     const std::vector<double>& divisors);

} // namespace ks
