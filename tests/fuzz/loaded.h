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
        for (const char* pre :
             {"qwen35", "gpt-4o", "tekken", "minicpm5", "deepseek-v3", "seed-coder", "jais-2",
              "tiny_aya", "superbpe", "exaone-moe", "spark2_5", "afmoe", "laguna", "youtu",
              "kimi-k2", "falcon", "deepseek-llm", "deepseek-coder", "viking"})
            builders.push_back(bpe_builder(pre));
        builders.push_back(spm_builder()); // with its byte tokens, as raw BPE
        builders.back().model = "gemma4";
        builders.back().scores.clear();
        builders.back().merges = {"h e", "l l", "t h", "th e", "\xe2\x96\x81 t"};
        std::vector<FuzzTokenizer> made(builders.size());
        for (size_t i = 0; i < made.size(); i++) {
            const uint64_t bytes = Tokenizer::bytes_needed(builders[i].source()).value();
            made[i].sentence_piece = builders[i].model != "gpt2";
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
