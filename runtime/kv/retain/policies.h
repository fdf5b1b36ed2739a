// The scores of the table in retain.cpp; what each one means stands where it is defined.
#pragma once

#include "runtime/kv/retain/retain.h"

namespace ks
{

using Score = void(const Candidates& c, const RetainOptions& o, float* scratch, float* score);
Score score_position, score_h2o, score_below, score_signal, score_snapkv, score_keydiff, score_mix, score_kcenter;

// Whether a outranks b: the higher score, among equal ones the newer. A NaN is below everything.
inline bool outranks(const float* score, uint32_t a, uint32_t b)
{
    const bool a_known = score[a] == score[a], b_known = score[b] == score[b];
    if (a_known != b_known) return a_known;
    return a_known && score[a] != score[b] ? score[a] > score[b] : a > b;
}

} // namespace ks
