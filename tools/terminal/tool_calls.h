// The tool calls of a conversation whose results a person gives.
#pragma once

#include "runtime/chat/value.h"

#include <string>
#include <vector>

namespace ks
{

struct ToolCall {
    std::string id, name;
    size_t index = 0, n_calls = 1; // of the answer

    std::string prompt() const; // "get_time> ", or with its number if there are several
};

// The first call of the last answer that has no result yet. False: there is none.
bool find_waiting_call(const std::vector<jinja::Value>& messages, ToolCall* call);
jinja::Value result_message(const ToolCall& call, std::string_view result);
// Removes the last answer, and the results of its calls.
void remove_answer(std::vector<jinja::Value>& messages);

} // namespace ks
