// POST /completion, as llama.cpp's server has it.
#include "tools/serve/answers.h"

#include "tools/generate.h"

namespace ks::serve
{

namespace
{

struct NativeOptions {
    bool streams = false, tokens = false, timings = false;
    std::vector<std::string> fields; // of the answer that are wanted; empty: all
};

class NativeWriter : public EventWriter
{
public:
    NativeWriter(const Request& request, NativeOptions options, Json settings, std::string prompt)
        : EventWriter(request.exchange, options.streams), m_model(request.info.model_id),
          m_options(std::move(options)), m_settings(std::move(settings)),
          m_prompt(std::move(prompt))
    {
    }

private:
    void progress(const AnswerState& state) override
    {
        send(event({}, Json::array(), {}, state).set("prompt_progress", progress_json(state)));
    }
    void give(const AnswerEvent& piece, const TokenReports& tokens,
              const AnswerState& state) override
    {
        m_has_new_line |= piece.text.find('\n') != std::string::npos;
        if (!m_streams) return m_whole.add(piece, tokens);
        Json ids = Json::array();
        while (m_n_given < state.ids.size()) ids.push(state.ids[m_n_given++]);
        Json json = event(piece.text, ids, tokens, state);
        if (m_options.timings) json.set("timings", timings_json(state));
        send(json);
    }
    void end(const AnswerState& state, const TokenReports& tokens) override;

    // What each event of a stream has.
    Json event(const std::string& text, const Json& ids, const TokenReports& tokens,
               const AnswerState& state) const
    {
        Json json = Json::object({{"index", 0},
                                  {"content", text},
                                  {"tokens", ids},
                                  {"stop", false},
                                  {"id_slot", state.seat},
                                  {"tokens_predicted", uint64_t(state.ids.size())},
                                  {"tokens_evaluated", state.n_prompt}});
        if (!tokens.empty()) json.set("completion_probabilities", logprobs_json(tokens));
        return json;
    }

    const std::string m_model;
    const NativeOptions m_options;
    const Json m_settings;
    const std::string m_prompt;
    size_t m_n_given = 0; // ids in the events so far
    bool m_has_new_line = false;
    WholeAnswer m_whole;
};

const char* stop_type(StopReason reason)
{
    return reason == StopReason::eos      ? "eos"
           : reason == StopReason::word   ? "word"
           : reason == StopReason::length ? "limit"
                                          : "none";
}

// The fields with these names; those of objects in objects have the name "a/b".
Json picked(const Json& from, const std::vector<std::string>& names)
{
    Json out = Json::object();
    for (const std::string& name : names) {
        Json at = from;
        bool found = true;
        for (size_t begin = 0; found && begin <= name.size();) {
            const size_t end = std::min(name.find('/', begin), name.size());
            const std::string part = name.substr(begin, end - begin);
            found = at.has(part.c_str());
            if (found) at = at.member(part.c_str());
            begin = end + 1;
        }
        if (found && !out.has(name.c_str())) out.set(name, at);
    }
    return out;
}

void NativeWriter::end(const AnswerState& state, const TokenReports& tokens)
{
    m_whole.tokens.insert(m_whole.tokens.end(), tokens.begin(), tokens.end());
    Json json =
        Json::object({{"index", 0},
                      {"content", m_whole.content},
                      {"tokens", m_options.tokens && !m_streams ? Json(state.ids) : Json::array()},
                      {"id_slot", state.seat},
                      {"stop", true},
                      {"model", m_model}});
    json.set({{"tokens_predicted", uint64_t(state.ids.size())},
              {"tokens_evaluated", state.n_prompt},
              {"generation_settings", m_settings},
              {"prompt", m_prompt},
              {"has_new_line", m_has_new_line},
              {"truncated", false}});
    json.set({{"stop_type", stop_type(state.stop)},
              {"stopping_word", state.stop_word},
              {"tokens_cached", state.n_cached},
              {"timings", timings_json(state)},
              {"knapsack", knapsack_json(state)}});
    if (!m_whole.tokens.empty())
        json.set("completion_probabilities", logprobs_json(m_whole.tokens));
    if (!m_options.fields.empty()) json = picked(json, m_options.fields);
    if (!m_streams) return m_exchange->answer(200, json.text());
    send(json);
    finish();
}

// Samplers of llama.cpp that this server lacks, at the values that switch them off.
void add_absent_samplers(Json& json)
{
    json.set({{"dynatemp_range", 0.0},
              {"dynatemp_exponent", 1.0},
              {"top_n_sigma", -1.0},
              {"xtc_probability", 0.0},
              {"xtc_threshold", 0.1},
              {"dry_multiplier", 0.0},
              {"dry_base", 1.75},
              {"dry_allowed_length", 2},
              {"dry_penalty_last_n", 0},
              {"dry_sequence_breakers", Json::array()},
              {"mirostat", 0},
              {"mirostat_tau", 5.0},
              {"mirostat_eta", 0.1},
              {"adaptive_target", -1.0},
              {"adaptive_decay", 0.9}});
}

// The options of a request as they are applied.
Json settings_json(const Request& request, const Task& task, const NativeOptions& options,
                   const std::string& grammar)
{
    SamplerOptions sampling = task.sampling;
    const int64_t n_predict = task.most_tokens > INT32_MAX ? -1 : int64_t(task.most_tokens);
    Json biases = Json::array();
    if (task.ignore_eos) ban_end_tokens(request.model, sampling);
    for (const auto& [id, bias] : sampling.logit_bias)
        biases.push(Json::object({{"bias", double(bias)}, {"token", id}}));
    Json json = Json::object({{"n_ctx", request.model.plan().context},
                              {"model", request.info.model_id},
                              {"n_predict", n_predict},
                              {"max_tokens", n_predict}});
    for (const Json::Member& member : sampling_json(sampling).members())
        json.set(member.name, member.value);
    add_absent_samplers(json);
    json.set({{"samplers", Json(std::vector<std::string>{"penalties", "top_k", "typ_p", "top_p",
                                                         "min_p", "temperature"})},
              {"logit_bias", biases},
              {"stop", Json(task.stops)},
              {"ignore_eos", task.ignore_eos},
              {"grammar", grammar},
              {"stream", options.streams}});
    json.set({{"n_probs", std::max(task.n_logprobs, 0)},
              {"post_sampling_probs", false},
              {"timings_per_token", task.wants_timings},
              {"n_keep", 0},
              {"n_discard", 0},
              {"min_keep", 0},
              {"lora", Json::array()}});
    return json;
}

// The prompt as the model reads it, with special tokens.
std::string prompt_text(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids)
{
    std::string text;
    for (uint32_t id : ids) text += token_text(tokenizer, id);
    return text;
}

void read_probabilities(Fields& fields, Task* task)
{
    int64_t n = 0;
    bool sampled = false;
    fields.integer("n_probs", 0, 100, &n);
    if (fields.boolean("post_sampling_probs", &sampled) && sampled && n > 0)
        fields.fail(unsupported_field("post_sampling_probs",
                                      "post_sampling_probs: only the probabilities before sampling "
                                      "are known; leave it out"));
    task->n_logprobs = n > 0 ? int(n) : -1;
}

void read_field_names(Fields& fields, NativeOptions* options)
{
    constexpr size_t kMostNames = 64;
    const jinja::Value* names = fields.list("response_fields");
    if (!names) return;
    for (const jinja::Value& name : names->items()) {
        if (!name.is(jinja::kText) || options->fields.size() == kMostNames)
            return fields.fail(
                bad_field("response_fields", "response_fields: expected at most 64 strings"));
        options->fields.push_back(name.str());
    }
}

} // namespace

HttpError native_task(Request& request, Task* task)
{
    Fields& fields = request.fields;
    NativeOptions options;
    options.streams = read_stream(fields, task);
    fields.boolean("return_tokens", &options.tokens);
    read_field_names(fields, &options);
    read_prompt(request, task);
    read_sampling(request, Dialect::native, task);
    options.timings = task->wants_timings;
    read_format(request, task);
    read_probabilities(fields, task);
    for (const char* name : {"n", "n_cmpl"}) refuse_several(fields, name);
    for (const char* name : {"image_data", "multimodal_data"})
        if (const jinja::Value* list = fields.list(name); list && !list->items().empty())
            fields.refuse(name, "only text is supported");
    std::string name, grammar;
    if (fields.text("model", &name)) check_model_name(request, name);
    fields.text("grammar", &grammar);
    fields.ignore({"n_cache_reuse", "sse_ping_interval"});
    if (fields.error()) return fields.error();
    const Json settings = settings_json(request, *task, options, grammar);
    task->writer = std::make_unique<NativeWriter>(
        request, std::move(options), settings, prompt_text(request.model.tokenizer(), task->ids));
    return {};
}

} // namespace ks::serve
