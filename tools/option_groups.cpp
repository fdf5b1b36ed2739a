#include "tools/option_groups.h"

#include <random>

namespace ks
{

void add_json(OptionTable& table, bool* out)
{
    table.add_flag("--json", "one JSON value on standard output; eval: one per line", out);
}

void add_model(OptionTable& table, SessionOptions* out)
{
    table.add_text("-m --model", "FILE", "model file (GGUF), or the first of a split set",
                   &out->model_path, "KNAPSACK_MODEL");
}

void add_device(OptionTable& table, SessionOptions* out)
{
    table.add_text(
        "--device -dev", "ID",
        "where to compute, as `knapsack devices` lists it; default: the best that is there",
        &out->device, "KNAPSACK_DEVICE");
}

void add_threads(OptionTable& table, SessionOptions* out)
{
    table.add_number("-t --threads", "threads; default: one per core", 1, 1024, &out->n_threads);
}

Status check_model(const char* command, const SessionOptions& session)
{
    if (!session.model_path.empty()) return {};
    return fail(Code::usage,
                "%s: no model; give one with -m FILE or KNAPSACK_MODEL (`tools/fetch_model.sh "
                "smollm2` fetches a small one)",
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
    if (codec == "q8_0" || codec == "q4_0") codec.resize(2); // as others call them
    recipe_end += std::string(",") + axis + "=" + codec;
    return {};
}

static Status read_rope(const Value& v, const char* key, std::string& recipe_end)
{
    std::string text;
    KS_TRY(v.filled("what the recipe's own option takes", &text));
    recipe_end += std::string(",") + key + "=" + text;
    return {};
}

void SessionFlags::add_session(OptionTable& table, const char* kv_help)
{
    add_model(table, &session);
    add_device(table, &session);
    table.add({"--memory", "SIZE",
               "hard limit of all memory: bytes, or with KiB, MiB, GiB; default: what the device "
               "has free",
               [this](const Value& v) { return v.bytes(&session.memory_bytes); },
               "KNAPSACK_MEMORY"});
    table.add({"--kv-memory", "SIZE", "hard limit of the cache alone; default: none",
               [this](const Value& v) { return v.bytes(&session.kv_memory_bytes); }});
    table.add_number(
        "-c --ctx-size",
        "tokens of context to hold; 0: the model's; default: as many as fit, at most the model's",
        0, INT32_MAX, &session.context);
    table.add_text("--kv", "RECIPE", kv_help, &session.recipe);
    table.add({"-ctk --cache-type-k", "TYPE",
               "codec of the cached keys, as k=TYPE in the recipe: f32 f16 q8_0 q4_0 turbo4 ...",
               [this](const Value& v) { return read_codec(v, "k", recipe_end); }});
    table.add({"-ctv --cache-type-v", "TYPE", "codec of the cached values, as v=TYPE in the recipe",
               [this](const Value& v) { return read_codec(v, "v", recipe_end); }});
    table.add({"--rope-scaling", "TYPE",
               "how a text may be longer than what the model was trained for, as rope=TYPE in the "
               "recipe: linear ntk yarn",
               [this](const Value& v) { return read_rope(v, "rope", recipe_end); }});
    table.add({"--rope-scale", "X", "and how many times as long, as stretch=X",
               [this](const Value& v) { return read_rope(v, "stretch", recipe_end); }});
    add_threads(table, &session);
}

Status SessionFlags::finish_session(const char* command)
{
    KS_TRY(check_model(command, session));
    for (const char* axis : {",k=", ",v="})
        if (session.recipe.find(axis) != std::string::npos &&
            recipe_end.find(axis) != std::string::npos)
            return fail(Code::usage,
                        "-ct%c: --kv '%s' names the codec, too; expected one of the two", axis[1],
                        printable(session.recipe).c_str());
    session.recipe += recipe_end;
    return {};
}

Status PromptFlags::set(const Value& value, std::string* to, bool as_ids)
{
    if (has_prompt)
        return fail(Code::usage, "%s: the prompt is given twice, expected one of -p, -f and --ids",
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
    table.add({"--ids", "FILE", "the prompt as token ids separated by white space",
               [this](const Value& v) { return set(v, &file, true); }});
}

void SamplingFlags::add_length(OptionTable& table)
{
    auto read = [this](const Value& v) {
        has_n_predict = true;
        return v.number(-1, INT32_MAX, &n_predict);
    };
    table.add({"-n --predict --n-predict", "N",
               "most tokens to write; -1: until the end token or the context is full; default: "
               "128, chat -1",
               read});
}

void SamplingFlags::add_sampling(OptionTable& table)
{
    table.add_real("--temp --temperature",
                   "temperature; 0: the most probable token always; default: 0.8", 0, 1e6f,
                   &sampling.temperature);
    table.add_number("--top-k", "draw from the N most probable tokens; 0: off; default: 40", 0,
                     INT32_MAX, &sampling.top_k);
    table.add_real(
        "--top-p",
        "draw from the most probable tokens that make up X together; 1: off; default: 0.95", 0, 1,
        &sampling.top_p);
    table.add_real("--min-p",
                   "drop tokens below X times the top one's probability; 0: off; default: 0.05", 0,
                   1, &sampling.min_p);
    table.add_real("--typical --typical-p", "locally typical sampling; 1: off; default: 1", 0, 1,
                   &sampling.typical_p);
    table.add_real("--repeat-penalty", "divides the logits of recent tokens; 1: off; default: 1",
                   0.01f, 100, &sampling.repeat_penalty);
    table.add_number("--repeat-last-n", "tokens that the penalties look back on; default: 64", 0,
                     Sampler::kMaxRepeatLastN, &sampling.repeat_last_n);
    table.add_real("--presence-penalty",
                   "taken from the logits of tokens that are recent; default: 0", -100, 100,
                   &sampling.presence_penalty);
    table.add_real("--frequency-penalty", "the same, times how often; default: 0", -100, 100,
                   &sampling.frequency_penalty);
    table.add({"-l --logit-bias", "ID+X",
               "adds X to a token's logit, as 15+0.5 or 15-inf; may be repeated",
               [this](const Value& v) { return v.bias(&sampling.logit_bias); }});
    add_seed(table);
    auto add_stop = [this](const Value& v) {
        stops.push_back(v.text);
        return Status();
    };
    table.add(
        {"-r --reverse-prompt --stop", "TEXT", "stop before this text; may be repeated", add_stop});
}

Status SamplingFlags::finish_sampling()
{
    for (const std::string& stop : stops)
        if (stop.empty()) return fail(Code::usage, "--stop: expected a text, found an empty one");
    sampling.seed = seed;
    return {};
}

} // namespace ks
