// Prints the KV cache as a table: its slots, the evicted tokens, and what is left of each turn.
#pragma once

#include "runtime/api/session.h"

#include <cstdio>

namespace ks
{

// The begin of a turn of the conversation. The turn ends where the next one begins.
struct TurnBegin {
    uint32_t position;
    std::string words; // its first words
};

void print_cache(FILE* out, const Session& session, const std::vector<TurnBegin>& turns);

} // namespace ks
