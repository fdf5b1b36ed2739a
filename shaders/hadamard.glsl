// The Hadamard transform of a head in shared memory, by one workgroup: the head times H D, or back.
float x[1]; // codecs.h names x, w and row, but no codec is called here
uint w[1], row[1];
#include "kernels/common/codecs.h"

shared float head[codec_max_dim];

// The size of the block that dim i is in, and the block's first dim in `base`. Blocks are powers of
// two in falling order.
uint block_of(uint i, uint d, out uint base)
{
    base = 0u;
    uint block = hadamard_block(0u, d);
    while (i >= base + block) {
        base += block;
        block = hadamard_block(base, d);
    }
    return block;
}

// Transforms head[0] .. head[d - 1]. A thread may write its values (every n_threads-th dim) without
// a barrier before, and read them without a barrier after.
void hadamard_head(uint d, bool back)
{
    uint base;
    for (uint i = THREAD; i < d && !back; i += n_threads) head[i] *= hadamard_sign(i);
    barrier();
    // Butterflies of dims 1, 2, 4, ... apart, in all blocks that are long enough.
    for (uint apart = 1u; 2u * apart <= d; apart *= 2u) {
        for (uint i = THREAD; i < d; i += n_threads) {
            uint block = block_of(i, d, base);
            if (2u * apart > block || ((i - base) & apart) != 0u) continue;
            precise float sum = head[i] + head[i + apart], difference = head[i] - head[i + apart];
            head[i] = sum;
            head[i + apart] = difference;
        }
        barrier();
    }
    for (uint i = THREAD; i < d; i += n_threads) {
        float v = MUL(head[i], hadamard_scale(block_of(i, d, base)));
        head[i] = back ? v * hadamard_sign(i) : v;
    }
}
