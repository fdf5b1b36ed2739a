// The smallest working model: one layer, width 32 or a block, six tokens.
#pragma once

#include "tests/model/gguf_builder.h"

#include <algorithm>

namespace ks
{

// Matrices have the ggml type `type` (2: q4_0), with plausible values.
inline GgufBuilder smallest_model(const std::string& family, uint32_t type = 2)
{
    GgufBuilder b = small_model(family, 1);
    const uint32_t wide = std::max(find_ggml_type(type)->block / 32, 1u);
    if (wide > 1) b.u32(family + ".embedding_length", 32 * wide);
    b.u32(family + ".feed_forward_length", 32 * wide)
        .string("tokenizer.ggml.pre", "gpt-2")
        .strings("tokenizer.ggml.merges", {"a b", "ab c"});
    b.strings("tokenizer.ggml.tokens", {"a", "b", "c", "ab", "abc", "<|im_end|>"});
    uint32_t random = 1;
    for (GgufBuilder::TensorInfo& t : b.tensors) {
        if (t.name.find(".ffn_") != Bytes::npos && t.n_dims == 2)
            for (uint64_t& dim : t.dims) dim = dim == 64 ? 32 : dim == 128 ? 64 : dim;
        for (uint64_t& dim : t.dims) dim *= dim == 6 ? 1 : wide;
        const bool matrix = t.n_dims == 2;
        const GgmlType* format = find_ggml_type(matrix ? type : 0);
        uint64_t n = 1;
        for (uint64_t dim : t.dims) n *= dim;
        t.type = format->number;
        t.values.clear();
        for (uint64_t i = 0; i < n / format->block; i++) {
            Bytes block = matrix ? Bytes(format->block_bytes, 0) : le(1.f);
            for (size_t at = 2; matrix && at < block.size(); at++)
                block[at] = char((random = random * 1664525 + 1013904223) >> 24);
            if (matrix && type == 39)
                block[0] = 120; // the exponent of mxfp4, also 2^-7
            else if (matrix && type == 40)
                block.replace(0, 4, "\x08\x08\x08\x08", 4); // scales of nvfp4, 2^-6
            else if (matrix)
                block.replace(0, 2, "\0\x20", 2); // a scale of 2^-7
            t.values += block;
        }
    }
    return b;
}

} // namespace ks
