// Tokenizers of all kinds, each with a token for every byte.
#pragma once

#include "tests/text/vocab_builder.h"

namespace ks
{

struct FuzzTokenizer {
    bool sentence_piece;
    Tokenizer tokenizer;
    std::vector<uint32_t> memory;
};

inline std::vector<FuzzTokenizer>& fuzz_tokenizers()
{
    static std::vector<FuzzTokenizer> all = [] {
        std::vector<VocabBuilder> builders;
        for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2", "default"})
            builders.push_back(bpe_builder(pre));
        builders.push_back(spm_builder());
        builders.push_back(spm_builder());
        builders.back().rest.add_space_prefix = 0;
        std::vector<FuzzTokenizer> made(builders.size());
        for (size_t i = 0; i < made.size(); i++) {
            const uint64_t bytes = Tokenizer::bytes_needed(builders[i].source()).value();
            made[i].sentence_piece = builders[i].model == "llama";
            made[i].memory.resize(bytes / 4 + 1);
            const Status loaded =
                made[i].tokenizer.load(builders[i].source(), made[i].memory.data(), bytes);
            KS_CHECK(loaded.ok(), "%s", loaded.message().c_str());
        }
        return made;
    }();
    return all;
}

} // namespace ks
