// Tiny models and sessions by the C API.
#pragma once

#include "tests/api/open_alone.h"
#include "tests/model/tiny_model.h"

#include <doctest/doctest.h>
#include <memory>

namespace ks
{

inline const char* const kChatml = "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + "
                                   "m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
                                   "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
                                   "{% endif %}";

struct CloseSession {
    void operator()(ks_session* session) const { ks_session_close(session); }
};
using Handle = std::unique_ptr<ks_session, CloseSession>;

struct ApiModel {
    TempFile file;
    ks_model_options options = {};

    explicit ApiModel(const char* name, const char* chat_template = kChatml)
        : file(std::string(name) + ".gguf", make(chat_template))
    {
        options.struct_size = sizeof options;
        options.model_path = file.path().c_str();
        options.memory_bytes = 64 << 20;
        options.n_threads = 2;
    }
    static Bytes make(const char* chat_template)
    {
        TinyShape shape;
        shape.chat_template = chat_template;
        return make_tiny_model(shape).file;
    }
    Handle open(const char* recipe = "exact")
    {
        options.recipe = recipe;
        char error[400] = "";
        ks_session* session = nullptr;
        REQUIRE_MESSAGE(open_alone(&options, &session, error, sizeof error) == KS_OK, error);
        return Handle(session);
    }
};

inline std::vector<uint32_t> salted_ids(size_t n, uint32_t salt)
{
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < n; i++) ids.push_back((i * 59 + salt * 13 + i * i) % 256);
    return ids;
}

inline ks_stats stats_of(const Handle& session)
{
    ks_stats stats = {};
    stats.struct_size = sizeof stats;
    ks_get_stats(session.get(), &stats);
    return stats;
}

inline std::vector<float> logits_of(const Handle& session)
{
    const float* logits = ks_logits(session.get());
    return std::vector<float>(logits, logits + stats_of(session).n_vocab);
}

} // namespace ks
