// The cache as a table for a person: what its slots hold, what was given up, and what is left of
// each turn.
#pragma once

#include "runtime/api/session.h"

#include <cstdio>

namespace ks
{

// Where a turn of the conversation begins; it ends where the next one does.
struct TurnBegin {
    uint32_t position;
    std::string words; // that it begins with
};

void print_cache(FILE* out, const Session& session, const std::vector<TurnBegin>& turns);

} // namespace ks
