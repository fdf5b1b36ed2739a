// 2-D tensors in device buffers: `rows` rows of `cols` values. Activations, tables and uncoded
// caches are row-major f32, f16 or u32. Codecs of caches are in kernels/common/codecs.h. Weights
// use the tiles of kernels/common/formats.h.
#pragma once

#include "kernels/common/codecs.h"
#include "kernels/common/formats.h"

#include <cstddef>
#include <cstdint>

namespace ks
{

// Weight formats first, then codecs by their numbers.
#define KS_WEIGHTS(name) name,
#define KS_CODEC(name, number) name = n_weights - 2 + number,
#define KS_COUNT(name, number) +1
enum class Format : uint8_t {
    FORMATS(KS_WEIGHTS) n_weights,
    CODECS(KS_CODEC) GROUP_CODECS(KS_CODEC) count =
        n_weights CODECS(KS_COUNT) GROUP_CODECS(KS_COUNT)
};
#undef KS_WEIGHTS
#undef KS_CODEC
#undef KS_COUNT

// Properties of a weight format; the table is generated from kernels/common/formats.h.
struct FormatInfo {
    const char* name;
    uint32_t ggml_type;                                // type number in a GGUF file
    uint32_t block;                                    // values per block
    uint32_t block_bytes;                              // bytes per block in the file
    uint32_t half_words, half_byte, words, words_byte; // see formats.h
};
const FormatInfo& format_info(Format format);
bool format_from_ggml(uint32_t ggml_type, Format* out);

// Bytes of a weight in tiles; rows are rounded up to eight.
uint64_t weight_bytes(Format format, uint64_t rows, uint64_t cols);

// Converts `n_rows` rows of the file (row_bytes each) to tiles. Missing rows of the last tile
// become zero.
void weight_to_tiles(Format format, const uint8_t* file_rows, uint32_t n_rows, uint32_t cols,
                     uint32_t* tiles);

// Properties of a cache format: f32, f16 or a codec.
struct CodecInfo {
    const char* name;
    bool hadamard;                            // rows are coded after a Hadamard transform
    uint32_t (*row_bytes)(uint32_t head_dim); // the mean over a group for group codecs
    uint32_t group = 1;                       // rows that are coded together
};
const CodecInfo& codec_info(Format format);
bool is_coded(Format format);         // true for codecs; rows are then multiples of 16 values
uint32_t codec_number(Format format); // a cache format's number in kernels/common/codecs.h
Format codec_of_number(uint32_t number);
// Bytes of a cache, a multiple of 64. rows: whole groups.
uint64_t coded_bytes(Format format, uint64_t rows, uint32_t head_dim);
// Bytes at the end of a row that fill no 32-bit word.
uint32_t tail_bytes(Format format, uint32_t head_dim);
// The value codec that belongs to a key codec; the format itself if there is none.
Format codec_of_values(Format format);

// A block of device memory. On the CPU `data` is its address.
struct Buffer {
    void* data = nullptr;
    uint64_t bytes = 0;
};

struct Tensor {
    Buffer buffer;
    uint64_t offset = 0; // bytes into the buffer, a multiple of Backend::align()
    uint32_t rows = 0;
    uint32_t cols = 0;
    Format format = Format::f32;

    // For CPU backends only.
    template <class T = float>
    T* ptr() const
    {
        return reinterpret_cast<T*>(static_cast<uint8_t*>(buffer.data) + offset);
    }
    explicit operator bool() const { return rows != 0; }
};

// The part of a buffer that holds a tensor of this shape.
inline Tensor shaped(Tensor t, uint32_t rows, uint32_t cols)
{
    t.rows = rows;
    t.cols = cols;
    return t;
}

} // namespace ks
