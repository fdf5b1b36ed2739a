#include "tools/serve/requests.h"

#include "runtime/chat/json.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace ks::serve
{

using jinja::Value;

std::string random_id(const char* begin)
{
    static thread_local std::mt19937_64 random{std::random_device()()};
    static const char kLetters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    std::string id = begin;
    for (int i = 0; i < 24; i++) id += kLetters[random() % 62];
    return id;
}

std::string token_text(const Tokenizer& tokenizer, uint32_t id)
{
    std::string piece(tokenizer.max_piece_bytes(), '\0');
    piece.resize(tokenizer.piece(id, &piece[0], true));
    return piece;
}

bool read_stream(Fields& fields, Task* task)
{
    bool streams = false, progress = false;
    fields.boolean("stream", &streams);
    fields.boolean("return_progress", &progress);
    task->wants_progress = progress && streams;
    return streams;
}

bool wants_usage(Fields& fields)
{
    bool usage = false;
    const Value* options = fields.object("stream_options");
    if (!options) return false;
    Fields of(*options, "stream_options");
    of.boolean("include_usage", &usage);
    if (of.error()) fields.fail(of.error());
    return usage;
}

void refuse_several(Fields& fields, const char* name)
{
    int64_t n = 1;
    if (fields.integer(name, 1, 128, &n) && n > 1)
        fields.fail(unsupported_field(name, std::string(name) +
                                                ": one answer is given to a request, not " +
                                                std::to_string(n) + "; send it again"));
}

void name_ignored(Request& request)
{
    const std::string unknown = request.fields.unknown();
    if (!unknown.empty()) request.exchange->add_header("X-Knapsack-Ignored", unknown);
}

void check_model_name(Request& request, const std::string& name)
{
    const ServerInfo& info = request.info;
    if (!info.strict_model || name.empty() ||
        std::find(info.aliases.begin(), info.aliases.end(), name) != info.aliases.end())
        return;
    request.fields.fail(
        {404, "not_found_error", "model_not_found",
         "model: this server has " + info.model_id + ", not '" + printable(name, 80) + "'",
         "model"});
}

// A token, or the tokens of a text.
static std::vector<uint32_t> bias_tokens(Request& request, const Value& key)
{
    std::vector<uint32_t> ids;
    const uint32_t n_vocab = request.model.config().n_vocab;
    if (key.is(jinja::kInteger)) {
        if (key.integer >= 0 && key.integer < n_vocab) ids.push_back(uint32_t(key.integer));
    } else if (key.is(jinja::kText)) {
        EncodeOptions options;
        options.add_bos = false;
        request.model.tokenizer().encode(key.str(), options, ids);
    }
    return ids;
}

void read_biases(Request& request, const char* name, bool openai, SamplerOptions* sampling)
{
    const Value* biases = request.fields.find(name);
    if (!biases) return;
    const auto wrong = [&] {
        request.fields.fail(
            bad_field(name, std::string(name) + ": expected an object of token ids below " +
                                std::to_string(request.model.config().n_vocab) + " and numbers"));
    };
    const auto add = [&](const Value& key, const Value& bias) {
        const std::vector<uint32_t> ids = bias_tokens(request, key);
        const bool is_ban = bias.is(jinja::kBoolean) && !bias.integer;
        if (ids.empty() || !(is_ban || bias.is(jinja::kInteger) || bias.is(jinja::kReal)))
            return wrong();
        for (uint32_t id : ids)
            sampling->logit_bias.push_back({id, is_ban ? -INFINITY : float(bias.number())});
    };
    if (biases->is(jinja::kDict)) {
        for (const auto& [key, bias] : biases->members()) {
            const std::string& text = key.str();
            const bool is_id = !text.empty() && text.size() < 10 &&
                               text.find_first_not_of("0123456789") == text.npos;
            if (!is_id && openai) return wrong();
            add(is_id ? Value(int64_t(std::stoll(text))) : key, bias);
        }
    } else if (biases->is(jinja::kList)) {
        for (const Value& pair : biases->items()) {
            if (!pair.is(jinja::kList) || pair.items().size() != 2) return wrong();
            add(pair.items()[0], pair.items()[1]);
        }
    } else {
        wrong();
    }
}

static void read_stops(Request& request, const char* name, Task* task)
{
    constexpr size_t kMostStops = 16, kMostBytes = 256;
    const Value* stop = request.fields.find(name);
    if (!stop) return;
    std::vector<Value> list = {*stop};
    if (stop->is(jinja::kList)) list = stop->items();
    for (const Value& text : list) {
        if (!text.is(jinja::kText) || text.str().size() > kMostBytes || list.size() > kMostStops)
            return request.fields.fail(
                bad_field(name, std::string(name) + ": expected a string, or at most 16 strings "
                                                    "of at most 256 bytes"));
        if (!text.str().empty()) task->stops.push_back(text.str());
    }
}

// The number of tokens of the answer. -1 in the dialects of llama.cpp: no limit.
static void read_limit(Request& request, Dialect dialect, Task* task)
{
    Fields& fields = request.fields;
    task->most_tokens = request.info.most_answer;
    const auto take = [&](const char* name, int64_t low) {
        int64_t n = 0;
        if (!fields.integer(name, low, INT32_MAX, &n)) return;
        if (n == 0 && low < 0 && dialect != Dialect::native)
            return fields.fail(
                bad_field(name, std::string(name) + ": expected at least 1, found 0"));
        const uint64_t most = n < 0 ? ~0ull : uint64_t(n);
        task->most_tokens = task->most_tokens == request.info.most_answer
                                ? most
                                : std::min(task->most_tokens, most);
    };
    if (dialect == Dialect::responses) return take("max_output_tokens", 1);
    if (dialect == Dialect::anthropic) return take("max_tokens", 1);
    take("max_tokens", -1);
    take("max_completion_tokens", -1);
    take("n_predict", -1);
    if (dialect == Dialect::native)
        task->most_tokens = std::min(task->most_tokens, request.info.most_answer);
}

static void read_numbers(Request& request, SamplerOptions* sampling)
{
    Fields& fields = request.fields;
    double x = 0;
    int64_t n = 0;
    if (fields.number("temperature", 0, 1e6, &x)) sampling->temperature = float(x);
    if (fields.number("top_p", 0, 1, &x)) sampling->top_p = x > 0 ? float(x) : 1;
    if (fields.number("min_p", 0, 1, &x)) sampling->min_p = float(x);
    if (fields.number("typical_p", 0, 1, &x)) sampling->typical_p = x > 0 ? float(x) : 1;
    if (fields.number("repeat_penalty", 0, 100, &x))
        sampling->repeat_penalty = x > 0 ? float(x) : 1;
    if (fields.number("presence_penalty", -2, 2, &x)) sampling->presence_penalty = float(x);
    if (fields.number("frequency_penalty", -2, 2, &x)) sampling->frequency_penalty = float(x);
    if (fields.integer("top_k", -1, INT32_MAX, &n)) sampling->top_k = n > 0 ? uint32_t(n) : 0;
    constexpr int64_t kMostLast = 1 << 16;
    if (fields.integer("repeat_last_n", -1, kMostLast, &n))
        sampling->repeat_last_n = n < 0 ? uint32_t(kMostLast) : uint32_t(n);
}

void read_sampling(Request& request, Dialect dialect, Task* task)
{
    Fields& fields = request.fields;
    SamplerOptions& sampling = task->sampling;
    sampling = request.info.sampling;
    read_limit(request, dialect, task);
    read_numbers(request, &sampling);
    int64_t seed = -1;
    fields.integer("seed", INT64_MIN, INT64_MAX, &seed);
    static thread_local std::mt19937_64 random{std::random_device()()};
    if (fields.find("seed") && seed >= 0)
        sampling.seed = uint64_t(seed);
    else if (fields.find("seed") || !request.info.has_seed)
        sampling.seed = random() >> 32;
    read_stops(request, dialect == Dialect::anthropic ? "stop_sequences" : "stop", task);
    if (dialect == Dialect::anthropic || dialect == Dialect::responses) return;
    read_biases(request, "logit_bias", dialect == Dialect::openai, &sampling);
    fields.boolean("ignore_eos", &task->ignore_eos);
    fields.boolean("timings_per_token", &task->wants_timings);
    double ms = 0;
    if (fields.number("t_max_predict_ms", -1, 1e9, &ms)) task->most_ms = ms > 0 ? ms : 0;
    int64_t seat = -1;
    if (fields.integer("id_slot", -1, 255, &seat)) task->seat = seat;
    fields.refuse_on({{"dynatemp_range", 0},
                      {"dynatemp_exponent", 1},
                      {"xtc_probability", 0},
                      {"xtc_threshold", .1},
                      {"dry_multiplier", 0},
                      {"dry_base", 1.75},
                      {"dry_allowed_length", 2},
                      {"dry_penalty_last_n", -1},
                      {"mirostat", 0},
                      {"top_n_sigma", -1},
                      {"adaptive_target", -1}});
    fields.ignore({"samplers", "cache_prompt", "n_keep", "n_discard", "min_keep", "mirostat_tau",
                   "mirostat_eta", "post_sampling_probs", "lora", "dry_sequence_breakers",
                   "backend_sampling", "speculative.n_max", "n_indent", "return_tokens",
                   "penalize_nl"});
}

void set_schema(Request& request, const std::string& path, const Value& schema, Task* task)
{
    Result<Grammar> grammar = parse_json_schema(jinja::write(schema));
    if (!grammar.ok())
        return request.fields.fail(bad_field(path, path + ": " + grammar.status().message()));
    task->constrained = true;
    task->grammar = std::move(grammar.value());
}

Value object_schema()
{
    Value schema = Value::dict();
    schema.dict_object().set("type", "object");
    return schema;
}

void read_format(Request& request, Task* task)
{
    Fields& fields = request.fields;
    std::string text;
    if (fields.text("grammar", &text) && !text.empty()) {
        Result<Grammar> grammar = parse_gbnf(text);
        if (!grammar.ok())
            return fields.fail(bad_field("grammar", "grammar: " + grammar.status().message()));
        task->constrained = true;
        task->grammar = std::move(grammar.value());
    }
    if (const Value* schema = fields.find("json_schema"); schema && !task->constrained)
        set_schema(request, "json_schema", *schema, task);
    const Value* format = fields.object("response_format");
    if (!format) return;
    if (task->constrained)
        return fields.fail(bad_field("response_format", "response_format: a grammar or a schema is "
                                                        "given too; give only one of them"));
    const Value *type = format->find("type"), *given = format->find("json_schema");
    const std::string kind = type && type->is(jinja::kText) ? type->str() : "";
    if (kind == "text") return;
    if (kind != "json_object" && kind != "json_schema")
        return fields.fail(
            bad_field("response_format.type", "response_format.type: expected text, json_object or "
                                              "json_schema, found " +
                                                  (type ? describe(*type) : "nothing")));
    const Value* schema = given ? given->find("schema") : nullptr;
    if (!schema) schema = format->find("schema");
    if (!schema && kind == "json_schema")
        return fields.fail(bad_field("response_format.json_schema",
                                     "response_format.json_schema: expected an object with a "
                                     "schema, found none"));
    set_schema(request, "response_format", schema ? *schema : object_schema(), task);
}

void read_template_options(Request& request, Task* task)
{
    if (const Value* options = request.fields.object("chat_template_kwargs"))
        task->chat.options = *options;
    request.fields.ignore({"reasoning_format", "thinking_budget_tokens", "parse_tool_calls",
                           "chat_format", "thinking_forced_open"});
    std::string effort;
    if (request.fields.text("reasoning_effort", &effort))
        task->chat.options.dict_object().set("reasoning_effort", effort);
}

void complete_chat(const ServerInfo& info, Task* task)
{
    if (info.chat_template.find("tools") == std::string::npos) show_tools(task);
    jinja::Dict& options = task->chat.options.dict_object();
    const auto add = [&](const char* name, const Value& value) {
        if (!options.find(name)) options.set(name, value);
    };
    add("enable_thinking", true);
    const char* const formats[] = {"%d %b %Y", "%b %d %Y"};
    for (int i = 0; i < 2; i++) {
        char date[40];
        add(kDateNames[i],
            std::string_view(date, std::strftime(date, sizeof date, formats[i], &task->chat.now)));
    }
}

} // namespace ks::serve
