#include "runtime/model/rope.h"

#include <algorithm>
#include <cmath>

namespace ks
{

static double yarn_mscale(double factor, double multiplier)
{
    return multiplier * std::log(factor) + 1;
}

void scale_by_yarn(double factor, double before, Config& c)
{
    const double log = c.rope_yarn_log;
    if (c.latent.dim) { // its files have a tenth of the multiplier
        const double scale = yarn_mscale(factor, log) / yarn_mscale(before, log);
        c.attention_scale *= float(scale * scale);
        return;
    }
    const auto weakened = [&](double f) { return yarn_mscale(f, 0.1) / yarn_mscale(f, 0.1 * log); };
    c.rope.mscale *= weakened(factor) / weakened(before);
}

Status stretch_context(const Recipe& recipe, Config& c)
{
    const double stretch = recipe.stretch;
    if (recipe.rope == RopeScaling::file) return {};
    if (c.rope_longrope)
        return fail(Code::unsupported, "recipe: rope= on a model with longrope scaling, which has "
                                       "factors of its own for long texts; "
                                       "possible: rope=file");
    if (recipe.rope == RopeScaling::ntk && c.rope.n_rot < 4)
        return fail(Code::unsupported,
                    "recipe: rope=ntk for %u values that rotate, at least 4 were expected; "
                    "possible: rope=linear",
                    c.rope.n_rot);
    if (recipe.rope == RopeScaling::linear) c.rope.factor *= stretch;
    if (recipe.rope == RopeScaling::ntk)
        c.rope.base *= std::pow(stretch, double(c.rope.n_rot) / (c.rope.n_rot - 2));
    if (recipe.rope == RopeScaling::yarn) {
        scale_by_yarn(c.rope.yarn * stretch, c.rope.yarn, c);
        c.rope.yarn *= stretch;
    }
    c.n_context = uint32_t(std::min(c.n_context * stretch, double(kMaxContext)));
    return {};
}

std::vector<double> rope_frequencies(const Config& c, const RopeConfig& rope,
                                     const std::vector<double>& divisors)
{
    constexpr double kTwoPi = 6.283185307179586;
    const bool divided = rope.divided && !divisors.empty();
    const uint32_t n_rot = rope.n_rot;
    std::vector<double> f(n_rot / 2);
    // The pair that makes so many full rotations within the original context.
    const auto pair_of = [&](double rotations) {
        return n_rot * std::log(c.rope_original_context / (rotations * kTwoPi)) /
               (2 * std::log(rope.base));
    };
    const double fast = std::max(0.0, std::floor(pair_of(c.rope_yarn_fast)));
    const double slow = std::min(n_rot - 1.0, std::ceil(pair_of(c.rope_yarn_slow)));
    for (uint32_t i = 0; i < f.size(); i++) {
        f[i] = std::pow(rope.base, -2.0 * i / n_rot) / rope.factor / (divided ? divisors[i] : 1.0);
        if (rope.yarn == 1) continue;
        const double slowness =
            std::min(1.0, std::max(0.0, (i - fast) / std::max(0.001, slow - fast)));
        f[i] = f[i] / rope.yarn * slowness + f[i] * (1 - slowness);
    }
    return f;
}

} // namespace ks
