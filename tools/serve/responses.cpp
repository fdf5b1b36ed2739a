// POST /v1/responses.
#include "tools/serve/answers.h"

#include "runtime/chat/json.h"

#include <ctime>

namespace ks::serve
{

using jinja::Value;

namespace
{

struct ResponseOptions {
    bool streams = false, timings = false;
    Json echo = Json::object(); // fields of the request that the answer repeats
};

class ResponseWriter : public EventWriter
{
public:
    ResponseWriter(const Request& request, ResponseOptions options)
        : EventWriter(request.exchange, options.streams), m_model(request.info.model_id),
          m_options(std::move(options))
    {
    }
    void fail(const HttpError& error) override;

private:
    enum class Open { none, message, reasoning };

    void first_events(const AnswerState&) override
    {
        emit("response.created", {{"response", response("in_progress", nullptr)}});
        emit("response.in_progress", {{"response", response("in_progress", nullptr)}});
    }
    void progress(const AnswerState& state) override
    {
        emit("response.in_progress", {{"response", response("in_progress", nullptr)},
                                      {"prompt_progress", progress_json(state)}});
    }
    void give(const AnswerEvent& event, const TokenReports& tokens,
              const AnswerState& state) override
    {
        if (event.kind == AnswerEvent::Kind::call) return give_call(event);
        if (event.text.empty()) return;
        const bool is_message = event.kind == AnswerEvent::Kind::content;
        give_text(is_message ? Open::message : Open::reasoning, event.text, tokens, state);
    }
    void end(const AnswerState& state, const TokenReports& tokens) override;

    void emit(const std::string& type, std::initializer_list<Json::Member> members)
    {
        if (!m_streams) return;
        Json json = Json::object({{"type", type}, {"sequence_number", m_n_events++}});
        send(json.set(members), type.c_str());
    }
    Json response(const char* status, const AnswerState* state, Json error = Json()) const;

    // An item of the output: its begin, the pieces of its only part, and its end.
    void open(Open kind);
    void give_text(Open kind, const std::string& text, const TokenReports& tokens,
                   const AnswerState& state);
    void close(const char* status);
    void give_call(const AnswerEvent& event);
    void end_item(const Json& item);
    Json part() const;
    Json item(const char* status, const Json& parts) const;
    // Members of the events of a part.
    Json at_part(const char* type)
    {
        return Json::object({{"type", type},
                             {"sequence_number", m_n_events++},
                             {"item_id", m_item},
                             {"output_index", m_index},
                             {"content_index", 0}});
    }

    const std::string m_id = random_id("resp_"), m_model;
    const int64_t m_created = std::time(nullptr);
    const ResponseOptions m_options;
    int m_n_events = 0, m_index = 0; // events; items
    Open m_open = Open::none;
    std::string m_item, m_text; // id and text of the open item
    TokenReports m_tokens;      // of the open item
    Json m_output = Json::array();
};

Json usage_of(const AnswerState& state)
{
    const uint64_t n_made = state.ids.size();
    return Json::object({{"input_tokens", state.n_prompt},
                         {"input_tokens_details", Json::object({{"cached_tokens", state.n_cached},
                                                                {"cache_write_tokens", 0}})},
                         {"output_tokens", n_made},
                         {"output_tokens_details", Json::object({{"reasoning_tokens", 0}})},
                         {"total_tokens", state.n_prompt + n_made}});
}

// The object of the answer. state: of a complete answer; else null.
Json ResponseWriter::response(const char* status, const AnswerState* state, Json error) const
{
    Json json = Json::object({{"id", m_id},
                              {"object", "response"},
                              {"created_at", m_created},
                              {"status", status},
                              {"model", m_model},
                              {"output", state ? m_output : Json::array()}});
    const bool is_cut = state && state->stop == StopReason::length;
    json.set("error", error);
    json.set("incomplete_details",
             is_cut ? Json::object({{"reason", "max_output_tokens"}}) : Json());
    for (const Json::Member& member : m_options.echo.members()) json.set(member.name, member.value);
    return json.set("usage", state ? usage_of(*state) : Json());
}

Json ResponseWriter::part() const
{
    if (m_open == Open::reasoning)
        return Json::object({{"type", "reasoning_text"}, {"text", m_text}});
    return Json::object({{"type", "output_text"},
                         {"text", m_text},
                         {"annotations", Json::array()},
                         {"logprobs", logprobs_json(m_tokens)}});
}

Json ResponseWriter::item(const char* status, const Json& parts) const
{
    if (m_open == Open::reasoning)
        return Json::object({{"id", m_item},
                             {"type", "reasoning"},
                             {"status", status},
                             {"summary", Json::array()},
                             {"content", parts}});
    return Json::object({{"id", m_item},
                         {"type", "message"},
                         {"status", status},
                         {"role", "assistant"},
                         {"content", parts}});
}

void ResponseWriter::open(Open kind)
{
    close("completed");
    m_open = kind;
    m_item = random_id(kind == Open::message ? "msg_" : "rs_");
    emit("response.output_item.added",
         {{"output_index", m_index}, {"item", item("in_progress", Json::array())}});
    if (m_streams)
        send(at_part("response.content_part.added").set("part", part()),
             "response.content_part.added");
}

void ResponseWriter::give_text(Open kind, const std::string& text, const TokenReports& tokens,
                               const AnswerState& state)
{
    if (m_open != kind) open(kind);
    m_text += text;
    const bool is_message = kind == Open::message;
    if (is_message) m_tokens.insert(m_tokens.end(), tokens.begin(), tokens.end());
    if (!m_streams) return;
    const char* type = is_message ? "response.output_text.delta" : "response.reasoning_text.delta";
    Json json = at_part(type).set("delta", text);
    if (is_message) json.set("logprobs", logprobs_json(tokens));
    if (m_options.timings) json.set("timings", timings_json(state));
    send(json, type);
}

void ResponseWriter::end_item(const Json& item)
{
    emit("response.output_item.done", {{"output_index", m_index}, {"item", item}});
    m_output.push(item);
    m_index++;
}

void ResponseWriter::close(const char* status)
{
    if (m_open == Open::none) return;
    if (m_streams) {
        const bool is_message = m_open == Open::message;
        const char* type =
            is_message ? "response.output_text.done" : "response.reasoning_text.done";
        Json json = at_part(type).set("text", m_text);
        if (is_message) json.set("logprobs", logprobs_json(m_tokens));
        send(json, type);
        send(at_part("response.content_part.done").set("part", part()),
             "response.content_part.done");
    }
    end_item(item(status, Json::array().push(part())));
    m_open = Open::none;
    m_text.clear();
    m_tokens.clear();
}

void ResponseWriter::give_call(const AnswerEvent& event)
{
    close("completed");
    const std::string id = random_id("fc_");
    const auto call = [&](const char* status, const std::string& arguments) {
        return Json::object({{"id", id},
                             {"type", "function_call"},
                             {"status", status},
                             {"call_id", event.id},
                             {"name", event.name},
                             {"arguments", arguments}});
    };
    emit("response.output_item.added",
         {{"output_index", m_index}, {"item", call("in_progress", "")}});
    emit("response.function_call_arguments.delta",
         {{"item_id", id}, {"output_index", m_index}, {"delta", event.text}});
    emit("response.function_call_arguments.done", {{"item_id", id},
                                                   {"output_index", m_index},
                                                   {"name", event.name},
                                                   {"arguments", event.text}});
    end_item(call("completed", event.text));
}

void ResponseWriter::end(const AnswerState& state, const TokenReports& tokens)
{
    const char* status = state.stop == StopReason::length ? "incomplete" : "completed";
    if (m_index == 0 && m_open == Open::none) open(Open::message);
    if (m_open == Open::message) m_tokens.insert(m_tokens.end(), tokens.begin(), tokens.end());
    close(status);
    const Json json = response(status, &state);
    if (!m_streams) {
        Json whole = json;
        whole.set({{"timings", timings_json(state)}, {"knapsack", knapsack_json(state)}});
        return m_exchange->answer(200, whole.text());
    }
    emit(
        std::string("response.") + status,
        {{"response", json}, {"timings", timings_json(state)}, {"knapsack", knapsack_json(state)}});
    finish();
}

// A prompt that is too long fails as a response, too: clients then shorten the conversation.
void ResponseWriter::fail(const HttpError& error)
{
    if (!m_begun && m_streams && error.n_ctx) begin(AnswerState());
    if (!m_begun) return m_exchange->fail(error);
    const char* code = error.n_ctx           ? "context_length_exceeded"
                       : error.status == 429 ? "rate_limit_exceeded"
                                             : "server_error";
    const Json json = Json::object({{"code", code}, {"message", error.message}});
    emit("response.failed", {{"response", response("failed", nullptr, json)}});
    finish();
}

Json json_of(const Value* value, Json missing)
{
    if (value) Json::parse(jinja::write(*value), &missing);
    return missing;
}

void read_text_format(Request& request, Task* task)
{
    Fields& fields = request.fields;
    const Value* text = fields.object("text");
    const Value* format = text ? text->find("format") : nullptr;
    if (!format || format->is(jinja::kNone)) return;
    const Value* schema = format->find("schema");
    const std::string kind = text_field(*format, "type");
    if (kind == "text") return;
    if (kind == "json_object") return set_schema(request, "text.format", object_schema(), task);
    if (kind != "json_schema" || !schema)
        return fields.fail(bad_field("text.format", "text.format: expected the type text, "
                                                    "json_object, or json_schema with a schema"));
    set_schema(request, "text.format.schema", *schema, task);
}

int read_logprobs(Fields& fields)
{
    int64_t n = 0;
    bool wanted = fields.integer("top_logprobs", 0, 20, &n) && n > 0;
    if (const Value* include = fields.list("include"))
        for (const Value& name : include->items())
            wanted |= name.is(jinja::kText) && name.str() == "message.output_text.logprobs";
    return wanted ? int(n) : -1;
}

void refuse_state(Fields& fields)
{
    const char* const why = "this server stores no responses; send the whole conversation as input";
    fields.refuse("previous_response_id", why);
    fields.refuse("conversation", why);
    fields.refuse("prompt", "this server stores no prompts; send instructions and input");
    bool background = false;
    if (fields.boolean("background", &background) && background)
        fields.fail(unsupported_field("background", "background: " + std::string(why)));
}

Json echo_of(Fields& fields, const Task& task)
{
    const bool has_limit = fields.find("max_output_tokens") != nullptr;
    Json json = Json::object({{"instructions", Json()},
                              {"max_output_tokens", has_limit ? Json(task.most_tokens) : Json()},
                              {"temperature", double(task.sampling.temperature)},
                              {"top_p", double(task.sampling.top_p)},
                              {"tools", json_of(fields.find("tools"), Json::array())},
                              {"tool_choice", json_of(fields.find("tool_choice"), "auto")}});
    Json format = Json::object({{"format", Json::object({{"type", "text"}})}});
    json.set({{"text", json_of(fields.find("text"), format)},
              {"metadata", json_of(fields.find("metadata"), Json::object())},
              {"parallel_tool_calls", true},
              {"previous_response_id", Json()},
              {"store", false},
              {"truncation", "disabled"}});
    return json;
}

} // namespace

HttpError responses_task(Request& request, Task* task)
{
    Fields& fields = request.fields;
    task->is_chat = true;
    ResponseOptions options;
    options.streams = read_stream(fields, task);
    fields.boolean("timings_per_token", &options.timings);
    refuse_state(fields);
    read_response_input(request, task);
    read_sampling(request, Dialect::responses, task);
    read_text_format(request, task);
    read_template_options(request, task);
    task->n_logprobs = read_logprobs(fields);
    std::string name;
    if (fields.text("model", &name)) check_model_name(request, name);
    fields.ignore({"store", "reasoning", "prompt_cache_key", "prompt_cache_retention", "user",
                   "client_metadata", "metadata", "safety_identifier", "service_tier",
                   "parallel_tool_calls", "max_tool_calls", "truncation", "stream_options"});
    task->chat.now = local_time();
    if (fields.error()) return fields.error();
    options.echo = echo_of(fields, *task);
    task->writer = std::make_unique<ResponseWriter>(request, std::move(options));
    return {};
}

} // namespace ks::serve
