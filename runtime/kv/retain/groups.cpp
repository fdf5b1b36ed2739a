#include "runtime/kv/retain/groups.h"
#include "runtime/kv/retain/policies.h"

#include <algorithm>

namespace ks
{

void score_groups(float* score, uint32_t n_grouped, uint32_t group)
{
    for (float* end = score + n_grouped; score < end; score += group) {
        double sum = 0;
        for (uint32_t i = 0; i < group; i++) sum += double(score[i]);
        std::fill_n(score, group, float(sum / group));
    }
}

void keep_highest_groups(const float* score, uint32_t n, uint32_t n_grouped, uint32_t group, uint32_t n_keep, uint32_t* order,
                         uint8_t* keep)
{
    uint32_t n_units = 0;
    for (uint32_t i = 0; i < n; i += i < n_grouped ? group : 1) order[n_units++] = i;
    std::sort(order, order + n_units, [&](uint32_t a, uint32_t b) { return outranks(score, a, b); });
    for (uint32_t k = 0; k < n_units; k++) {
        const uint32_t size = order[k] < n_grouped ? group : 1;
        const bool stays = size <= n_keep;
        std::fill_n(keep + order[k], size, uint8_t(stays));
        n_keep -= stays ? size : 0;
    }
}

} // namespace ks
