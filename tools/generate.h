// Writing an answer token by token: what `run` and `chat` share.
#pragma once

#include "tools/program.h"

#include "runtime/text/detokenizer.h"

#include <functional>

namespace ks
{

enum class Stop { length, eos, string, interrupted };
const char* stop_name(Stop stop);

struct Generated {
    std::vector<uint32_t> ids; // without the end token; the last one may not have been fed
    Stop stop = Stop::length;
    double seconds = 0;
    uint64_t allocations = 0; // after the first token
};

using Emit = std::function<void(std::string_view)>;

// Samples from the logits that are there, until `limit` tokens or an end. Whoever calls gives `out.ids` its room.
Status generate(Session& session, Sampler& sampler, Detokenizer& text, uint64_t limit, const Emit& emit, Generated& out);

// Writes text to standard output at once; on a terminal without what could command it.
void write_text(std::string_view text);

} // namespace ks
