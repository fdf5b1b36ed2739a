// The angles of RoPE: how fast each pair of a head turns, and how that changes where a text is longer than what was trained.
#pragma once

#include "runtime/kv/recipe.h"
#include "runtime/model/config.h"

#include <vector>

namespace ks
{

// On cos and sin, where YaRN divides by `factor`.
double yarn_mscale(double factor);

// Makes the model one that was trained for a context `recipe.stretch` times as long.
Status stretch_context(const Recipe& recipe, Config& config);

// Radians per position of every pair. divisors: empty, or of each pair.
std::vector<double> rope_frequencies(const Config& c, const std::vector<double>& divisors);
std::vector<double> rope_frequencies_window(const Config& c); // of window layers

} // namespace ks
