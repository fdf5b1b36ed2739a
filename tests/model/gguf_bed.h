// GGUF files that open or are refused.
#pragma once

#include "tests/model/gguf_builder.h"

#include <doctest/doctest.h>

namespace ks
{

inline Status open_status(const GgufBuilder& b)
{
    TempFile file("open.gguf", b.bytes());
    return Gguf::open(file.path()).status();
}

inline void file_refused(const GgufBuilder& b, Code code, const std::vector<std::string>& words)
{
    Status status = open_status(b);
    refused(status, code, words);
    CHECK(status.message().find("open.gguf") != std::string::npos);
}

} // namespace ks
