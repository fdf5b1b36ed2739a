// Vocabularies for tests, in the form of a model file header.
#pragma once

#include "golden_tokens.h"
#include "runtime/text/tokenizer.h"

#include <cstring>
#include <doctest/doctest.h>
#include <string>
#include <vector>

struct VocabBuilder {
    std::string model = "gpt2", pre = "gpt-2", name;
    std::vector<std::string> tokens, merges;
    std::vector<int32_t> types;
    std::vector<float> scores;
    ks::VocabSource rest; // ids and flags

    void add(std::string text, int type = 1, float score = 0)
    {
        tokens.push_back(std::move(text));
        types.push_back(type);
        if (model == "llama") scores.push_back(score);
    }

    // Views into this object, valid until it changes.
    const ks::VocabSource& source()
    {
        auto table = [](const std::vector<std::string>& strings, std::string& bytes) {
            bytes = "x"; // makes the data unaligned
            for (const std::string& s : strings) {
                uint64_t length = s.size();
                bytes.append(reinterpret_cast<const char*>(&length), 8).append(s);
            }
            return ks::StringTable{reinterpret_cast<const uint8_t*>(bytes.data()) + 1,
                                   strings.size(), bytes.size() - 1};
        };
        auto numbers = [](const void* data, size_t n, std::string& bytes) {
            bytes = "x";
            if (n) bytes.append(static_cast<const char*>(data), n * 4);
            return n ? reinterpret_cast<const uint8_t*>(bytes.data()) + 1 : nullptr;
        };
        rest.name = name;
        rest.model = model;
        rest.pre = pre;
        rest.tokens = table(tokens, m_bytes[0]);
        rest.merges = table(merges, m_bytes[1]);
        rest.types = numbers(types.data(), rest.n_types = types.size(), m_bytes[2]);
        rest.scores = numbers(scores.data(), rest.n_scores = scores.size(), m_bytes[3]);
        return rest;
    }

private:
    std::string m_bytes[4];
};

inline VocabBuilder bpe_builder(const char* pre)
{
    VocabBuilder b;
    b.pre = pre;
    for (int i = 0; i < 256; i++) b.add(ks::byte_letter(uint8_t(i)));
    for (const golden::Token& t : golden::kBpeTokens) b.add(t.text, t.type);
    for (const char* merge : golden::kBpeMerges) b.merges.push_back(merge);
    for (size_t i = 0; i < b.tokens.size(); i++)
        if (b.tokens[i] == "<|im_start|>") b.rest.bos = int64_t(i);
    return b;
}

inline VocabBuilder spm_builder()
{
    VocabBuilder b;
    b.model = "llama";
    b.pre = "default";
    b.add("<unk>", 2);
    b.add("<s>", 3);
    b.add("</s>", 3);
    for (unsigned i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        b.add(name, 6);
    }
    for (const golden::Token& t : golden::kSpmTokens) b.add(t.text, t.type, t.score);
    return b;
}

// A tokenizer in exactly the memory that it requested.
struct Loaded {
    ks::Tokenizer tokenizer;
    std::vector<uint32_t> memory;

    Loaded(Loaded&&) = default; // not copyable: the tokenizer points into the memory
    explicit Loaded(VocabBuilder builder)
    {
        ks::Result<uint64_t> bytes = ks::Tokenizer::bytes_needed(builder.source());
        REQUIRE_MESSAGE(bytes.ok(), bytes.status().message());
        const uint32_t guard = 0x5ca1ab1e;
        memory.assign(bytes.value() / 4 + 3, guard);
        ks::Status status = tokenizer.load(builder.source(), memory.data(), bytes.value());
        REQUIRE_MESSAGE(status.ok(), status.message());
        auto* behind = reinterpret_cast<const uint8_t*>(memory.data()) + bytes.value();
        for (uint64_t i = 0; i < 4; i++)
            CHECK(behind[i] == uint8_t(guard >> (bytes.value() + i) % 4 * 8));
    }

    std::vector<uint32_t> encode(std::string_view text, bool special = false, bool bos = true) const
    {
        std::vector<uint32_t> ids;
        tokenizer.encode(text, {bos, special}, ids);
        return ids;
    }
    std::string encoded(std::string_view text, bool special = false) const
    {
        std::string out;
        for (uint32_t id : encode(text, special))
            out += (out.empty() ? "" : " ") + std::to_string(id);
        return out;
    }
    std::string round_trip(std::string_view text) const
    {
        std::vector<uint32_t> ids = encode(text, false, false);
        return tokenizer.decode(ids.data(), ids.size());
    }
};
