#include "runtime/model/rope.h"

#include <algorithm>
#include <cmath>

namespace ks
{

double yarn_mscale(double factor, double log_multiplier)
{
    return (0.1 * std::log(factor) + 1) / (0.1 * log_multiplier * std::log(factor) + 1);
}

Status stretch_context(const Recipe& recipe, Config& c)
{
    const double stretch = recipe.stretch;
    if (recipe.rope == RopeScaling::file) return {};
    if (c.rope_longrope)
        return fail(Code::unsupported, "recipe: rope= on a model with longrope scaling, which has "
                                       "factors of its own for long texts; "
                                       "possible: rope=file");
    if (recipe.rope == RopeScaling::ntk && c.n_rot < 4)
        return fail(Code::unsupported,
                    "recipe: rope=ntk for %u values that rotate, at least 4 were expected; "
                    "possible: rope=linear",
                    c.n_rot);
    if (recipe.rope == RopeScaling::linear) c.rope_factor *= stretch;
    if (recipe.rope == RopeScaling::ntk)
        c.rope_base *= std::pow(stretch, double(c.n_rot) / (c.n_rot - 2));
    if (recipe.rope == RopeScaling::yarn) {
        c.rope_mscale *= yarn_mscale(c.rope_yarn * stretch, c.rope_yarn_log) /
                         yarn_mscale(c.rope_yarn, c.rope_yarn_log);
        c.rope_yarn *= stretch;
    }
    c.n_context = uint32_t(std::min(c.n_context * stretch, double(kMaxContext)));
    return {};
}

static std::vector<double> frequencies(const Config& c, uint32_t n_rot,
                                       const std::vector<double>& divisors)
{
    constexpr double kTwoPi = 6.283185307179586;
    std::vector<double> f(n_rot / 2);
    // The pair that makes so many full rotations within the original context.
    const auto pair_of = [&](double rotations) {
        return n_rot * std::log(c.rope_original_context / (rotations * kTwoPi)) /
               (2 * std::log(c.rope_base));
    };
    const double fast = std::max(0.0, std::floor(pair_of(c.rope_yarn_fast)));
    const double slow = std::min(n_rot - 1.0, std::ceil(pair_of(c.rope_yarn_slow)));
    for (uint32_t i = 0; i < f.size(); i++) {
        f[i] = std::pow(c.rope_base, -2.0 * i / n_rot) / c.rope_factor /
               (divisors.empty() ? 1.0 : divisors[i]);
        if (c.rope_yarn == 1) continue;
        const double slowness =
            std::min(1.0, std::max(0.0, (i - fast) / std::max(0.001, slow - fast)));
        f[i] = f[i] / c.rope_yarn * slowness + f[i] * (1 - slowness);
    }
    return f;
}

std::vector<double> rope_frequencies(const Config& c, const std::vector<double>& divisors)
{
    return frequencies(c, c.n_rot, divisors);
}

std::vector<double> rope_frequencies_window(const Config& c, const std::vector<double>& divisors)
{
    Config window = c;
    window.rope_base = c.rope_base_window;
    if (!c.family->window_unscaled) return frequencies(window, c.n_rot_window, divisors);
    window.rope_factor = window.rope_yarn = 1;
    return frequencies(window, c.n_rot_window, {});
}

double rope_mscale_window(const Config& c)
{
    return c.family->window_unscaled ? 1 : c.rope_mscale;
}

} // namespace ks
