// Writes small GGUF files for tests, valid and invalid ones.
#pragma once

#include "runtime/model/gguf.h"
#include "tests/files.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <doctest/doctest.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace ks
{

using Bytes = std::string;

template <class T>
Bytes le(T value)
{
    return Bytes(reinterpret_cast<const char*>(&value), sizeof value);
}
inline Bytes le_string(const std::string& s)
{
    return le<uint64_t>(s.size()) + s;
}

class GgufBuilder
{
public:
    // Places the tensor after the previous one. No valid offset, because it is not aligned.
    static constexpr uint64_t kNext = 12345;
    struct Key {
        Bytes name; // with its length, which may be wrong
        uint32_t type;
        Bytes value;
    };
    struct TensorInfo {
        Bytes name; // with its length
        uint32_t n_dims;
        std::vector<uint64_t> dims;
        uint32_t type;
        Bytes values;
        uint64_t offset = kNext; // offset in the data section
    };

    Bytes magic = "GGUF";
    uint32_t version = 3;
    uint64_t alignment = 32;
    std::vector<Key> keys;
    std::vector<TensorInfo> tensors;
    Bytes tail;                          // bytes after the last tensor
    int64_t n_keys = -1, n_tensors = -1; // -1: the real number

    // Adds a key, or replaces an existing one.
    GgufBuilder& raw(const std::string& key, uint32_t type, Bytes value)
    {
        drop(key);
        keys.push_back({le_string(key), type, std::move(value)});
        return *this;
    }
    GgufBuilder& drop(const std::string& key)
    {
        for (size_t i = keys.size(); i-- > 0;)
            if (keys[i].name == le_string(key)) keys.erase(keys.begin() + long(i));
        return *this;
    }
    template <class T>
    GgufBuilder& scalar(const std::string& key, GgufType type, T v)
    {
        return raw(key, uint32_t(type), le(v));
    }
    GgufBuilder& u32(const std::string& key, uint32_t v) { return scalar(key, GgufType::u32, v); }
    GgufBuilder& i32(const std::string& key, int32_t v) { return scalar(key, GgufType::i32, v); }
    GgufBuilder& f32(const std::string& key, float v) { return scalar(key, GgufType::f32, v); }
    GgufBuilder& f64(const std::string& key, double v) { return scalar(key, GgufType::f64, v); }
    GgufBuilder& boolean(const std::string& key, uint8_t v)
    {
        return scalar(key, GgufType::boolean, v);
    }
    GgufBuilder& string(const std::string& key, const std::string& v)
    {
        return raw(key, uint32_t(GgufType::string), le_string(v));
    }
    template <class T>
    GgufBuilder& array(const std::string& key, GgufType element, const std::vector<T>& values)
    {
        Bytes bytes = le(uint32_t(element)) + le<uint64_t>(values.size());
        for (T v : values) bytes += le(v);
        return raw(key, uint32_t(GgufType::array), bytes);
    }
    GgufBuilder& strings(const std::string& key, const std::vector<std::string>& values)
    {
        Bytes bytes = le(uint32_t(GgufType::string)) + le<uint64_t>(values.size());
        for (const std::string& v : values) bytes += le_string(v);
        return raw(key, uint32_t(GgufType::array), bytes);
    }

    // Appends a tensor, or replaces an existing one. Missing values are zeros.
    GgufBuilder& tensor(const std::string& name, const std::vector<uint64_t>& dims,
                        uint32_t type = 0, Bytes values = {})
    {
        const GgmlType* t = find_ggml_type(type);
        uint64_t n = 1;
        for (uint64_t dim : dims) n *= dim;
        if (values.empty() && t) values.resize(n / t->block * t->block_bytes);
        drop_tensor(name);
        tensors.push_back({le_string(name), uint32_t(dims.size()), dims, type, std::move(values)});
        return *this;
    }
    GgufBuilder& drop_tensor(const std::string& name)
    {
        for (size_t i = tensors.size(); i-- > 0;)
            if (tensors[i].name == le_string(name)) tensors.erase(tensors.begin() + long(i));
        return *this;
    }
    TensorInfo& info(const std::string& name)
    {
        size_t i = 0;
        while (i < tensors.size() && tensors[i].name != le_string(name)) i++;
        KS_CHECK(i < tensors.size(), "no tensor %s in the builder", name.c_str());
        return tensors[i];
    }

    Bytes bytes() const
    {
        Bytes data, out = magic + le(version) +
                          le<uint64_t>(n_tensors >= 0 ? uint64_t(n_tensors) : tensors.size()) +
                          le<uint64_t>(n_keys >= 0 ? uint64_t(n_keys) : keys.size());
        for (const Key& k : keys) out += k.name + le(k.type) + k.value;
        for (const TensorInfo& t : tensors) {
            data.resize((data.size() + alignment - 1) / alignment * alignment);
            out += t.name + le(t.n_dims);
            for (uint64_t dim : t.dims) out += le(dim);
            out += le(t.type) + le<uint64_t>(t.offset == kNext ? data.size() : t.offset);
            data += t.values;
        }
        if (!data.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
        return out + data + tail;
    }
};

// A file in the temporary folder. The destructor deletes it.
class TempFile
{
public:
    TempFile(const std::string& name, const Bytes& bytes)
    {
        const char* folder = getenv("TMPDIR");
        m_path = std::string(folder ? folder : "/tmp") + "/knapsack-test-" +
                 std::to_string(getpid()) + "-" + name;
        FILE* f = fopen(m_path.c_str(), "wb");
        KS_CHECK(f && fwrite(bytes.data(), 1, bytes.size(), f) == bytes.size(), "cannot write %s",
                 m_path.c_str());
        fclose(f);
    }
    ~TempFile() { remove(m_path.c_str()); }
    TempFile(const TempFile&) = delete;
    TempFile& operator=(const TempFile&) = delete;
    const std::string& path() const { return m_path; }

private:
    std::string m_path;
};

// Checks that a file is refused with this code and with a message that contains all the words.
inline void refused(const Status& status, Code code, const std::vector<std::string>& words)
{
    CAPTURE(status.message());
    CHECK(status.code() == code);
    CHECK(is_readable(status.message()));
    for (const std::string& word : words)
        CHECK_MESSAGE(status.message().find(word) != std::string::npos, "no '", word, "'");
}

// A file with a value of every type and three tensors.
inline GgufBuilder small_file()
{
    GgufBuilder b;
    b.string("general.name", "all kinds")
        .u32("x.u32", 7)
        .i32("x.i32", -7)
        .f32("x.f32", 0.5f)
        .f64("x.f64", 1e-9);
    b.scalar<uint8_t>("x.u8", GgufType::u8, 255).scalar<int8_t>("x.i8", GgufType::i8, -128);
    b.scalar<uint16_t>("x.u16", GgufType::u16, 65535).scalar<int16_t>("x.i16", GgufType::i16, -2);
    b.scalar<uint64_t>("x.u64", GgufType::u64, UINT64_MAX)
        .scalar<int64_t>("x.i64", GgufType::i64, 5);
    b.boolean("x.bool", 1)
        .strings("x.strings", {"one", "", "three"})
        .array<float>("x.floats", GgufType::f32, {1, 2, 3});
    b.array<uint16_t>("x.shorts", GgufType::u16, {3, 4})
        .array<uint32_t>("x.none", GgufType::u32, {});
    b.tensor("first", {4, 3}, 0, Bytes(48, 'f'))
        .tensor("second", {32}, 8, Bytes(34, 's'))
        .tensor("third", {33, 2, 3, 1}, 25);
    return b;
}

// A complete model of any family: width 32, two heads of 16 values, one KV head, a vocabulary of
// six, F32.
inline GgufBuilder small_model(const std::string& architecture, uint32_t n_layers = 2)
{
    GgufBuilder b;
    const std::string a = architecture + ".";
    const bool gemma2 = architecture == "gemma2", gemma = gemma2 || architecture == "gemma3",
               phi = architecture == "phi3";
    b.string("general.architecture", architecture).string("general.name", "small");
    b.u32(a + "block_count", n_layers)
        .u32(a + "embedding_length", 32)
        .u32(a + "context_length", 128);
    b.u32(a + "feed_forward_length", 64)
        .u32(a + "attention.head_count", 2)
        .u32(a + "attention.head_count_kv", 1);
    b.f32(a + "attention.layer_norm_rms_epsilon", 1e-5f);
    b.string("tokenizer.ggml.model", "gpt2")
        .strings("tokenizer.ggml.tokens", {"a", "b", "c", "d", "e", "f"});
    if (gemma) b.u32(a + "attention.sliding_window", 8);
    b.tensor("token_embd.weight", {32, 6}).tensor("output_norm.weight", {32});
    for (uint32_t il = 0; il < n_layers; il++) {
        const std::string p = "blk." + std::to_string(il) + ".";
        b.tensor(p + "attn_norm.weight", {32}).tensor(p + "ffn_norm.weight", {32});
        if (phi) b.tensor(p + "attn_qkv.weight", {32, 64});
        if (!phi)
            b.tensor(p + "attn_q.weight", {32, 32})
                .tensor(p + "attn_k.weight", {32, 16})
                .tensor(p + "attn_v.weight", {32, 16});
        if (architecture == "qwen2")
            b.tensor(p + "attn_q.bias", {32})
                .tensor(p + "attn_k.bias", {16})
                .tensor(p + "attn_v.bias", {16});
        if (architecture == "qwen3" || (gemma && !gemma2))
            b.tensor(p + "attn_q_norm.weight", {16}).tensor(p + "attn_k_norm.weight", {16});
        if (gemma)
            b.tensor(p + "post_attention_norm.weight", {32})
                .tensor(p + "post_ffw_norm.weight", {32});
        b.tensor(p + "attn_output.weight", {32, 32})
            .tensor(p + "ffn_up.weight", {32, phi ? 128u : 64u});
        if (!phi) b.tensor(p + "ffn_gate.weight", {32, 64});
        b.tensor(p + "ffn_down.weight", {64, 32});
    }
    return b;
}

} // namespace ks
