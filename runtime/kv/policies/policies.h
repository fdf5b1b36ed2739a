// The score functions of the table in retain.cpp. Each is described at its definition.
#pragma once

#include "runtime/kv/policies/retain.h"

#include <cstring>

namespace ks
{

using Score = void(const Candidates& c, const RetainOptions& o, float* scratch, float* score);
Score score_position, score_h2o, score_below, score_attention, score_snapkv, score_keydiff,
    score_mix, score_kcenter;

// Maps a score to an integer of the same order. NaN is below everything.
inline uint32_t order_bits(float score)
{
    uint32_t bits = 0;
    score += 0.0f; // turns -0 into +0
    if (score == score) memcpy(&bits, &score, 4), bits = bits >> 31 ? ~bits : bits | 1u << 31;
    return bits;
}

// Whether candidate a outranks b: by its score, on ties as the newer one.
inline bool outranks(const float* score, uint32_t a, uint32_t b)
{
    const uint32_t a_bits = order_bits(score[a]), b_bits = order_bits(score[b]);
    return a_bits != b_bits ? a_bits > b_bits : a > b;
}

} // namespace ks
