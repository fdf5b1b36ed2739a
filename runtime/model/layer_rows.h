// The embeddings for each layer: a matrix with a row per token, which holds those of all layers. It
// may be most of a file's bytes, so it stays there, and a step reads the rows of its tokens.
#pragma once

#include "runtime/base/mapped_file.h"
#include "runtime/model/config.h"

namespace ks
{

class LayerRows
{
public:
    static uint64_t row_bytes(const Config& c); // of the file
    static uint64_t tile_bytes(const Config& c, uint32_t n_tokens);

    LayerRows() = default;
    // file: has the matrix at `offset`, and is kept open. memory: for the rows of a chunk.
    LayerRows(MappedFile file, uint64_t offset, uint8_t* memory)
        : m_file(std::move(file)), m_offset(offset), m_memory(memory)
    {
    }
    // Reads the rows of n tokens as tiles: row n_layers * t + il is that of token t for layer il.
    Status read(const Config& c, const uint32_t* ids, uint32_t n, uint32_t* tiles) const;

private:
    MappedFile m_file;
    uint64_t m_offset = 0;
    uint8_t* m_memory = nullptr;
};

} // namespace ks
