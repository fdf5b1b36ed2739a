// The input of /v1/responses: items of a conversation, and tools.
#include "tools/serve/requests.h"

#include <map>

namespace ks::serve
{

using jinja::Value;

namespace
{

// Reads items into messages of chat/completions.
class ItemReader
{
public:
    explicit ItemReader(Request& request) : m_request(request) {}
    void add(const std::string& path, const Value& item);
    std::vector<Value> messages;

private:
    void add_message(const std::string& path, const Value& item);
    void add_reasoning(const Value& item);
    void add_call(const std::string& path, const Value& item);
    void add_output(const std::string& path, const Value& item);

    Request& m_request;
    std::map<std::string, std::string> m_names; // of the functions, by the ids of calls
};

void ItemReader::add(const std::string& path, const Value& item)
{
    const std::string type = text_field(item, "type");
    if (type == "reasoning") return add_reasoning(item);
    if (type == "function_call") return add_call(path, item);
    if (type == "function_call_output") return add_output(path, item);
    if (type == "message" || (type.empty() && item.find("role"))) return add_message(path, item);
    m_request.fields.fail(unsupported_field(
        path, path + ": items of the type '" + printable(type, 40) +
                  "' are not supported, only message, function_call, function_call_output and "
                  "reasoning"));
}

void ItemReader::add_message(const std::string& path, const Value& item)
{
    const std::string role = text_field(item, "role");
    const Value* content = item.find("content");
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
        return m_request.fields.fail(
            bad_field(path + ".role", path +
                                          ".role: expected user, assistant, system or "
                                          "developer, found '" +
                                          printable(role, 40) + "'"));
    if (!content)
        return m_request.fields.fail(bad_field(
            path + ".content", path + ".content: expected a string or an array of parts"));
    const std::string text = message_text(m_request, path + ".content", *content);
    if (role == "assistant")
        add_answer(&messages, "", text, {});
    else
        messages.push_back(chat_message(role, text));
}

// Text that this server gave; what others encrypted is skipped.
void ItemReader::add_reasoning(const Value& item)
{
    const Value* content = item.find("content");
    if (!content || !content->is(jinja::kList)) return;
    for (const Value& part : content->items())
        if (text_field(part, "type") == "reasoning_text")
            add_answer(&messages, text_field(part, "text"), "", {});
}

void ItemReader::add_call(const std::string& path, const Value& item)
{
    const std::string id = text_field(item, "call_id"), name = text_field(item, "name");
    if (name.empty())
        return m_request.fields.fail(
            bad_field(path + ".name", path + ".name: expected the name of a function"));
    m_names[id] = name;
    add_answer(&messages, "", "", {chat_call(id, name, text_field(item, "arguments"))});
}

void ItemReader::add_output(const std::string& path, const Value& item)
{
    const std::string id = text_field(item, "call_id");
    const Value* output = item.find("output");
    if (!output)
        return m_request.fields.fail(
            bad_field(path + ".output", path + ".output: expected a string or an array of parts"));
    Value message = chat_message("tool", message_text(m_request, path + ".output", *output));
    message.dict_object().set("tool_call_id", id);
    if (m_names.count(id)) message.dict_object().set("name", m_names[id]);
    messages.push_back(std::move(message));
}

// Functions; tools that run at OpenAI are left out.
void read_response_tools(Request& request, Task* task)
{
    Fields& fields = request.fields;
    const Value *tools = fields.list("tools"), *choice = fields.find("tool_choice");
    std::vector<Value> functions;
    for (size_t i = 0; tools && i < tools->items().size(); i++) {
        const Value& tool = tools->items()[i];
        const std::string path = "tools[" + std::to_string(i) + "]",
                          type = text_field(tool, "type");
        if (type != "function") {
            fields.skip(path + "=" + printable(type, 40));
            continue;
        }
        if (text_field(tool, "name").empty())
            return fields.fail(
                bad_field(path + ".name", path + ".name: expected the name of a function"));
        functions.push_back(
            chat_tool(*tool.find("name"), tool.find("description"), tool.find("parameters")));
    }
    if (choice && !choice->is(jinja::kText) && !choice->is(jinja::kDict))
        return fields.fail(bad_field("tool_choice", "tool_choice: expected a string or an object"));
    set_tools(request, Value(std::move(functions)), choice ? *choice : Value("auto"), task);
}

} // namespace

void read_response_input(Request& request, Task* task)
{
    Fields& fields = request.fields;
    ItemReader reader(request);
    std::string instructions;
    if (fields.text("instructions", &instructions) && !instructions.empty())
        reader.messages.push_back(chat_message("system", instructions));
    const Value* input = fields.find("input");
    const bool is_list = input && input->is(jinja::kList);
    if (input && input->is(jinja::kText))
        reader.messages.push_back(chat_message("user", input->str()));
    else if (!is_list || input->items().empty())
        fields.fail(bad_field("input", "input: expected a string or an array of items, found " +
                                           (input ? describe(*input) : "nothing")));
    for (size_t i = 0; is_list && i < input->items().size(); i++)
        reader.add("input[" + std::to_string(i) + "]", input->items()[i]);
    if (!fields.error())
        task->chat.messages = normal_messages(request, "input", reader.messages, task);
    if (!fields.error() && task->chat.messages.items().empty())
        fields.fail(bad_field("input", "input: there is nothing to answer"));
    read_response_tools(request, task);
}

} // namespace ks::serve
