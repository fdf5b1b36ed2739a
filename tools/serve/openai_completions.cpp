// POST /v1/completions.
#include "tools/serve/answers.h"

#include <algorithm>
#include <ctime>

namespace ks::serve
{

namespace
{

class CompletionWriter : public EventWriter
{
public:
    struct Options {
        bool streams = false, usage = false, logprobs = false, timings = false;
    };
    CompletionWriter(const Request& request, const Options& options)
        : EventWriter(request.exchange, options.streams), m_model(request.info.model_id),
          m_fingerprint(request.info.fingerprint), m_options(options)
    {
    }

private:
    void progress(const AnswerState& state) override
    {
        send(head(choice("", {}, nullptr)).set("prompt_progress", progress_json(state)));
    }
    void give(const AnswerEvent& event, const TokenReports& tokens,
              const AnswerState& state) override
    {
        if (!m_streams) return m_whole.add(event, tokens);
        Json json = head(choice(event.text, tokens, nullptr));
        if (m_options.timings) json.set("timings", timings_json(state));
        send(json);
    }
    void end(const AnswerState& state, const TokenReports& tokens) override;

    Json head() const
    {
        return Json::object({{"id", m_id},
                             {"object", "text_completion"},
                             {"created", m_created},
                             {"model", m_model},
                             {"system_fingerprint", m_fingerprint}});
    }
    Json head(const Json& choice) const
    {
        return head().set("choices", Json::array().push(choice));
    }
    Json choice(const std::string& text, const TokenReports& tokens, const char* reason);
    Json logprobs(const TokenReports& tokens);

    const std::string m_id = random_id("cmpl-"), m_model, m_fingerprint;
    const int64_t m_created = std::time(nullptr);
    const Options m_options;
    uint64_t m_n_chars = 0; // of the tokens reported so far
    WholeAnswer m_whole;
};

uint64_t count_chars(const std::string& utf8)
{
    return uint64_t(std::count_if(utf8.begin(), utf8.end(),
                                  [](char c) { return (uint8_t(c) & 0xc0) != 0x80; }));
}

// The arrays of OpenAI's completions, and `content` as chat/completions has it.
Json CompletionWriter::logprobs(const TokenReports& tokens)
{
    Json texts = Json::array(), numbers = Json::array(), tops = Json::array(),
         offsets = Json::array();
    for (const TokenReport& token : tokens) {
        Json top = Json::object();
        for (const TokenReport::Choice& one : token.top)
            if (!top.has(one.bytes.c_str())) top.set(one.bytes, double(one.logprob));
        texts.push(token.chosen.bytes);
        numbers.push(double(token.chosen.logprob));
        tops.push(top);
        offsets.push(m_n_chars);
        m_n_chars += count_chars(token.chosen.bytes);
    }
    return Json::object({{"tokens", texts},
                         {"token_logprobs", numbers},
                         {"top_logprobs", tops},
                         {"text_offset", offsets},
                         {"content", logprobs_json(tokens)}});
}

Json CompletionWriter::choice(const std::string& text, const TokenReports& tokens,
                              const char* reason)
{
    const bool has_logprobs = m_options.logprobs && (!m_streams || !tokens.empty());
    return Json::object({{"text", text},
                         {"index", 0},
                         {"logprobs", has_logprobs ? logprobs(tokens) : Json()},
                         {"finish_reason", reason ? Json(reason) : Json()}});
}

void CompletionWriter::end(const AnswerState& state, const TokenReports& tokens)
{
    m_whole.tokens.insert(m_whole.tokens.end(), tokens.begin(), tokens.end());
    Json json = head(choice(m_whole.content, m_whole.tokens, finish_reason(state)));
    if (!m_streams) json.set("usage", usage_json(state));
    if (!m_streams || !m_options.usage) json.set("timings", timings_json(state));
    json.set("knapsack", knapsack_json(state));
    if (!m_streams) return m_exchange->answer(200, json.text());
    send(json);
    if (m_options.usage)
        send(head().set({{"choices", Json::array()},
                         {"usage", usage_json(state)},
                         {"timings", timings_json(state)}}));
    m_exchange->write("data: [DONE]\n\n");
    finish();
}

void refuse_options(Fields& fields)
{
    refuse_several(fields, "n");
    refuse_several(fields, "best_of");
    bool echo = false;
    if (fields.boolean("echo", &echo) && echo)
        fields.fail(unsupported_field("echo", "echo: the prompt is not given back; leave it out"));
    std::string suffix;
    if (fields.text("suffix", &suffix) && !suffix.empty())
        fields.fail(
            unsupported_field("suffix", "suffix: this server does not fill in text; leave it out"));
}

} // namespace

HttpError completions_task(Request& request, Task* task)
{
    Fields& fields = request.fields;
    CompletionWriter::Options options;
    options.streams = read_stream(fields, task);
    options.usage = wants_usage(fields);
    read_prompt(request, task);
    read_sampling(request, Dialect::openai, task);
    options.timings = task->wants_timings;
    read_format(request, task);
    refuse_options(fields);
    int64_t n_logprobs = 0;
    options.logprobs = fields.integer("logprobs", 0, 20, &n_logprobs);
    task->n_logprobs = options.logprobs ? int(n_logprobs) : -1;
    std::string name;
    if (fields.text("model", &name)) check_model_name(request, name);
    fields.ignore(
        {"user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier"});
    if (fields.error()) return fields.error();
    task->writer = std::make_unique<CompletionWriter>(request, options);
    return {};
}

} // namespace ks::serve
