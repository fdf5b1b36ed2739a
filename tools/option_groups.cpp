#include "tools/option_groups.h"

#include "runtime/chat/chat_format.h"
#include "runtime/chat/json.h"
#include "runtime/model/gguf.h"
#include "tools/program.h"

#include <random>

namespace ks
{

void add_json(OptionTable& table, bool* out)
{
    table.add_flag("--json", "print one JSON value on standard output", out);
}

void add_model(OptionTable& table, ModelOptions* out)
{
    table.add_text("-m --model", "FILE", "model file (GGUF); of a split model the first file",
                   &out->model_path, "KNAPSACK_MODEL");
}

void add_device(OptionTable& table, ModelOptions* out)
{
    table.add_text(
        "--device -dev", "ID",
        "device to compute on, an id that `knapsack devices` lists; default: the best one",
        &out->device, "KNAPSACK_DEVICE");
}

void add_threads(OptionTable& table, ModelOptions* out)
{
    table.add_number("-t --threads", "number of threads; default: one per core", 1, 1024,
                     &out->n_threads);
}

Status check_model(const char* command, const ModelOptions& session)
{
    if (!session.model_path.empty()) return {};
    return fail(Code::usage,
                "%s: no model given; name one with -m FILE or KNAPSACK_MODEL "
                "(`tools/fetch_model.sh smollm2` downloads a small one)",
                command);
}

SeedFlag::SeedFlag() : seed(std::random_device()()) {}

void SeedFlag::add_seed(OptionTable& table, const char* help)
{
    auto read = [this](const Value& v) {
        has_seed = true;
        return v.seed(&seed);
    };
    table.add({"-s --seed", "N", help, read});
}

static Status read_codec(const Value& v, const char* axis, std::string& recipe_end)
{
    std::string codec;
    KS_TRY(v.filled("the name of a codec", &codec));
    if (codec == "q8_0" || codec == "q4_0") codec.resize(2); // llama.cpp's names of q8 and q4
    recipe_end += std::string(",") + axis + "=" + codec;
    return {};
}

static Status read_rope(const Value& v, const char* key, std::string& recipe_end)
{
    std::string text;
    KS_TRY(v.filled("a value of the recipe's option", &text));
    recipe_end += std::string(",") + key + "=" + text;
    return {};
}

void SessionFlags::add_session(OptionTable& table, const char* kv_help)
{
    add_model(table, &session);
    add_device(table, &session);
    table.add({"--memory", "SIZE",
               "hard limit of the total memory, in bytes or with KiB, MiB, GiB; default: the free "
               "memory of the device",
               [this](const Value& v) { return v.bytes(&session.memory_bytes); },
               "KNAPSACK_MEMORY"});
    table.add({"--kv-memory", "SIZE", "hard limit of the KV cache alone; default: none",
               [this](const Value& v) { return v.bytes(&session.kv_memory_bytes); }});
    table.add_number("-c --ctx-size",
                     "size of the context in tokens; 0: the model's; default: as many as fit, at "
                     "most the model's",
                     0, INT32_MAX, &session.context);
    table.add_text("--kv", "RECIPE", kv_help, &session.recipe);
    table.add(
        {"-ctk --cache-type-k", "TYPE",
         "codec of the cached keys, the same as k=TYPE in the recipe: f32 f16 q8_0 q4_0 turbo4 ...",
         [this](const Value& v) { return read_codec(v, "k", recipe_end); }});
    table.add({"-ctv --cache-type-v", "TYPE",
               "codec of the cached values, the same as v=TYPE in the recipe",
               [this](const Value& v) { return read_codec(v, "v", recipe_end); }});
    table.add({"--rope-scaling", "TYPE",
               "RoPE scaling for contexts beyond the trained one, the same as rope=TYPE in the "
               "recipe: linear ntk yarn",
               [this](const Value& v) { return read_rope(v, "rope", recipe_end); }});
    table.add({"--rope-scale", "X",
               "extend the trained context X times, the same as stretch=X in the recipe",
               [this](const Value& v) { return read_rope(v, "stretch", recipe_end); }});
    add_threads(table, &session);
}

Status SessionFlags::finish_session(const char* command)
{
    KS_TRY(check_model(command, session));
    for (const char* axis : {",k=", ",v="})
        if (session.recipe.find(axis) != std::string::npos &&
            recipe_end.find(axis) != std::string::npos)
            return fail(Code::usage, "-ct%c: --kv '%s' names this codec too; give only one of them",
                        axis[1], printable(session.recipe).c_str());
    session.recipe += recipe_end;
    return {};
}

Status PromptFlags::set(const Value& value, std::string* to, bool as_ids)
{
    if (has_prompt)
        return fail(Code::usage, "%s: the prompt is given twice; give only one of -p, -f and --ids",
                    value.option);
    has_prompt = true;
    ids |= as_ids;
    from_file = to == &file;
    return value.string(to);
}

void PromptFlags::add_prompt(OptionTable& table)
{
    table.add({"-p --prompt", "TEXT", "the prompt",
               [this](const Value& v) { return set(v, &prompt, false); }});
}

void PromptFlags::add_file(OptionTable& table, const char* help)
{
    table.add({"-f --file", "FILE", help, [this](const Value& v) { return set(v, &file, false); }});
}

void PromptFlags::add_ids_file(OptionTable& table)
{
    table.add({"--ids", "FILE", "read the prompt from a file of token ids separated by white space",
               [this](const Value& v) { return set(v, &file, true); }});
}

void ChatTemplateFlags::add_template(OptionTable& table)
{
    auto read_template = [this](const Value& v) {
        chosen = v.text;
        if (find_named_template(chosen)) return Status();
        Status status = read_file(v.text, &chosen);
        if (status.ok() && !chosen.empty()) return status;
        return fail(Code::usage, "%s: expected a file or one of %s, found '%s'", v.option,
                    template_names().c_str(), printable(v.text).c_str());
    };
    table.add(
        {"--chat-template", "NAME|FILE",
         "chat template instead of the model's: a file in Jinja, or one of " + template_names(),
         read_template});
}

void ChatTemplateFlags::add_to(OptionTable& table)
{
    auto read_values = [this](const Value& v) {
        Result<jinja::Value> json = jinja::parse_json(v.text);
        if (!json.ok() || !json.value().is(jinja::Kind::dict))
            return v.wrong("an object in JSON, such as {\"enable_thinking\":false}");
        values = json.value();
        return Status();
    };
    add_template(table);
    table.add({"--chat-template-kwargs", "JSON", "values for the chat template", read_values});
}

void ChatTemplateFlags::add_tools(OptionTable& table)
{
    auto read = [this](const Value& v) {
        std::string text;
        KS_TRY(read_file(v.text, &text));
        Result<jinja::Value> json = jinja::parse_json(text);
        Status status = json.ok() ? check_tools(json.value()) : json.status();
        if (!status.ok())
            return fail(status.code(), "%s %s: %s", v.option, printable(v.text, 200).c_str(),
                        status.message().c_str());
        tools = json.value();
        return Status();
    };
    table.add({"--tools", "FILE",
               "tools that the model may call: a list of definitions in JSON, as in OpenAI's "
               "interface; you type the result of each call",
               read});
}

Status ChatTemplateFlags::check_model(const std::string& path) const
{
    if (!chosen.empty()) return {};
    Result<Gguf> gguf = Gguf::open(path);
    if (!gguf.ok()) return gguf.status();
    Result<VocabSource> vocab = gguf.value().vocab();
    if (!vocab.ok()) return vocab.status();
    if (!vocab.value().chat_template.empty()) {
        Result<jinja::Template> parsed = jinja::Template::parse(vocab.value().chat_template);
        if (parsed.ok()) return {};
        return fail(parsed.status().code(), "%s: %s; --chat-template NAME or FILE chooses another",
                    gguf.value().label().c_str(), parsed.status().message().c_str());
    }
    return fail(Code::unsupported,
                "%s: no chat template (a base model); use `knapsack run` to continue a text, or "
                "--chat-template with a file or one of %s",
                gguf.value().label().c_str(), template_names().c_str());
}

void SamplingFlags::add_length(OptionTable& table)
{
    auto read = [this](const Value& v) {
        has_n_predict = true;
        return v.number(-1, INT32_MAX, &n_predict);
    };
    table.add({"-n --predict --n-predict", "N",
               "generate at most N tokens; -1: until an end token or a full context; default: 128, "
               "in chat -1",
               read});
}

void SamplingFlags::add_sampling(OptionTable& table)
{
    table.add_real("--temp --temperature",
                   "temperature; 0: always the most probable token; default: 0.8", 0, 1e6f,
                   &sampling.temperature);
    table.add_number("--top-k", "sample from the N most probable tokens; 0: off; default: 40", 0,
                     INT32_MAX, &sampling.top_k);
    table.add_real(
        "--top-p",
        "sample from the most probable tokens whose probabilities sum to X; 1: off; default: 0.95",
        0, 1, &sampling.top_p);
    table.add_real("--min-p",
                   "drop tokens below X times the highest probability; 0: off; default: 0.05", 0, 1,
                   &sampling.min_p);
    table.add_real("--typical --typical-p", "locally typical sampling; 1: off; default: 1", 0, 1,
                   &sampling.typical_p);
    table.add_real("--repeat-penalty",
                   "lower the logits of recent tokens by this factor; 1: off; default: 1", 0.01f,
                   100, &sampling.repeat_penalty);
    table.add_number("--repeat-last-n",
                     "number of recent tokens that the penalties look at; default: 64", 0,
                     Sampler::kMaxRepeatLastN, &sampling.repeat_last_n);
    table.add_real("--presence-penalty",
                   "subtract X from the logit of each recent token; default: 0", -100, 100,
                   &sampling.presence_penalty);
    table.add_real("--frequency-penalty",
                   "subtract X for each time that a recent token occurs; default: 0", -100, 100,
                   &sampling.frequency_penalty);
    table.add({"-l --logit-bias", "ID+X",
               "add X to the logit of a token, such as 15+0.5 or 15-inf; may be repeated",
               [this](const Value& v) { return v.bias(&sampling.logit_bias); }});
    add_seed(table);
    auto add_stop = [this](const Value& v) {
        stops.push_back(v.text);
        return Status();
    };
    table.add({"-r --reverse-prompt --stop", "TEXT",
               "stop generating before this text; may be repeated", add_stop});
}

Status SamplingFlags::finish_sampling()
{
    for (const std::string& stop : stops)
        if (stop.empty()) return fail(Code::usage, "--stop: expected a text, found an empty text");
    sampling.seed = seed;
    return {};
}

void GrammarFlags::add_grammar(OptionTable& table)
{
    table.add_text("--grammar --grammar-file", "FILE",
                   "the answer follows this grammar (GBNF, as in llama.cpp)", &m_grammar_file);
    table.add_text("--json-schema --json-schema-file", "FILE",
                   "the answer is JSON that this schema allows", &m_schema_file);
}

Status GrammarFlags::finish_grammar(ModelOptions& session)
{
    session.constrained = !m_grammar_file.empty() || !m_schema_file.empty();
    if (!session.constrained) return {};
    if (!m_grammar_file.empty() && !m_schema_file.empty())
        return Status(Code::usage, "--grammar: --json-schema is given too; give only one of them");
    const bool is_schema = m_grammar_file.empty();
    std::string text;
    KS_TRY(read_file(is_schema ? m_schema_file : m_grammar_file, &text));
    Result<Grammar> parsed = is_schema ? parse_json_schema(text) : parse_gbnf(text);
    if (!parsed.ok()) return parsed.status();
    grammar = std::move(parsed.value());
    return {};
}

} // namespace ks
