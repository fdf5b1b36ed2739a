// Helpers of the shaders of y = y_scale (x W^T). The includer declares the arguments `a`, `part`
// and y_scale and the buffers y and w.
#include "kernels/common/formats.h"

uint block_at(uint tile, uint k)
{
    return (tile * (a.cols / block) + k / block) * (half_words + tile_rows * words);
}

void put(uint t, uint row, float sum)
{
    uint at = t * a.rows + part.first_row + row;
    sum *= y_scale;
    y[at] = a.accumulate != 0u ? y[at] + sum : sum;
}
