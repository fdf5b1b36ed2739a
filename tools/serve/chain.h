// A conversation is recognised by the hashes of its messages: each one covers all messages before.
#pragma once

#include "runtime/chat/chat_format.h"

#include <string>
#include <vector>

namespace ks::serve
{

struct ChainHash {
    uint64_t a = 0, b = 0;
    bool operator==(const ChainHash& o) const { return a == o.a && b == o.b; }
    bool operator!=(const ChainHash& o) const { return !(*this == o); }
    std::string text() const; // 32 hex digits
};
using Chain = std::vector<ChainHash>;

// One hash for each message. White space around a text and the ids of tool calls do not count, nor
// does reasoning, which clients leave out. seed: conversations of other keys differ.
Chain chain_of(const ChatRequest& request, uint64_t seed);
// Of one message more.
ChainHash next_hash(const ChainHash& last, const jinja::Value& message);
// How many hashes are equal.
size_t n_equal(const Chain& a, const Chain& b);

} // namespace ks::serve
