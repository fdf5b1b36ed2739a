// Tools of a request, and which of them the answer must call.
#include "tools/serve/requests.h"

#include "runtime/chat/json.h"

#include <algorithm>

namespace ks::serve
{

using jinja::Value;

// The schema of one call of these functions.
static Value call_schema(const std::vector<Value>& functions)
{
    std::vector<Value> ways;
    for (const Value& function : functions) {
        Value way = object_schema(), properties = Value::dict(), name = Value::dict();
        name.dict_object().set("const", *function.find("name"));
        const Value* parameters = function.find("parameters");
        properties.dict_object().set("name", name);
        properties.dict_object().set("arguments", parameters && parameters->is(jinja::kDict)
                                                      ? *parameters
                                                      : object_schema());
        way.dict_object().set("properties", properties);
        way.dict_object().set("required", Value(std::vector<Value>{"name", "arguments"}));
        way.dict_object().set("additionalProperties", false);
        ways.push_back(way);
    }
    Value schema = Value::dict();
    schema.dict_object().set("anyOf", Value(std::move(ways)));
    return schema;
}

// The functions that a choice names: {"type": "function", "function": {"name"}}, or a list of them
// as allowed_tools.
static std::vector<std::string> chosen_names(const Value& choice)
{
    std::vector<std::string> names;
    const auto take = [&](const Value& one) {
        const Value* function = one.find("function");
        const Value* name = function ? function->find("name") : one.find("name");
        if (name && name->is(jinja::kText)) names.push_back(name->str());
    };
    const Value* allowed = choice.find("allowed_tools");
    const Value* list = (allowed ? *allowed : choice).find("tools");
    if (list && list->is(jinja::kList))
        for (const Value& one : list->items()) take(one);
    else
        take(choice);
    return names;
}

// How tools are chosen: "auto", "none" or "required", and the only ones that may be called.
struct ToolChoice {
    std::string how = "auto";
    std::vector<std::string> names; // none: all
};

static ToolChoice read_choice(Fields& fields, const Value& choice)
{
    ToolChoice out;
    if (choice.is(jinja::kText)) out.how = choice.str();
    if (choice.is(jinja::kDict)) {
        const Value *type = choice.find("type"), *allowed = choice.find("allowed_tools");
        const bool is_allowed = type && type->is(jinja::kText) && type->str() == "allowed_tools";
        const Value* mode = (allowed ? *allowed : choice).find("mode");
        out.how = is_allowed && mode && mode->is(jinja::kText) ? mode->str() : "required";
        out.names = chosen_names(choice);
        if (out.names.empty())
            fields.fail(bad_field("tool_choice", "tool_choice: it names no function"));
    }
    if (out.how != "auto" && out.how != "none" && out.how != "required")
        fields.fail(bad_field("tool_choice", "tool_choice: expected none, auto, required or a "
                                             "function, found '" +
                                                 printable(out.how, 40) + "'"));
    return out;
}

void set_tools(Request& request, const Value& tools, const Value& choice, Task* task)
{
    Fields& fields = request.fields;
    const ToolChoice chosen = read_choice(fields, choice);
    std::vector<Value> functions, kept;
    for (size_t i = 0; i < tools.items().size(); i++) {
        const std::string path = "tools[" + std::to_string(i) + "]";
        const Value* function = tools.items()[i].find("function");
        const Value* name = function ? function->find("name") : nullptr;
        if (!name || !name->is(jinja::kText) || name->str().empty())
            return fields.fail(bad_field(path, path + ": expected {\"type\": \"function\", "
                                                      "\"function\": {\"name\": ...}}"));
        const std::vector<std::string>& names = chosen.names;
        if (!names.empty() && std::find(names.begin(), names.end(), name->str()) == names.end())
            continue;
        functions.push_back(*function);
        kept.push_back(tools.items()[i]);
    }
    if (functions.empty() && chosen.how == "required")
        return fields.fail(bad_field("tool_choice", chosen.names.empty()
                                                        ? "tool_choice: there are no tools"
                                                        : "tool_choice: '" +
                                                              printable(chosen.names[0], 40) +
                                                              "' is not among the tools"));
    if (chosen.how == "none" || kept.empty()) return;
    task->chat.tools = Value(kept);
    if (chosen.how != "required") return;
    set_schema(request, "tools", call_schema(functions), task);
    task->is_call = true;
}

void read_tools(Request& request, Task* task)
{
    Fields& fields = request.fields;
    fields.refuse("functions", "it is replaced by tools");
    fields.refuse("function_call", "it is replaced by tool_choice");
    fields.ignore({"parallel_tool_calls"});
    const Value *tools = fields.list("tools"), *choice = fields.find("tool_choice");
    if (choice && !choice->is(jinja::kText) && !choice->is(jinja::kDict))
        return fields.fail(bad_field("tool_choice", "tool_choice: expected a string or an object"));
    static const Value kNone(std::vector<Value>{});
    set_tools(request, tools ? *tools : kNone, choice ? *choice : Value("auto"), task);
}

// Calls become text, and so do their results.
Value plain_message(const Value& message)
{
    const std::string& role = message.find("role")->str();
    std::string text = message.find("content") && message.find("content")->is(jinja::kText)
                           ? message.find("content")->str()
                           : "";
    if (role == "tool")
        return chat_message("user", "<tool_response>\n" + text + "\n</tool_response>");
    const Value* calls = message.find("tool_calls");
    if (!calls || !calls->is(jinja::kList)) return message;
    for (const Value& call : calls->items()) {
        const Value* function = call.find("function");
        const Value* arguments = function ? function->find("arguments") : nullptr;
        if (!arguments) continue;
        Value shown = Value::dict();
        shown.dict_object().set("name", *function->find("name"));
        Result<Value> parsed = arguments->is(jinja::kText) ? jinja::parse_json(arguments->str())
                                                           : Result<Value>(*arguments);
        shown.dict_object().set("arguments", parsed.ok() ? parsed.value() : *arguments);
        text +=
            (text.empty() ? "" : "\n") + ("<tool_call>\n" + jinja::write(shown)) + "\n</tool_call>";
    }
    return chat_message(role, text);
}

void show_tools(Task* task)
{
    std::vector<Value> messages;
    for (const Value& message : task->chat.messages.items())
        messages.push_back(plain_message(message));
    if (task->chat.tools.is(jinja::kList)) {
        task->plain_tools = true;
        std::string text = "You can call these functions:\n";
        for (const Value& tool : task->chat.tools.items())
            text += jinja::write(*tool.find("function")) + "\n";
        text += "To call one, answer with its name and its arguments, and with nothing else:\n"
                "<tool_call>\n{\"name\": \"...\", \"arguments\": {...}}\n</tool_call>";
        const bool has_system = messages[0].find("role")->str() == "system";
        if (has_system)
            messages[0] =
                chat_message("system", messages[0].find("content")->str() + "\n\n" + text);
        else
            messages.insert(messages.begin(), chat_message("system", text));
    }
    task->chat.messages = Value(std::move(messages));
}

} // namespace ks::serve
