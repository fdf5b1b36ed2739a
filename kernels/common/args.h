// Kernel arguments. Each struct is the push-constant block of shaders/<op>.comp and the by-value argument of
// kernels/cuda/<op>.cu. 4-byte members only, 128 bytes at most (Vulkan's guaranteed minimum). Shapes are here; what
// changes with every step (token ids, positions, slots, angles) is in buffers.
#ifndef KS_COMMON_ARGS_H
#define KS_COMMON_ARGS_H

#include "kernels/common/lang.h"

CONST uint act_silu = 0u; // x * sigmoid(x)
CONST uint act_gelu = 1u; // the tanh form

CONST uint rope_neighbours = 0u; // rotates (2i, 2i + 1)
CONST uint rope_halves = 1u;     // rotates (i, i + n_rot / 2)

struct EmbedArgs {
    uint n_tokens;
    uint dim;
    float scale; // sqrt(dim) in gemma, 1 elsewhere
};

struct RmsnormArgs {
    uint rows; // tokens, or tokens * heads for a per-head norm
    uint dim;
    float eps;
};

struct MatmulArgs {
    uint n_tokens;
    uint rows; // of the weight: values per token of y
    uint cols; // of the weight: values per token of x
    uint accumulate; // 1: y += W x, 0: y = W x
};

struct RopeArgs {
    uint n_tokens;
    uint n_heads;
    uint head_dim;
    uint n_rot; // leading values of a head that rotate; the rest pass
    uint pairs; // rope_neighbours or rope_halves
};

struct GluArgs {
    uint n; // values
    uint act;
};

struct AddArgs {
    uint rows;
    uint cols;
    uint b_rows; // 1: b is a bias added to every row, else rows
};

struct SoftcapArgs {
    uint n;
    float cap; // x = cap * tanh(x / cap)
};

struct KvWriteArgs {
    uint n_tokens;
    uint n_kv_heads;
    uint head_dim;
    uint n_slots; // per head
};

struct AttentionArgs {
    uint n_tokens;
    uint n_heads;
    uint n_kv_heads;
    uint head_dim;
    uint n_slots; // per head; the slot of position p is p % n_slots
    uint window;  // 0: every earlier position is visible; else key j is visible to query i if i - j < window
    float scale;
};

struct ArgmaxArgs {
    uint rows;
    uint cols;
};

#ifndef GLSL
#define KS_ARGS(T) static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 128, #T)
KS_ARGS(EmbedArgs);
KS_ARGS(RmsnormArgs);
KS_ARGS(MatmulArgs);
KS_ARGS(RopeArgs);
KS_ARGS(GluArgs);
KS_ARGS(AddArgs);
KS_ARGS(SoftcapArgs);
KS_ARGS(KvWriteArgs);
KS_ARGS(AttentionArgs);
KS_ARGS(ArgmaxArgs);
#undef KS_ARGS
#endif

#endif
