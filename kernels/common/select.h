// The rules of `select`, which chooses the indexes of a head that a step reads: the first n_first,
// the last n_last, and of the candidates between them the units with the highest scores. Of units
// with equal scores the newer ones are taken. All devices call these rules.
#ifndef KS_COMMON_SELECT_H
#define KS_COMMON_SELECT_H

#include "kernels/common/lang.h"

// How a unit is scored. Scores of query heads are summed.
CONST uint select_soft = 0u;   // softmax over the candidates
CONST uint select_hard = 1u;   // votes: each query head votes for its best; reference only
CONST uint select_sum = 2u;    // logits; reference only
CONST uint select_pages = 3u;  // Quest: the highest logit that the bounds of a page's keys allow
CONST uint select_blocks = 4u; // InfLLM: mean logit of a block's representatives

CONST uint select_page = 16u;             // indexes
CONST uint select_n_representatives = 4u; // keys of a block with the highest attention scores

// The state of a head's choice, between calls.
CONST uint select_tokens = 0u;  // tokens of the last call's chunk
CONST uint select_n_since = 1u; // tokens since the choice
CONST uint select_choices = 2u; // choices made; 0: page bounds and representatives are unknown
CONST uint select_reuses = 3u;  // calls that used a choice again
CONST uint select_words = 4u;

// How many of a head's last tokens have units whose bounds or representatives are out of date.
FN uint tokens_to_refresh(uint must_reselect, uint choices, uint n_since_choice)
{
    return must_reselect != 0u || choices == 0u ? 0xFFFFFFFFu : n_since_choice;
}

// Units of a head that holds n_held indexes. 0: the head is read as a whole.
FN uint count_units(uint n_held, uint n_read, uint n_first, uint n_last, uint unit)
{
    return n_held > n_read ? (n_held - n_last + unit - 1u) / unit - n_first / unit : 0u;
}

// Unit `nth` has the indexes from unit_bound(nth) to unit_bound(nth + 1). All but the first begin
// at a multiple of their size.
FN uint unit_bound(uint nth, uint n_held, uint n_first, uint n_last, uint unit)
{
    const uint bound = (n_first / unit + nth) * unit, last = n_held - n_last;
    return nth == 0u ? n_first : bound < last ? bound : last;
}

// Units that are taken.
FN uint count_taken(uint n_read, uint n_first, uint n_last, uint unit)
{
    return (n_read - n_first - n_last) / unit;
}

// Maps the bits of a score to an integer of the same order.
FN uint ordered_key(uint score_bits)
{
    return score_bits ^ ((0u - (score_bits >> 31)) | 0x80000000u);
}

#endif
