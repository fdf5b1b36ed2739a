// Candidates that leave in groups, because their keys are coded together, beside single ones.
#pragma once

#include <cstdint>

namespace ks
{

// The first n_grouped scores become the means of their groups; who has to go takes the group along.
void score_groups(float* score, uint32_t n_grouped, uint32_t group);

// As keep_highest, of n candidates the first n_grouped of which are groups with one score each: from the highest on everyone stays
// for whom there is room. Where as many leave as are whole groups, exactly n_keep stay. order: (n) scratch.
void keep_highest_groups(const float* score, uint32_t n, uint32_t n_grouped, uint32_t group, uint32_t n_keep, uint32_t* order,
                         uint8_t* keep);

} // namespace ks
