// 2-D tensors in device buffers: rows of cols values. Activations and tables are f32, f16 or u32 and row-major, and so are
// caches if they are not coded (kernels/common/codecs.h); weights are in the tiles of kernels/common/formats.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ks
{

// Those of weights, then the codecs of keys and values, those of groups of rows last.
// clang-format off
enum class Format : uint8_t {
    f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, n_weights,
    q8 = n_weights, q4, turbo4, turbo3, turbo2, turbo2v, polar, polar5, kiviv, kivi2v, n_row_codecs,
    kivi = n_row_codecs, kivi2, count
};
// clang-format on

// What host code knows of a weight's format; the table is made from kernels/common/formats.h.
struct FormatInfo {
    const char* name;
    uint32_t ggml_type;                                // its number in a GGUF file
    uint32_t block;                                    // values per block of a row
    uint32_t block_bytes;                              // of one row, in the file
    uint32_t half_words, half_byte, words, words_byte; // see formats.h
};
const FormatInfo& format_info(Format format);
bool format_from_ggml(uint32_t ggml_type, Format* out);

// Bytes of a weight in tiles: rows rounded up to eight.
uint64_t weight_bytes(Format format, uint64_t rows, uint64_t cols);

// Lays `n_rows` rows as they are in the file (row_bytes each) out as tiles; the rows missing in the last tile are zero.
void weight_to_tiles(Format format, const uint8_t* file_rows, uint32_t n_rows, uint32_t cols, uint32_t* tiles);

// What host code knows of a format that a cache can have: f32, f16 and the codecs.
struct CodecInfo {
    const char* name;
    bool rotated;                             // rows must have been rotated
    uint32_t (*row_bytes)(uint32_t head_dim); // of a group's rows the mean
    uint32_t group = 1;                       // rows that are coded together
};
const CodecInfo& codec_info(Format format);
bool is_coded(Format format);                                          // by a codec; a multiple of 16 values in a row
uint64_t coded_bytes(Format format, uint64_t rows, uint32_t head_dim); // of a cache, a multiple of 64; rows: whole groups
uint32_t tail_bytes(Format format, uint32_t head_dim);                 // of a row, what fills no word
Format codec_of_values(Format format);                                 // values' own codec, where one of keys has such a twin

// A block of device memory. On the CPU `data` is the address itself.
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

    // CPU backends only.
    template <class T = float> T* ptr() const { return reinterpret_cast<T*>(static_cast<uint8_t*>(buffer.data) + offset); }
    explicit operator bool() const { return rows != 0; }
};

} // namespace ks
