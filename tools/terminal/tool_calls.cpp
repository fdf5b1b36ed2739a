#include "tools/terminal/tool_calls.h"

#include "runtime/chat/chat_format.h"

namespace ks
{

static std::string text_of(const jinja::Value* value, const char* key)
{
    const jinja::Value* found = value ? value->find(key) : nullptr;
    return found && found->is(jinja::kText) ? found->str() : "";
}

// The number of tool messages at the end.
static size_t count_results(const std::vector<jinja::Value>& messages)
{
    size_t n = 0;
    while (n < messages.size() && text_of(&messages[messages.size() - 1 - n], "role") == "tool")
        n++;
    return n;
}

bool find_waiting_call(const std::vector<jinja::Value>& messages, ToolCall* call)
{
    const size_t n_results = count_results(messages);
    if (n_results == messages.size()) return false;
    const jinja::Value* calls = messages[messages.size() - 1 - n_results].find("tool_calls");
    if (!calls || !calls->is(jinja::kList) || calls->items().size() <= n_results) return false;
    const jinja::Value& waiting = calls->items()[n_results];
    *call = {text_of(&waiting, "id"), text_of(waiting.find("function"), "name"), n_results,
             calls->items().size()};
    return true;
}

std::string ToolCall::prompt() const
{
    const std::string number = std::to_string(index + 1) + "/" + std::to_string(n_calls);
    return printable(name, 40) + (n_calls > 1 ? " " + number + "> " : "> ");
}

jinja::Value result_message(const ToolCall& call, std::string_view result)
{
    jinja::Value message = chat_message("tool", result);
    message.dict_object().set("tool_call_id", call.id);
    message.dict_object().set("name", call.name);
    return message;
}

void remove_answer(std::vector<jinja::Value>& messages)
{
    messages.resize(messages.size() - count_results(messages));
    if (!messages.empty()) messages.pop_back();
}

} // namespace ks
