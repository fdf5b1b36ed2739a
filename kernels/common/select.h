// The rules of `select`, which chooses the indexes of a head that a step reads: the first n_first,
// the last n_last, and of the candidates between them the units with the highest scores. order.h
// has the order of scores. All devices call these rules.
#ifndef KS_COMMON_SELECT_H
#define KS_COMMON_SELECT_H

#include "kernels/common/order.h"

// How a unit is scored. The scores of a KV head's query heads are added.
CONST uint select_soft = 0u;   // softmax over the candidates
CONST uint select_hard = 1u;   // votes: each query head votes for its best; reference only
CONST uint select_sum = 2u;    // logits; reference only
CONST uint select_pages = 3u;  // Quest: the highest logit that the bounds of a page's keys allow
CONST uint select_blocks = 4u; // InfLLM: mean logit of a block's representatives

CONST uint select_page = 16u;             // indexes
CONST uint select_n_representatives = 4u; // keys of a block with the highest attention scores

// Words of the state that is kept between calls, one for all heads.
CONST uint select_tokens = 0u;  // tokens of the last call's chunk
CONST uint select_n_since = 1u; // tokens since the choice
CONST uint select_choices = 2u; // choices made; 0: page bounds and representatives are unknown
CONST uint select_reuses = 3u;  // calls that used a choice again
CONST uint select_words = 4u;

// Whether the last choice may be reused, if the queries are similar enough. n_since_choice: tokens
// since the choice. It is for at most n_last / 2 tokens, since these are read anyway.
FN bool may_reuse_choice(float reuse, uint must_reselect, uint n_since_choice, uint n_last)
{
    return reuse < 1.f && must_reselect == 0u && 2u * n_since_choice <= n_last;
}

// How many of a head's last tokens have units whose bounds or representatives are out of date.
FN uint tokens_to_refresh(uint must_reselect, uint choices, uint n_since_choice)
{
    return must_reselect != 0u || choices == 0u ? 0xFFFFFFFFu : n_since_choice;
}

// The first page whose bounds are out of date, when those of the last n_to_refresh tokens are.
FN uint first_page_to_refresh(uint n_held, uint n_to_refresh)
{
    return n_held > n_to_refresh ? (n_held - n_to_refresh) / select_page : 0u;
}

// Units of a head that holds n_held indexes. 0: the head is read as a whole.
FN uint count_units(uint n_held, uint n_read, uint n_first, uint n_last, uint unit)
{
    return n_held > n_read ? (n_held - n_last + unit - 1u) / unit - n_first / unit : 0u;
}

// Unit `nth` has indexes [unit_bound(nth), unit_bound(nth + 1)). All units but the first begin at a
// multiple of `unit`.
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

// Representatives of a block of n indexes.
FN uint count_representatives(uint n)
{
    return n < select_n_representatives ? n : select_n_representatives;
}

#endif
