// Helpers for tests of retain policies: scores by name, kept tokens, expected tokens.
#pragma once

#include "runtime/kv/policies/retain.h"
#include "tests/kv/random_values.h"

#include <algorithm>
#include <numeric>

namespace ks
{

using Floats = std::vector<float>;
using Indices = std::vector<uint32_t>;

inline Indices kept_of(const std::vector<uint8_t>& keep)
{
    Indices kept;
    for (uint32_t i = 0; i < keep.size(); i++)
        if (keep[i]) kept.push_back(i);
    return kept;
}

inline Indices highest(const Floats& score, uint32_t n_keep)
{
    Indices order(score.size());
    std::vector<uint8_t> keep(score.size(), 77);
    mark_top_k(score.data(), uint32_t(score.size()), n_keep, order.data(), keep.data());
    return kept_of(keep);
}

inline Floats scores(const char* name, const Candidates& c, const RetainOptions& o = {})
{
    Floats scratch(retain_scratch_floats(*find_retain(name), c.n, c.head_dim)), score(c.n);
    find_retain(name)->score(c, o, scratch.data(), score.data());
    return score;
}

// By sorting: the indices of the n_keep largest values, of equal ones the newer.
inline Indices top(const std::vector<double>& value, uint32_t n_keep)
{
    Indices order(value.size());
    std::iota(order.begin(), order.end(), 0u);
    std::reverse(order.begin(), order.end());
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return value[a] > value[b]; });
    order.resize(std::min<size_t>(n_keep, order.size()));
    std::sort(order.begin(), order.end());
    return order;
}

} // namespace ks
