// A head by H D, or back, in shared memory: a workgroup's work. head is as the threads put it there.
float x[1]; // for the codecs, none of which is called
uint w[1], row[1];
#include "kernels/common/codecs.h"

shared float head[codec_max_dim];

// The block that dim i is in, of powers of two in falling order: it begins where the bits above them say.
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

// Each thread finds its own values there again.
void hadamard_head(uint d, bool back)
{
    uint base;
    for (uint i = THREAD; i < d && !back; i += n_threads) head[i] *= hadamard_sign(i);
    barrier();
    // Neighbours 1, 2, 4, ... apart, in all blocks that are so long.
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
