// Helpers of the shaders of y = x W^T. The includer declares the arguments `a` and `part` and the
// buffers y and w.
#include "kernels/common/formats.h"

uint block_at(uint tile, uint k)
{
    return (tile * (a.cols / block) + k / block) * (half_words + tile_rows * words);
}

void put(uint t, uint row, float sum)
{
    uint at = t * a.rows + part.first_row + row;
    y[at] = a.accumulate != 0u ? y[at] + sum : sum;
}
