// The note in a saved session that lists the turns of a conversation.
#pragma once

#include "tools/terminal/cache_view.h"

namespace ks
{

struct ChatNote {
    uint32_t answer_begin = 0; // tokens before the last answer; 0: no answer
    std::vector<TurnBegin> turns;
    std::string messages; // as JSON; "": unknown

    std::string text() const;
};

bool is_chat_note(const std::string& text); // false: `run` saved the session

// Checks the note, because a file may contain anything. `context` limits answer_begin. A session of
// n_tokens without turns becomes one turn.
ChatNote read_chat_note(const std::string& text, uint32_t n_tokens, uint32_t context);

} // namespace ks
