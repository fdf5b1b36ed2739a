// The tokenizer data of a model file, as views into its header. The GGUF reader has checked every
// length against the file. Ids, UTF-8 and matching counts are not checked yet.
#pragma once

#include "runtime/base/status.h"

#include <cstdint>
#include <cstring>
#include <string_view>

namespace ks
{

// n consecutive strings, each a little-endian u64 length and that many bytes, unaligned.
struct StringTable {
    const uint8_t* data = nullptr;
    uint64_t n = 0;
    uint64_t bytes = 0; // includes the lengths

    // Returns the next string and advances `at`, which starts at 0.
    std::string_view next(uint64_t& at) const
    {
        uint64_t length;
        memcpy(&length, data + at, 8);
        std::string_view s(reinterpret_cast<const char*>(data + at + 8), length);
        at += 8 + length;
        return s;
    }
};

// n ids of 4 bytes, unaligned.
struct IdTable {
    const uint8_t* data = nullptr;
    uint64_t n = 0;

    int64_t at(uint64_t i) const // negative ids are in no vocabulary
    {
        int32_t id;
        memcpy(&id, data + i * 4, 4);
        return id;
    }
};

struct VocabSource {
    std::string_view name;  // general.name: some quirks depend on it
    std::string_view model; // tokenizer.ggml.model: "gpt2", "llama", "gemma4", ...
    std::string_view pre;   // tokenizer.ggml.pre
    StringTable tokens;
    const uint8_t* scores = nullptr; // n_scores f32, unaligned
    uint64_t n_scores = 0;
    const uint8_t* types = nullptr; // n_types i32, unaligned, as TokenType
    uint64_t n_types = 0;
    StringTable merges;
    // -1: missing in the file
    int64_t bos = -1, eos = -1, eot = -1, eom = -1, unknown = -1, padding = -1;
    IdTable more_eos; // tokenizer.ggml.eos_token_ids
    IdTable suppress; // tokenizer.ggml.suppress_tokens: never sampled
    // -1: missing in the file
    int add_bos = -1, add_eos = -1, add_space_prefix = -1;
    std::string_view chat_template;

    bool is_sentence_piece() const { return model == "llama"; }
    // BPE whose tokens are UTF-8 with U+2581 for a space.
    bool is_raw() const { return model == "gemma4" || (model == "gpt2" && pre == "gemma4"); }
};

} // namespace ks
