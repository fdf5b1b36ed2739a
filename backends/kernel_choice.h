// Text about the kernels that a device chooses.
#pragma once

#include "runtime/base/backend.h"

namespace ks
{

// "attention_decode: at most 4 tokens"
inline std::string choice_text(const KernelChoice& choice)
{
    std::string text = choice.kernel;
    if (*choice.variant) text += std::string(" ") + choice.variant;
    return text + ": " + choice.reason;
}

// Adds lines to DeviceInfo::paths. choose(args) returns the KernelChoice of attention.
template <class Choose>
void add_attention_lines(std::vector<std::string>& lines, const Choose& choose)
{
    AttentionArgs a{};
    a.n_heads = 32;
    a.n_kv_heads = 8;
    a.head_dim = 128;
    a.n_tokens = 1;
    lines.push_back("attention of 1 token, 4 queries a key head of 128 values: " +
                    choice_text(choose(a)));
    a.n_tokens = 512;
    lines.push_back("attention of 512 tokens: " + choice_text(choose(a)));
}

} // namespace ks
