// How the products of weights with activations are split into chunks for the threads.
#pragma once

#include "kernels/cpu/cpu_kernels.h"
#include "runtime/base/backend.h"

namespace ks
{

// The tokens of a block of activations, at most `most`. Blocks have about the same size.
uint32_t token_block(uint32_t n_tokens, uint32_t cols, uint32_t most);

// The chunks of all targets, numbered consecutively.
struct MatmulChunks {
    static constexpr int kMaxTargets = 4;
    struct Place {
        int target;
        uint32_t tile; // the first of the chunk
    };
    uint32_t tile_words[kMaxTargets], tiles[kMaxTargets]; // words of a tile, tiles of a chunk
    uint32_t first[kMaxTargets + 1] = {}; // chunk of each target, then the number of all

    MatmulChunks(const MatmulArgs& a, const MatmulTarget* targets, int n_targets);
    Place place(uint32_t chunk) const
    {
        int i = 0;
        while (chunk >= first[i + 1]) i++;
        return {i, (chunk - first[i]) * tiles[i]};
    }
    // The task of a chunk of the weight w, without tokens.
    MatmulTask task(const Place& at, const Tensor& w, uint32_t cols) const;
};

} // namespace ks
