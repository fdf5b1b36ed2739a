// Configurations and tensors of small models, read the way a plan reads them.
#pragma once

#include "runtime/model/config.h"
#include "runtime/model/tensor_names.h"
#include "tests/model/gguf_builder.h"

#include <doctest/doctest.h>

namespace ks
{

inline const char* const kArchitectures[] = {"llama", "gemma3", "qwen2", "qwen3", "phi3"};
struct ReadModel {
    Gguf gguf;
    Config config;
    std::vector<TensorPart> parts;
};

inline Status read_model(const GgufBuilder& b, ReadModel* out = nullptr)
{
    TempFile file("model.gguf", b.bytes());
    Result<Gguf> gguf = Gguf::open(file.path());
    REQUIRE_MESSAGE(gguf.ok(), gguf.status().message());
    Result<Config> config = read_config(gguf.value());
    if (!config.ok()) return config.status();
    Result<std::vector<TensorPart>> parts = bind_tensors(gguf.value(), config.value());
    if (parts.ok() && out) *out = {std::move(gguf.value()), config.value(), parts.value()};
    return parts.status();
}

inline Config config_of(const GgufBuilder& b)
{
    ReadModel model;
    Status status = read_model(b, &model);
    REQUIRE_MESSAGE(status.ok(), status.message());
    return model.config;
}

inline void model_refused(const GgufBuilder& b, Code code, const std::vector<std::string>& words)
{
    Status status = read_model(b);
    refused(status, code, words);
    CHECK(status.message().find("model.gguf") != std::string::npos);
}

inline GgufBuilder llama()
{
    return small_model("llama");
}

} // namespace ks
