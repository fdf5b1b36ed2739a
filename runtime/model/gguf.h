// The GGUF container: metadata and tensor infos of one file or of a split set. Every count and
// length is checked against the remaining bytes before use. Errors name the item and its offset.
#pragma once

#include "runtime/base/mapped_file.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor.h"
#include "runtime/text/vocab_source.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ks
{

enum class GgufType : uint32_t {
    u8,
    i8,
    u16,
    i16,
    u32,
    i32,
    f32,
    boolean,
    string,
    array,
    u64,
    i64,
    f64,
    count
};
struct GgufTypeInfo {
    const char* name;
    uint8_t bytes; // size of a value; of a string the size of its length; 0 for arrays
    bool integer, is_signed;
};
const GgufTypeInfo& gguf_type_info(GgufType type);

struct GgufValue {
    std::string_view key;
    GgufType type;
    GgufType element; // element type of an array; otherwise equal to `type`
    uint64_t count;   // elements of an array; otherwise 1
    // The value or first element; a string's first byte; in an array of strings the first length.
    const uint8_t* data;
    uint64_t bytes;  // size of the value or of all elements
    uint64_t offset; // of the key in the file, for error messages
};

// A tensor type that GGUF files may use, supported or not: its size can be checked.
struct GgmlType {
    uint32_t number;
    const char* name;
    uint32_t block;       // values per block
    uint32_t block_bytes; // bytes per block in the file
};
const GgmlType* find_ggml_type(uint32_t number); // null: unknown type

struct GgufTensor {
    std::string_view name;
    uint32_t n_dims;
    uint64_t dims[4]; // dims[0] = cols, dims[1] = rows, missing ones are 1
    Format format;    // valid only if `known`
    bool known; // this build supports the type; if not, it fails only when the tensor is needed
    uint32_t ggml_type;
    uint32_t file;        // index in the split set
    uint64_t offset;      // of the data in that file
    uint64_t bytes;       // of the data
    uint64_t info_offset; // of the tensor info in the file, for error messages

    std::string shape() const; // "cols x rows"
};

class Gguf
{
public:
    static Result<Gguf> open(const std::string& path); // also opens the other files of a split set

    // Of the first file of a split set.
    const std::vector<GgufValue>& values() const { return m_values; }
    const std::vector<GgufTensor>& tensors() const { return m_tensors; }
    const GgufValue* find(std::string_view key) const;
    const GgufTensor* find_tensor(std::string_view name) const;
    const std::string& path() const { return m_files[0].path(); }
    std::string label(uint32_t file = 0) const; // file name without folder, short and printable
    uint32_t version() const { return m_version; }
    uint64_t file_bytes() const; // of all files

    // Typed access. A key of the wrong type is an error that names it. A missing key leaves *out
    // unchanged and sets *found to false.
    // get_u32: any integer type, if the value fits. get_f64: f32 or f64.
    Status get_u32(std::string_view key, uint32_t* out, bool* found = nullptr) const;
    Status get_f64(std::string_view key, double* out, bool* found = nullptr) const;
    // One number, or an array of 1 to max_count of them.
    Status get_f64s(std::string_view key, uint64_t max_count, std::vector<double>* out,
                    bool* found = nullptr) const;
    Status get_string(std::string_view key, std::string_view* out, bool* found = nullptr) const;
    Status get_bool(std::string_view key, bool* out, bool* found = nullptr) const;
    // One integer, or an array of 1 to max_count integers or booleans.
    Status get_u32s(std::string_view key, uint64_t max_count, std::vector<uint32_t>* out,
                    bool* found = nullptr) const;

    Result<VocabSource> vocab() const; // views: valid until unmap()
    Status read(const GgufTensor& tensor, uint64_t offset, void* out, uint64_t bytes) const;
    // Hints for the system's cache, with offsets in the tensor: these bytes are read soon; what its
    // file has more than `distance` before an offset, or all files, is read no more.
    void prefetch(const GgufTensor& tensor, uint64_t offset, uint64_t bytes) const;
    void uncache_before(const GgufTensor& tensor, uint64_t offset, uint64_t distance) const;
    void uncache() const;
    MappedFile take_file(uint32_t file) { return std::move(m_files[file]); } // the last use
    void unmap(); // drops keys and names; tensors() and read() still work

    // Prefix of errors about a key or tensor: "model.gguf: key 'general.name' at offset 312".
    std::string location_of(const GgufValue& value) const;
    std::string location_of(const GgufTensor& tensor) const;

private:
    static Result<Gguf> open_one(MappedFile file);
    Status open_parts(uint32_t n_parts);
    const GgufValue* find(std::string_view key, bool* found) const;
    Status wrong_type(const GgufValue& value, const char* expected) const;
    Status u32_at(const GgufValue& value, uint64_t index, uint32_t* out) const;
    Status get_array(std::string_view key, GgufType element, const GgufValue** out) const;
    Status get_ids(std::string_view key, IdTable* out) const;

    std::vector<MappedFile> m_files;
    std::vector<GgufValue> m_values;
    std::vector<GgufTensor> m_tensors;
    std::vector<uint32_t> m_value_order, m_tensor_order; // indexes sorted by name
    uint32_t m_version = 0;
};

} // namespace ks
