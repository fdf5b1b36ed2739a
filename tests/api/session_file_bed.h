// Sessions of tiny models that are saved to a file and loaded from it.
#pragma once

#include "tests/files.h"
#include "tests/model/tiny_model.h"
#include "tests/open_session.h"

#include <algorithm>
#include <doctest/doctest.h>
#include <fstream>

namespace ks
{

inline const char* const kFileRecipes[] = {
    "exact",
    "exact,k=f32",
    "window,slots=48",
    "sink,slots=48",
    "h2o,slots=48",
    "h2o,slots=48,victims=merge",
    "h2o,slots=48,victims=merge,delta=5,decay=0.9",
    "scissorhands,slots=48,observe=9",
    "tova,slots=48",
    "h2o,slots=48,select=tokenselect,read=24,reuse=0.3",
    "h2o,slots=48,positions=compact",
    "mix,slots=48,select=quest,read=32,k=q8",
    "quest,read=64,reuse=0.1",
    "infllm,read=64,reuse=0.1",
    "snapkv,slots=48",
    "pyramid,slots=48",
    "ada,slots=48,delta=4",
    "ada,slots=48,victims=merge",
    "keydiff,slots=48",
    "kcenter,slots=48",
    "subgen,slots=48",
    "subgen,slots=64,delta=7,recent=9",
    "mix,slots=48,k=f32",
    "q8",
    "turbo4,v=turbo3,boundary=1",
    "mix,slots=48,k=turbo4,v=turbo4",
    "h2o,slots=48,victims=merge,k=q8,v=turbo2,delta=5",
    "ada,slots=48,k=f16,v=polar,delta=4",
    "subgen,slots=64,k=q8,v=q4",
    "sink,slots=48,k=polar,v=f16",
    "kivi",
    "kivi2,v=q4",
};

inline const SavedState kNone;

inline SavedState some_state()
{
    SavedState state;
    state.sampler.seed = 7;
    state.sampler.n_draws = 3;
    state.sampler.recent = {5, 250};
    state.note = "note";
    return state;
}

inline std::vector<uint32_t> some_ids(size_t n, uint32_t salt = 3)
{
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < n; i++) ids.push_back((i * 53 + salt * 17 + i * i) % 256);
    return ids;
}

struct FileFixture {
    TempFile file;
    Folder folder;
    ModelOptions options;

    explicit FileFixture(const char* arch = "llama", uint32_t seed = 1)
        : file(std::string(arch) + std::to_string(seed) + ".gguf",
               make_tiny_model(shape(arch, seed)).file)
    {
        options.model_path = file.path();
        options.n_threads = 2;
        options.context = 400;
    }
    static TinyShape shape(const char* arch, uint32_t seed)
    {
        TinyShape s;
        s.arch = arch;
        s.n_layers = s.arch == "gemma3" ? 6 : 2;
        s.seed = seed;
        s.key_bias = s.arch == "qwen2" ? 6.f : 0.f;
        return s;
    }
    std::unique_ptr<Session> open(const std::string& recipe, const char* device = "cpu",
                                  int64_t context = 400) const
    {
        ModelOptions o = options;
        o.recipe = recipe;
        o.device = device;
        o.context = context;
        Result<std::unique_ptr<Session>> result = open_session(o);
        REQUIRE_MESSAGE(result.ok(), result.status().message());
        return std::move(result.value());
    }
};

inline std::vector<float> logits(const Session& s)
{
    return std::vector<float>(s.logits(), s.logits() + s.model().config().n_vocab);
}

inline void feed(Session& s, const std::vector<uint32_t>& ids, size_t begin, size_t end,
                 bool one_by_one = false)
{
    for (size_t at = begin; one_by_one && at < end; at++) REQUIRE(s.feed(&ids[at], 1).ok());
    if (one_by_one) return;
    const Status status = s.feed(&ids[begin], end - begin);
    REQUIRE_MESSAGE(status.ok(), status.message());
}

inline void check_same(const Session& a, const Session& b)
{
    CHECK(a.n_tokens() == b.n_tokens());
    CHECK(logits(a) == logits(b));
    CHECK(a.evicted() == b.evicted());
    CHECK(a.merged() == b.merged());
    const uint32_t n = a.n_tokens();
    for (uint32_t p = n - std::min(n, a.plan().context); p < n; p++)
        CHECK(a.token(p) == b.token(p));
}

inline void write_all(const std::string& path, const std::string& bytes)
{
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), std::streamsize(bytes.size()));
}

// Checks that the error has one of the codes and is one sentence with the file name and the word.
inline void check_refused(const Status& status, std::initializer_list<Code> codes,
                          const std::string& word = "")
{
    CAPTURE(status.message());
    CHECK(std::count(codes.begin(), codes.end(), status.code()) == 1);
    CHECK(status.message().find("/tmp/") == 0);
    CHECK(status.message().find(word) != std::string::npos);
    CHECK(status.message().find('\n') == std::string::npos);
}

} // namespace ks
