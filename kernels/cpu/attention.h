// The attention kernels of one instruction set.
#pragma once

#include "kernels/cpu/attention_general.h"
#include "kernels/cpu/attention_score.h"
#include "kernels/cpu/attention_select.h"

// The table of one instruction set.
#define KS_ATTENTION_KERNELS(S)                                                                    \
    {                                                                                              \
        attention_chunk<S>, attention_general<S>, attention_split<S>, attention_begin<S>,          \
            attention_combine<S>, attention_finish<S>, score_tile<S>, score_kept_logits<S>,        \
            select_logits<S>, select_softmax<S>, page_bounds<S>, page_votes<S>                     \
    }
