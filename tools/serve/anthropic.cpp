// POST /v1/messages, as Anthropic has it.
#include "tools/serve/answers.h"

#include <map>

namespace ks::serve
{

using jinja::Value;

std::string anthropic_error(const HttpError& error)
{
    const std::map<int, const char*> types = {
        {401, "authentication_error"}, {403, "permission_error"},  {404, "not_found_error"},
        {408, "timeout_error"},        {413, "request_too_large"}, {429, "rate_limit_error"},
        {503, "overloaded_error"},     {529, "overloaded_error"}};
    const auto found = types.find(error.status);
    const char* type = found != types.end()  ? found->second
                       : error.status >= 500 ? "api_error"
                                             : "invalid_request_error";
    std::string message = error.message;
    if (error.n_ctx) // the words by which clients know that they have to shorten the conversation
        message = "prompt is too long: " + std::to_string(error.n_prompt_tokens) + " tokens > " +
                  std::to_string(error.n_ctx) + " maximum; " + message;
    return Json::object(
               {{"type", "error"}, {"error", Json::object({{"type", type}, {"message", message}})}})
        .text();
}

namespace
{

class MessagesWriter : public EventWriter
{
public:
    MessagesWriter(const Request& request, bool streams)
        : EventWriter(request.exchange, streams), m_model(request.info.model_id)
    {
    }
    void fail(const HttpError& error) override
    {
        if (!m_begun) return m_exchange->fail(error, anthropic_error(error));
        m_exchange->write("event: error\ndata: " + anthropic_error(error) + "\n\n");
        m_exchange->finish(false);
    }

private:
    enum class Open { none, text, thinking };

    void first_events(const AnswerState& state) override
    {
        emit("message_start", {{"message", message(state, Json::array())}});
    }
    void give(const AnswerEvent& event, const TokenReports&, const AnswerState&) override
    {
        if (event.kind == AnswerEvent::Kind::call) return give_call(event);
        if (!event.text.empty())
            give_text(event.kind == AnswerEvent::Kind::content ? Open::text : Open::thinking,
                      event.text);
    }
    void end(const AnswerState& state, const TokenReports&) override
    {
        if (m_index == 0 && m_open == Open::none) open(Open::text);
        close();
        if (!m_streams) return m_exchange->answer(200, message(state, m_content).text());
        emit("message_delta", {{"delta", stop_json(state)}, {"usage", usage(state)}});
        emit("message_stop", {});
        finish();
    }

    void emit(const char* type, std::initializer_list<Json::Member> members)
    {
        send(Json::object({{"type", type}}).set(members), type);
    }
    // One block of the content: its begin, a piece of it, and its end.
    void begin_block(const Json& block)
    {
        if (m_streams) emit("content_block_start", {{"index", m_index}, {"content_block", block}});
    }
    void give_piece(const char* type, const char* name, const std::string& text)
    {
        if (m_streams)
            emit("content_block_delta",
                 {{"index", m_index}, {"delta", Json::object({{"type", type}, {name, text}})}});
    }
    void end_block(const Json& block)
    {
        if (m_streams)
            emit("content_block_stop", {{"index", m_index}});
        else
            m_content.push(block);
        m_index++;
    }
    static Json text_block(Open kind, const std::string& text)
    {
        if (kind == Open::text) return Json::object({{"type", "text"}, {"text", text}});
        return Json::object({{"type", "thinking"}, {"thinking", text}, {"signature", ""}});
    }
    void open(Open kind)
    {
        close();
        m_open = kind;
        begin_block(text_block(kind, ""));
    }
    void close()
    {
        if (m_open == Open::none) return;
        end_block(text_block(m_open, m_text));
        m_open = Open::none;
        m_text.clear();
    }
    void give_text(Open kind, const std::string& text)
    {
        if (m_open != kind) open(kind);
        if (!m_streams) m_text += text;
        if (kind == Open::text)
            give_piece("text_delta", "text", text);
        else
            give_piece("thinking_delta", "thinking", text);
    }
    void give_call(const AnswerEvent& event)
    {
        close();
        Json input;
        if (!Json::parse(event.text, &input) || !input.is_object()) input = Json::object();
        const auto block = [&](const Json& arguments) {
            return Json::object({{"type", "tool_use"},
                                 {"id", event.id},
                                 {"name", event.name},
                                 {"input", arguments}});
        };
        begin_block(block(Json::object()));
        give_piece("input_json_delta", "partial_json", input.text());
        end_block(block(input));
    }
    static Json usage(const AnswerState& state)
    {
        return Json::object({{"input_tokens", state.n_prompt - state.n_cached},
                             {"cache_creation_input_tokens", 0},
                             {"cache_read_input_tokens", state.n_cached},
                             {"output_tokens", uint64_t(state.ids.size())}});
    }
    static Json stop_json(const AnswerState& state)
    {
        const StopReason why = state.stop;
        const Json reason = why == StopReason::none     ? Json()
                            : why == StopReason::length ? "max_tokens"
                            : why == StopReason::word   ? "stop_sequence"
                            : why == StopReason::calls  ? "tool_use"
                                                        : "end_turn";
        return Json::object(
            {{"stop_reason", reason},
             {"stop_sequence", why == StopReason::word ? Json(state.stop_word) : Json()}});
    }
    Json message(const AnswerState& state, const Json& content) const
    {
        Json json = Json::object({{"id", m_id},
                                  {"type", "message"},
                                  {"role", "assistant"},
                                  {"model", m_model},
                                  {"content", content}});
        for (const Json::Member& member : stop_json(state).members())
            json.set(member.name, member.value);
        return json.set("usage", usage(state));
    }

    const std::string m_id = random_id("msg_"), m_model;
    Open m_open = Open::none;
    int m_index = 0;    // of the block
    std::string m_text; // of the open block
    Json m_content = Json::array();
};

} // namespace

// Reads the messages of Anthropic into those of chat/completions.
class MessageReader
{
public:
    explicit MessageReader(Request& request) : m_request(request) {}
    void add_system();
    void add_messages();
    const std::vector<Value>& messages() const { return m_messages; }

private:
    void add(const std::string& path, const Value& message);
    void add_block(const std::string& path, const Value& block);
    void add_result(const std::string& path, const Value& block);
    void fail(const HttpError& error) { m_request.fields.fail(error); }

    Request& m_request;
    std::vector<Value> m_messages;
    std::map<std::string, std::string> m_names; // of the functions, by the ids of calls
    std::string m_text, m_thinking;             // of the message that is being read
    std::vector<Value> m_calls;
};

// The first block of Claude Code differs in each request, so that no prompt would be found again.
static bool is_billing_header(const std::string& text)
{
    return text.compare(0, 26, "x-anthropic-billing-header") == 0;
}

void MessageReader::add_system()
{
    const Value* system = m_request.fields.find("system");
    if (!system) return;
    std::vector<Value> blocks = {*system};
    if (system->is(jinja::kList)) blocks = system->items();
    for (size_t i = 0; i < blocks.size(); i++) {
        const bool is_text = blocks[i].is(jinja::kText);
        const Value content = is_text ? blocks[i] : Value(std::vector<Value>{blocks[i]});
        const std::string text = message_text(m_request, "system", content);
        if (!is_billing_header(text) && !text.empty())
            m_messages.push_back(chat_message("system", text));
    }
}

void MessageReader::add_result(const std::string& path, const Value& block)
{
    const std::string id = text_field(block, "tool_use_id");
    const Value* content = block.find("content");
    const std::string text =
        content ? message_text(m_request, path + ".content", *content) : std::string();
    Value message = chat_message("tool", text);
    message.dict_object().set("tool_call_id", id);
    if (m_names.count(id)) message.dict_object().set("name", m_names[id]);
    m_messages.push_back(std::move(message));
}

void MessageReader::add_block(const std::string& path, const Value& block)
{
    const std::string type = text_field(block, "type");
    if (type == "redacted_thinking") return;
    if (type == "thinking") {
        m_thinking += text_field(block, "thinking");
        return;
    }
    if (type == "tool_result") return add_result(path, block);
    if (type == "text") {
        const Value* text = block.find("text");
        if (!text || !text->is(jinja::kText))
            return fail(bad_field(path + ".text", path + ".text: expected a string"));
        m_text += text->str();
    } else if (type == "tool_use") {
        const std::string id = text_field(block, "id"), name = text_field(block, "name");
        const Value* input = block.find("input");
        if (name.empty() || !input || !input->is(jinja::kDict))
            return fail(bad_field(path, path + ": expected a name and an input that is an object"));
        m_names[id] = name;
        m_calls.push_back(chat_call(id, name, *input));
    } else {
        fail(unsupported_field(path, path + ": blocks of the type '" + printable(type, 40) +
                                         "' are not supported, only text, tool_use and "
                                         "tool_result"));
    }
}

void MessageReader::add(const std::string& path, const Value& message)
{
    const std::string role = text_field(message, "role");
    const Value* content = message.find("content");
    if (role != "user" && role != "assistant")
        return fail(bad_field(path + ".role", path + ".role: expected user or assistant, found '" +
                                                  printable(role, 40) + "'"));
    if (!content || !(content->is(jinja::kText) || content->is(jinja::kList)))
        return fail(bad_field(path + ".content", path + ".content: expected a string or an array "
                                                        "of blocks"));
    m_text = content->is(jinja::kText) ? content->str() : "";
    m_thinking.clear();
    m_calls.clear();
    const size_t n_before = m_messages.size(); // results come before the text beside them
    if (content->is(jinja::kList))
        for (size_t i = 0; i < content->items().size(); i++)
            add_block(path + ".content[" + std::to_string(i) + "]", content->items()[i]);
    if (role == "assistant") return add_answer(&m_messages, m_thinking, m_text, m_calls);
    const bool has_results = m_messages.size() > n_before;
    if (has_results && m_text.empty()) return;
    if (!m_messages.empty() && m_messages.back().find("role")->str() == "user") {
        m_text = m_messages.back().find("content")->str() + "\n\n" + m_text;
        m_messages.pop_back();
    }
    m_messages.push_back(chat_message("user", m_text));
}

void MessageReader::add_messages()
{
    const Value* list = m_request.fields.list("messages");
    if (!list || list->items().empty())
        return fail(bad_field("messages", "messages: expected a list with at least one message"));
    for (size_t i = 0; i < list->items().size(); i++)
        add("messages[" + std::to_string(i) + "]", list->items()[i]);
}

static Value read_choice(Fields& fields)
{
    const Value* choice = fields.object("tool_choice");
    if (!choice) return "auto";
    const std::string type = text_field(*choice, "type");
    if (type == "auto" || type == "none") return type;
    if (type == "any") return "required";
    if (type == "tool") return chat_tool(text_field(*choice, "name"), nullptr, nullptr);
    fields.fail(bad_field("tool_choice.type", "tool_choice.type: expected auto, any, tool or none, "
                                              "found '" +
                                                  printable(type, 40) + "'"));
    return "auto";
}

// Tools that run at Anthropic have a type of their own and are left out.
static void read_anthropic_tools(Request& request, Task* task)
{
    Fields& fields = request.fields;
    const Value* tools = fields.list("tools");
    std::vector<Value> functions;
    for (size_t i = 0; tools && i < tools->items().size(); i++) {
        const Value& tool = tools->items()[i];
        const std::string path = "tools[" + std::to_string(i) + "]",
                          type = text_field(tool, "type");
        const Value *schema = tool.find("input_schema"), *name = tool.find("name");
        if (!type.empty() && type != "custom" && !schema) {
            fields.skip(path);
            continue;
        }
        if (!name || (schema && !schema->is(jinja::kDict)))
            return fields.fail(
                bad_field(path, path + ": expected a name and an input_schema that is an object"));
        functions.push_back(chat_tool(*name, tool.find("description"), schema));
    }
    set_tools(request, Value(std::move(functions)), read_choice(fields), task);
}

// output_config.format: a schema of the answer.
static void read_output(Request& request, Task* task)
{
    const Value* config = request.fields.object("output_config");
    const Value* format = config ? config->find("format") : nullptr;
    if (!format || format->is(jinja::kNone)) return;
    const Value* schema = format->find("schema");
    if (text_field(*format, "type") != "json_schema" || !schema)
        return request.fields.fail(
            bad_field("output_config.format",
                      "output_config.format: expected the type json_schema and a schema"));
    set_schema(request, "output_config.format.schema", *schema, task);
}

HttpError messages_task(Request& request, Task* task)
{
    constexpr uint64_t kMostTokens = 4096; // of an answer, where nothing else is said
    Fields& fields = request.fields;
    task->is_chat = true;
    bool streams = false;
    fields.boolean("stream", &streams);
    MessageReader reader(request);
    reader.add_system();
    reader.add_messages();
    if (!fields.error())
        task->chat.messages = normal_messages(request, "messages", reader.messages(), task);
    read_sampling(request, Dialect::anthropic, task);
    if (!fields.find("max_tokens")) task->most_tokens = std::min(task->most_tokens, kMostTokens);
    read_output(request, task);
    read_anthropic_tools(request, task);
    read_template_options(request, task);
    if (const Value* servers = fields.list("mcp_servers"); servers && !servers->items().empty())
        fields.refuse("mcp_servers", "this server connects to no other; leave it out");
    std::string name;
    if (fields.text("model", &name)) check_model_name(request, name);
    fields.ignore({"metadata", "service_tier", "thinking", "cache_control", "context_management"});
    task->chat.now = local_time();
    if (!fields.error() && task->chat.messages.items().empty())
        fields.fail(bad_field("messages", "messages: there is nothing to answer"));
    if (fields.error()) return fields.error();
    task->writer = std::make_unique<MessagesWriter>(request, streams);
    return {};
}

} // namespace ks::serve
