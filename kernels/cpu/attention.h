// The attention kernels of one instruction set.
#pragma once

#include "kernels/cpu/attention_score.h"
#include "kernels/cpu/attention_split.h"

// The table of one instruction set.
#define KS_ATTENTION_KERNELS(S)                                                                                                            \
    {                                                                                                                                      \
        {{attention_chunk<S, false, false>, attention_chunk<S, false, true>},                                                              \
         {attention_chunk<S, true, false>, attention_chunk<S, true, true>}},                                                               \
            {{attention_split<S, false, false>, attention_split<S, false, true>},                                                          \
             {attention_split<S, true, false>, attention_split<S, true, true>}},                                                           \
            attention_begin<S>, attention_fold<S>, attention_finish<S>, {score_tile<S, false>, score_tile<S, true>}, score_kept_logits<S>  \
    }
