// Messages, calls and tools in the form of chat/completions.
#include "tools/serve/requests.h"

namespace ks::serve
{

using jinja::Value;

std::string text_field(const Value& object, const char* name)
{
    const Value* value = object.find(name);
    return value && value->is(jinja::kText) ? value->str() : "";
}

Value chat_call(std::string_view id, std::string_view name, const Value& arguments)
{
    Value call = Value::dict(), function = Value::dict();
    function.dict_object().set("name", name);
    function.dict_object().set("arguments", arguments);
    call.dict_object().set("id", id);
    call.dict_object().set("type", "function");
    call.dict_object().set("function", function);
    return call;
}

static bool is_given(const Value* value)
{
    return value && !value->is(jinja::kNone);
}

Value chat_tool(const Value& name, const Value* description, const Value* parameters)
{
    Value tool = Value::dict(), function = Value::dict();
    function.dict_object().set("name", name);
    if (is_given(description)) function.dict_object().set("description", *description);
    if (is_given(parameters)) function.dict_object().set("parameters", *parameters);
    tool.dict_object().set("type", "function");
    tool.dict_object().set("function", function);
    return tool;
}

// Appends to a text of a message, behind a blank line.
static void append(Value* message, const char* name, const std::string& text)
{
    if (text.empty()) return;
    const std::string before = text_field(*message, name);
    message->dict_object().set(name, before.empty() ? text : before + "\n\n" + text);
}

void add_answer(std::vector<Value>* messages, const std::string& reasoning, const std::string& text,
                const std::vector<Value>& calls)
{
    if (messages->empty() || text_field(messages->back(), "role") != "assistant")
        messages->push_back(chat_message("assistant", ""));
    append(&messages->back(), "reasoning_content", reasoning);
    append(&messages->back(), "content", text);
    if (calls.empty()) return;
    const Value* had = messages->back().find("tool_calls");
    std::vector<Value> all = had ? had->items() : std::vector<Value>();
    all.insert(all.end(), calls.begin(), calls.end());
    messages->back().dict_object().set("tool_calls", Value(std::move(all)));
}

} // namespace ks::serve
