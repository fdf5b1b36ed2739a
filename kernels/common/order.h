// The order of scores in a top-k, the same on all devices. Of equal scores the newer one is taken.
#ifndef KS_COMMON_ORDER_H
#define KS_COMMON_ORDER_H

#include "kernels/common/lang.h"

// Maps the bits of a score to an integer of the same order. Top-k searches these by digits.
FN uint ordered_key(uint score_bits)
{
    return score_bits ^ ((0u - (score_bits >> 31)) | 0x80000000u);
}

// Whether a score is among the k highest. `threshold` is the key of the k-th highest score. Of the
// scores equal to it, the oldest n_left_out are not taken; n_older_equal are older than this one.
FN bool in_top_k(uint key, uint threshold, uint n_older_equal, uint n_left_out)
{
    return key > threshold || (key == threshold && n_older_equal >= n_left_out);
}

#endif
