// POST /v1/chat/completions.
#include "tools/serve/answers.h"

#include <ctime>

namespace ks::serve
{

namespace
{

class ChatWriter : public EventWriter
{
public:
    ChatWriter(const Request& request, const Task& task, bool streams, bool usage)
        : EventWriter(request.exchange, streams), m_model(request.info.model_id),
          m_fingerprint(request.info.fingerprint), m_usage(usage), m_logprobs(task.n_logprobs >= 0),
          m_timings(task.wants_timings)
    {
    }

private:
    void first_events(const AnswerState&) override
    {
        send_delta(Json::object({{"role", "assistant"}, {"content", Json()}}), {});
    }
    void progress(const AnswerState& state) override
    {
        if (!m_streams) return;
        Json json = head("chat.completion.chunk");
        json.set("choices", Json::array().push(choice(Json::object(), {}, nullptr)));
        if (m_timings) json.set("timings", timings_json(state));
        send(json.set("prompt_progress", progress_json(state)));
    }
    void give(const AnswerEvent& event, const TokenReports& tokens,
              const AnswerState& state) override
    {
        m_now = timings_json(state);
        m_whole.has_begun = true;
        m_whole.add(event, m_streams ? TokenReports() : tokens);
        if (!m_streams) return;
        if (event.kind == AnswerEvent::Kind::call) return give_call(event, tokens);
        if (event.text.empty()) return;
        const bool is_content = event.kind == AnswerEvent::Kind::content;
        send_delta(Json::object({{is_content ? "content" : "reasoning_content", event.text}}),
                   tokens);
    }
    void end(const AnswerState& state, const TokenReports& tokens) override;

    // The name comes first, then the arguments.
    void give_call(const AnswerEvent& event, const TokenReports& tokens)
    {
        Json function = Json::object({{"name", event.name}, {"arguments", ""}});
        Json call = Json::object({{"index", event.index},
                                  {"id", event.id},
                                  {"type", "function"},
                                  {"function", function}});
        send_delta(Json::object({{"tool_calls", Json::array().push(call)}}), tokens);
        call = Json::object(
            {{"index", event.index}, {"function", Json::object({{"arguments", event.text}})}});
        send_delta(Json::object({{"tool_calls", Json::array().push(call)}}), {});
    }
    Json head(const char* object) const
    {
        return Json::object({{"id", m_id},
                             {"object", object},
                             {"created", m_created},
                             {"model", m_model},
                             {"system_fingerprint", m_fingerprint}});
    }
    Json choice(const Json& delta, const TokenReports& tokens, const char* reason) const
    {
        Json json = Json::object({{"index", 0}, {"delta", delta}});
        if (m_logprobs && !tokens.empty())
            json.set("logprobs", Json::object({{"content", logprobs_json(tokens)}}));
        return json.set("finish_reason", reason ? Json(reason) : Json());
    }
    void send_delta(const Json& delta, const TokenReports& tokens, const char* reason = nullptr)
    {
        Json json = head("chat.completion.chunk");
        json.set("choices", Json::array().push(choice(delta, tokens, reason)));
        send(m_timings && m_whole.has_begun ? json.set("timings", m_now) : json);
    }

    const std::string m_id = random_id("chatcmpl-"), m_model, m_fingerprint;
    const int64_t m_created = std::time(nullptr);
    const bool m_usage, m_logprobs, m_timings;
    WholeAnswer m_whole;
    Json m_now = Json::object(); // timings of the last token
};

void ChatWriter::end(const AnswerState& state, const TokenReports& tokens)
{
    const char* reason = finish_reason(state);
    if (m_streams) {
        Json json = head("chat.completion.chunk");
        json.set("choices", Json::array().push(choice(Json::object(), tokens, reason)));
        if (!m_usage) json.set("timings", timings_json(state));
        send(json.set("knapsack", knapsack_json(state)));
        if (m_usage)
            send(head("chat.completion.chunk")
                     .set({{"choices", Json::array()},
                           {"usage", usage_json(state)},
                           {"timings", timings_json(state)}}));
        m_exchange->write("data: [DONE]\n\n");
        return finish();
    }
    m_whole.tokens.insert(m_whole.tokens.end(), tokens.begin(), tokens.end());
    Json message = Json::object({{"role", "assistant"}});
    const bool only_calls = m_whole.n_calls && m_whole.content.empty();
    message.set("content", only_calls ? Json() : Json(m_whole.content));
    if (!m_whole.reasoning.empty()) message.set("reasoning_content", m_whole.reasoning);
    if (m_whole.n_calls) message.set("tool_calls", m_whole.calls);
    message.set("refusal", Json());
    Json choice = Json::object({{"index", 0}, {"message", message}});
    choice.set("logprobs", m_logprobs ? Json::object({{"content", logprobs_json(m_whole.tokens)},
                                                      {"refusal", Json()}})
                                      : Json());
    choice.set("finish_reason", reason);
    Json json = head("chat.completion");
    json.set({{"choices", Json::array().push(choice)},
              {"usage", usage_json(state)},
              {"timings", timings_json(state)},
              {"knapsack", knapsack_json(state)}});
    m_exchange->answer(200, json.text());
}

} // namespace

// The number of log probabilities that are asked for; -1: none.
static int n_logprobs(Fields& fields)
{
    bool wanted = false;
    int64_t n = 0;
    fields.boolean("logprobs", &wanted);
    if (fields.integer("top_logprobs", 0, 20, &n) && !wanted)
        fields.fail(bad_field("top_logprobs", "top_logprobs: it needs logprobs: true"));
    return wanted ? int(n) : -1;
}

HttpError chat_task(Request& request, Task* task)
{
    Fields& fields = request.fields;
    task->is_chat = true;
    const bool streams = read_stream(fields, task), usage = wants_usage(fields);
    task->chat.messages = read_messages(request, "messages", task);
    read_sampling(request, Dialect::openai, task);
    read_format(request, task);
    read_tools(request, task);
    read_template_options(request, task);
    task->n_logprobs = n_logprobs(fields);
    refuse_several(fields, "n");
    if (const jinja::Value* modalities = fields.list("modalities"))
        for (const jinja::Value& one : modalities->items())
            if (!one.is(jinja::kText) || one.str() != "text")
                fields.fail(unsupported_field("modalities", "modalities: only text is supported"));
    fields.refuse("audio", "only text is supported");
    std::string name;
    if (fields.text("model", &name)) check_model_name(request, name);
    fields.ignore({"metadata", "store", "service_tier", "prediction", "verbosity", "moderation",
                   "prompt_cache_retention", "prompt_cache_options", "web_search_options",
                   "safety_identifier", "user", "prompt_cache_key", "continue_final_message"});
    task->chat.now = local_time();
    bool wants_prompt = true;
    if (fields.boolean("add_generation_prompt", &wants_prompt))
        task->chat.options.dict_object().set("add_generation_prompt", wants_prompt);
    if (fields.error()) return fields.error();
    task->writer = std::make_unique<ChatWriter>(request, *task, streams, usage);
    return {};
}

} // namespace ks::serve
