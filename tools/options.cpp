#include "tools/options.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <random>

namespace ks
{
namespace
{

const CommandInfo kCommands[] = {
    {"chat", "talk with a model", "-m MODEL [options]",
     "Type a message; /help lists what else there is. Ctrl-C stops an answer, at the prompt it quits. Lines on a pipe are turns, too."},
    {"run", "continue a prompt", "-m MODEL (-p TEXT | -f FILE | --ids FILE) [options]",
     "The prompt is taken as it is: no chat template, control tokens in it are plain text.\n"
     "With --session the prompt is appended to the text that was saved, and may be missing. A saved session goes on exactly as if it\n"
     "had not been interrupted, random draws too where no other -s is given. Model and recipe must be those it was saved with."},
    {"score", "log probability of every token of a text", "-m MODEL -f FILE [options]", ""},
    {"plan", "every byte that a session would hold, from the model file's header alone", "-m MODEL [options]", ""},
    {"inspect", "what is in a model file", "-m MODEL [options]", ""},
    {"tokenize", "standard input as token ids", "-m MODEL [options]", "One line of ids per record."},
    {"devices", "what --device may name here", "[options]", ""},
    {"bench", "tokens per second and share of what the machine can do", "-m MODEL [options]",
     "pp reads a prompt of so many tokens, tg decodes so many, one at a time. GB/s counts the weights and the cache that a token\n"
     "must read; for pp the weights, once per chunk. Gop/s counts the products with weights, two for each. Each result is held\n"
     "against the limit that is nearer: the bandwidth of reading memory, or the peak of int8 dot products by the kernels in use,\n"
     "both measured with as many threads before and after the tests. Weights that are floats cannot come near that peak.\n"
     "COMMAND prints llama-bench's JSON, as 'llama-bench -m MODEL -o json' does, or this bench's, as another build's 'knapsack bench\n"
     "-m MODEL --json'. It is run once for each repetition of each test, with '-p N -n N -d N -r 1' at its end; who goes first changes.\n"
     "Ours warms up as llama-bench does, by a prompt or a token, and holds its memory while the other one runs."},
    {"eval", "what recipes in few bytes lose: facts in long texts, and the next tokens of exact", "-m MODEL [--kv RECIPE]... [options]",
     "Suites: passkey number niah first last sparse dense recency lines uuid multikey multivalue multiquery vt cwe fwe, made from the\n"
     "seed; and text, which reads -f FILE in pieces beside the exact cache. Each cell is the share of answers that came, with its 95%\n"
     "interval; text: KL from exact, how often the most probable token is exact's, and perplexity over exact's. Where exact itself\n"
     "does not reach 80%, a suite says nothing and is left out. ! marks a recipe that had no need to give anything up."},
    {"report", "what eval recorded, as one page of HTML", "-f FILE [-o FILE] [-m MODEL]",
     "With -m also what contexts need in that model. The page is one file: charts are inline, nothing is loaded from anywhere."},
};

constexpr uint32_t bit(Command c)
{
    return 1u << uint32_t(c);
}
constexpr uint32_t kSessions =
    bit(Command::chat) | bit(Command::run) | bit(Command::score) | bit(Command::plan) | bit(Command::bench) | bit(Command::eval);
constexpr uint32_t kModels = kSessions | bit(Command::inspect) | bit(Command::tokenize);
constexpr uint32_t kWriters = bit(Command::chat) | bit(Command::run);
constexpr uint32_t kAll = kModels | bit(Command::devices) | bit(Command::report);

// The text given to an option (or an environment variable), and how it is read.
struct Value {
    const char* option;
    const char* text; // null for a flag

    Status wrong(const char* expected) const
    {
        return fail(Code::usage, "%s: expected %s, found '%s'", option, expected, printable(text).c_str());
    }
    Status number(int64_t low, int64_t high, int64_t* out) const
    {
        errno = 0;
        char* end;
        long long value = strtoll(text, &end, 10);
        if (end == text || *end || isspace(uint8_t(*text)) || errno || value < low || value > high)
            return wrong(("a whole number from " + std::to_string(low) + " to " + std::to_string(high)).c_str());
        *out = value;
        return {};
    }
    template <class T> Status number(int64_t low, int64_t high, T* out) const
    {
        int64_t value = 0;
        KS_TRY(number(low, high, &value));
        *out = T(value);
        return {};
    }
    Status real(float low, float high, float* out) const
    {
        char* end;
        float value = strtof(text, &end);
        if (end == text || *end || isspace(uint8_t(*text)) || !(value >= low && value <= high)) {
            char expected[64];
            snprintf(expected, sizeof expected, "a number from %g to %g", double(low), double(high));
            return wrong(expected);
        }
        *out = value;
        return {};
    }
    Status bytes(uint64_t* out) const
    {
        errno = 0;
        char* end;
        unsigned long long value = strtoull(text, &end, 10);
        static const struct {
            const char *full, *brief;
            int shift;
        } kUnits[] = {{"", "B", 0}, {"KiB", "K", 10}, {"MiB", "M", 20}, {"GiB", "G", 30}};
        for (const auto& unit : kUnits) {
            if (strcmp(end, unit.full) && strcmp(end, unit.brief)) continue;
            if (!isdigit(uint8_t(*text)) || errno || value == 0 || value > (UINT64_MAX >> 1) >> unit.shift) break;
            *out = uint64_t(value) << unit.shift;
            return {};
        }
        return wrong("a number of bytes, at least 1, or a whole number with KiB, MiB or GiB");
    }
    Status list(int64_t low, int64_t high, std::vector<uint32_t>* out) const
    {
        out->clear();
        std::string rest = text;
        for (size_t begin = 0; begin <= rest.size();) {
            size_t end = std::min(rest.find(',', begin), rest.size());
            std::string item = rest.substr(begin, end - begin);
            uint32_t value = 0;
            KS_TRY((Value{option, item.c_str()}.number(low, high, &value)));
            out->push_back(value);
            begin = end + 1;
        }
        return {};
    }
    Status bias(std::vector<std::pair<uint32_t, float>>* out) const
    {
        char* sign;
        errno = 0;
        unsigned long long id = strtoull(text, &sign, 10);
        char* end = sign;
        float value = *sign == '+' || *sign == '-' ? strtof(sign, &end) : 0;
        if (!isdigit(uint8_t(*text)) || errno || id > UINT32_MAX || end == sign || *end || std::isnan(value))
            return wrong("a token id with a bias, such as 15+0.5 or 15-inf");
        out->push_back({uint32_t(id), value});
        return {};
    }
    Status names(std::vector<std::string>* out) const
    {
        out->clear();
        std::string rest = text;
        for (size_t begin = 0; begin <= rest.size();) {
            size_t end = std::min(rest.find(',', begin), rest.size());
            if (end == begin) return wrong("names separated by commas");
            out->push_back(rest.substr(begin, end - begin));
            begin = end + 1;
        }
        return {};
    }
    Status percents(std::vector<double>* out) const
    {
        std::vector<std::string> items;
        KS_TRY(names(&items));
        out->clear();
        for (const std::string& item : items) {
            float value = 0;
            KS_TRY((Value{option, item.c_str()}.real(0.1f, 100, &value)));
            out->push_back(double(value));
        }
        return {};
    }
    Status string(std::string* out) const
    {
        *out = text;
        return {};
    }
};

Status set_prompt(Options& o, const Value& v, std::string* to, bool ids)
{
    if (o.has_prompt) return fail(Code::usage, "%s: the prompt is given twice, expected one of -p, -f and --ids", v.option);
    o.has_prompt = true;
    o.ids |= ids;
    o.from_file = to == &o.file;
    return v.string(to);
}

Status set_seed(Options& o, const Value& v)
{
    int64_t seed = 0;
    KS_TRY(v.number(-1, INT64_MAX, &seed));
    o.has_seed = true;
    if (seed >= 0) o.sampling.seed = uint64_t(seed); // -1: the random one that is there already
    return {};
}

Status set_cache_type(Options& o, const char* axis, const Value& v)
{
    if (!*v.text) return v.wrong("the name of a codec");
    std::string codec = v.text;
    if (codec == "q8_0" || codec == "q4_0") codec.resize(2); // as others call them
    o.recipe_end += std::string(",") + axis + "=" + codec;
    return {};
}

Status set_rope(Options& o, const char* key, const Value& v)
{
    if (!*v.text) return v.wrong("what the recipe's own option takes");
    o.recipe_end += std::string(",") + key + "=" + v.text;
    return {};
}

Status set_session_file(Options& o, const Value& v)
{
    if (!*v.text) return v.wrong("a file's name");
    return v.string(&o.session_file);
}

Status set_versus(Options& o, const Value& v)
{
    if (!*v.text) return v.wrong("a command line");
    return v.string(&o.versus);
}

// The last of --json and -o counts.
Status set_bench_output(Options& o, const Value& v)
{
    for (const char* form : {"md", "json", "jsonl", "csv"}) {
        if (strcmp(v.text, form) != 0) continue;
        o.json = false;
        return v.string(&o.bench_output);
    }
    return v.wrong("md, json, jsonl or csv");
}

struct OptionRow {
    const char* names; // separated by spaces
    const char* value; // how --help calls it; null: a flag
    const char* environment;
    uint32_t commands;
    const char* help;
    Status (*set)(Options&, const Value&);
};

using O = Options&;
using V = const Value&;
constexpr uint32_t kRun = bit(Command::run), kScore = bit(Command::score), kBench = bit(Command::bench), kChat = bit(Command::chat),
                   kTokenize = bit(Command::tokenize), kEval = bit(Command::eval), kReport = bit(Command::report);

// clang-format off
const OptionRow kOptions[] = {
    {"-m --model", "FILE", "KNAPSACK_MODEL", kModels | kReport, "model file (GGUF), or the first of a split set", [](O o, V v) { return v.string(&o.session.model_path); }},
    {"--device -dev", "ID", "KNAPSACK_DEVICE", kSessions, "where to compute, as `knapsack devices` lists it; default: the best that is there", [](O o, V v) { return v.string(&o.session.device); }},
    {"--memory", "SIZE", "KNAPSACK_MEMORY", kSessions & ~kEval, "hard limit of all memory: bytes, or with KiB, MiB, GiB; default: what the device has free", [](O o, V v) { return v.bytes(&o.session.memory_bytes); }},
    {"--kv-memory", "SIZE", nullptr, kSessions & ~kEval, "hard limit of the cache alone; default: none", [](O o, V v) { return v.bytes(&o.session.kv_memory_bytes); }},
    {"-c --ctx-size", "N", nullptr, kSessions & ~kEval, "tokens of context to hold; 0: the model's; default: as many as fit, at most the model's", [](O o, V v) { return v.number(0, INT32_MAX, &o.session.context); }},
    {"--kv", "RECIPE", nullptr, kEval, "a recipe to compare with exact; may be repeated; default: auto", [](O o, V v) { o.recipes.push_back(v.text); return Status(); }},
    {"--kv", "RECIPE", nullptr, kBench, "how the cache holds tokens; default: exact, as llama-bench has it", [](O o, V v) { return v.string(&o.session.recipe); }},
    {"--kv", "RECIPE", nullptr, kSessions & ~kEval & ~kBench, "how the cache holds tokens, such as exact, turbo4 or mix,k=q8,v=q4; default: auto", [](O o, V v) { return v.string(&o.session.recipe); }},
    {"-ctk --cache-type-k", "TYPE", nullptr, kSessions & ~kEval, "codec of the cached keys, as k=TYPE in the recipe: f32 f16 q8_0 q4_0 turbo4 ...", [](O o, V v) { return set_cache_type(o, "k", v); }},
    {"-ctv --cache-type-v", "TYPE", nullptr, kSessions & ~kEval, "codec of the cached values, as v=TYPE in the recipe", [](O o, V v) { return set_cache_type(o, "v", v); }},
    {"--rope-scaling", "TYPE", nullptr, kSessions & ~kEval, "how a text may be longer than what the model was trained for, as rope=TYPE in the recipe: linear ntk yarn", [](O o, V v) { return set_rope(o, "rope", v); }},
    {"--rope-scale", "X", nullptr, kSessions & ~kEval, "and how many times as long, as stretch=X", [](O o, V v) { return set_rope(o, "stretch", v); }},
    {"-t --threads", "N", nullptr, kSessions, "threads; default: one per core", [](O o, V v) { return v.number(1, 1024, &o.session.n_threads); }},

    {"-p --prompt", "TEXT", nullptr, kRun, "the prompt", [](O o, V v) { return set_prompt(o, v, &o.prompt, false); }},
    {"-f --file", "FILE", nullptr, kRun | kScore | kEval, "the text, from a file; - is standard input", [](O o, V v) { return set_prompt(o, v, &o.file, false); }},
    {"--ids", "FILE", nullptr, kRun, "the prompt as token ids separated by white space", [](O o, V v) { return set_prompt(o, v, &o.file, true); }},
    {"--ids", nullptr, nullptr, kScore, "the file holds token ids separated by white space", [](O o, V) { o.ids = true; return Status(); }},
    {"--decode", "N", nullptr, kScore, "read the last N tokens one by one, as decoding does; default: 0", [](O o, V v) { return v.number(0, INT32_MAX, &o.n_decode); }},
    {"-n --predict --n-predict", "N", nullptr, kWriters, "most tokens to write; -1: until the end token or the context is full; default: 128, chat -1", [](O o, V v) { o.has_n_predict = true; return v.number(-1, INT32_MAX, &o.n_predict); }},
    {"--session", "FILE", nullptr, kRun, "go on from this saved session if it is there, and replace it at the end, also after Ctrl-C", set_session_file},

    {"-sys --system-prompt", "TEXT", nullptr, kChat, "the system text; default: the template's own", [](O o, V v) { o.has_system = true; return v.string(&o.system); }},
    {"--chat-template", "NAME", nullptr, kChat, "the chat frame, where the model's own template is none of the known ones", [](O o, V v) { return v.string(&o.chat_template); }},
    {"--no-stats", nullptr, nullptr, kChat, "no line of figures after an answer", [](O o, V) { o.no_stats = true; return Status(); }},

    {"--temp --temperature", "X", nullptr, kWriters, "temperature; 0: the most probable token always; default: 0.8", [](O o, V v) { return v.real(0, 1e6f, &o.sampling.temperature); }},
    {"--top-k", "N", nullptr, kWriters, "draw from the N most probable tokens; 0: off; default: 40", [](O o, V v) { return v.number(0, INT32_MAX, &o.sampling.top_k); }},
    {"--top-p", "X", nullptr, kWriters, "draw from the most probable tokens that make up X together; 1: off; default: 0.95", [](O o, V v) { return v.real(0, 1, &o.sampling.top_p); }},
    {"--min-p", "X", nullptr, kWriters, "drop tokens below X times the top one's probability; 0: off; default: 0.05", [](O o, V v) { return v.real(0, 1, &o.sampling.min_p); }},
    {"--typical --typical-p", "X", nullptr, kWriters, "locally typical sampling; 1: off; default: 1", [](O o, V v) { return v.real(0, 1, &o.sampling.typical_p); }},
    {"--repeat-penalty", "X", nullptr, kWriters, "divides the logits of recent tokens; 1: off; default: 1", [](O o, V v) { return v.real(0.01f, 100, &o.sampling.repeat_penalty); }},
    {"--repeat-last-n", "N", nullptr, kWriters, "tokens that the penalties look back on; default: 64", [](O o, V v) { return v.number(0, Sampler::kMaxRepeatLastN, &o.sampling.repeat_last_n); }},
    {"--presence-penalty", "X", nullptr, kWriters, "taken from the logits of tokens that are recent; default: 0", [](O o, V v) { return v.real(-100, 100, &o.sampling.presence_penalty); }},
    {"--frequency-penalty", "X", nullptr, kWriters, "the same, times how often; default: 0", [](O o, V v) { return v.real(-100, 100, &o.sampling.frequency_penalty); }},
    {"-l --logit-bias", "ID+X", nullptr, kWriters, "adds X to a token's logit, as 15+0.5 or 15-inf; may be repeated", [](O o, V v) { return v.bias(&o.sampling.logit_bias); }},
    {"-s --seed", "N", nullptr, kEval, "seed of the cases; default: 1", set_seed},
    {"-s --seed", "N", nullptr, kSessions & ~kEval, "seed of all that is drawn; -1: a new one each time; default: a saved session's, else -1", set_seed},
    {"-r --reverse-prompt --stop", "TEXT", nullptr, kWriters, "stop before this text; may be repeated", [](O o, V v) { o.stops.push_back(v.text); return Status(); }},
    {"--ignore-eos", nullptr, nullptr, kRun, "never choose an end token", [](O o, V) { o.ignore_eos = true; return Status(); }},

    {"-p --n-prompt", "N,...", nullptr, kBench, "prompt lengths, 0: none; default: 512", [](O o, V v) { return v.list(0, 1 << 24, &o.bench_prompts); }},
    {"-n --n-gen", "N,...", nullptr, kBench, "tokens to decode, 0: none; default: 64", [](O o, V v) { return v.list(0, 1 << 24, &o.bench_tokens); }},
    {"-d --n-depth", "N,...", nullptr, kBench, "tokens already in the cache; default: 0", [](O o, V v) { return v.list(0, 1 << 24, &o.bench_depths); }},
    {"-r --repetitions", "N", nullptr, kBench, "repetitions; default: 5", [](O o, V v) { return v.number(1, 1000, &o.repetitions); }},
    {"--ops", nullptr, nullptr, kBench, "how long each op takes; asking costs a percent or so", [](O o, V) { o.ops = true; return Status(); }},
    {"--versus", "COMMAND", nullptr, kBench, "run this in turns with each test, in the shell and with -p -n -d -r added, and give the ratio of each pair of runs", set_versus},
    {"-o --output", "FORMAT", nullptr, kBench, "md, json, jsonl or csv; default: a table to read", set_bench_output},

    {"--suites", "NAME,...", nullptr, kEval, "what to measure; default: passkey,niah,sparse", [](O o, V v) { return v.names(&o.suites); }},
    {"--lengths", "N,...", nullptr, kEval, "tokens of each text with its question and answer; default: 1024", [](O o, V v) { return v.list(64, 1 << 24, &o.lengths); }},
    {"--shares", "PERCENT,...", nullptr, kEval, "bytes for the cache, as a share of what exact needs for the length; default: 25", [](O o, V v) { return v.percents(&o.shares); }},
    {"-n --cases", "N", nullptr, kEval, "cases of each suite, or pieces of the text; default: 20", [](O o, V v) { return v.number(1, 100000, &o.eval_cases); }},
    {"--later", nullptr, nullptr, kEval, "ask in a turn of its own, after the text was read and cut down", [](O o, V) { o.later = true; return Status(); }},
    {"--no-control", nullptr, nullptr, kEval, "measure what exact itself cannot do, too: texts beyond the model's context", [](O o, V) { o.without_control = true; return Status(); }},
    {"-f --file", "FILE", nullptr, kReport, "what `eval --record` wrote; - is standard input", [](O o, V v) { return set_prompt(o, v, &o.file, false); }},
    {"-o --output", "FILE", nullptr, kReport, "where the page goes; default: standard output", [](O o, V v) { return v.string(&o.record); }},
    {"-o --record", "FILE", nullptr, kEval, "append a line of JSON for each result; what is there already is not measured again", [](O o, V v) { return v.string(&o.record); }},

    {"-0", nullptr, nullptr, kTokenize, "records on standard input end with a NUL byte", [](O o, V) { o.zero_separated = true; return Status(); }},
    {"--special", nullptr, nullptr, kTokenize, "control tokens in the text become those tokens", [](O o, V) { o.special = true; return Status(); }},
    {"--no-bos", nullptr, nullptr, kTokenize, "no BOS in front, even where the model wants one", [](O o, V) { o.no_bos = true; return Status(); }},
    {"--json", nullptr, nullptr, kAll & ~kChat & ~kReport, "one JSON value on standard output; eval: one per line", [](O o, V) { o.json = true; return Status(); }},
    {"-h --help", nullptr, nullptr, kAll, "this text", [](O o, V) { o.help = true; return Status(); }},
};
// clang-format on

bool has_name(const OptionRow& row, const std::string& name)
{
    std::string names = std::string(" ") + row.names + " ";
    return !name.empty() && name.find(' ') == name.npos && names.find(" " + name + " ") != names.npos;
}

const OptionRow* find_option(Command command, const std::string& name)
{
    for (const OptionRow& row : kOptions)
        if ((row.commands & bit(command)) && has_name(row, name)) return &row;
    return nullptr;
}

Status read_environment(Command command, Options& out)
{
    for (const OptionRow& row : kOptions) {
        const char* text = row.environment ? getenv(row.environment) : nullptr;
        if (text && *text && (row.commands & bit(command))) KS_TRY(row.set(out, {row.environment, text}));
    }
    return {};
}

Status check(Command command, const Options& o)
{
    const char* name = command_info(command).name;
    if ((kModels & bit(command)) && o.session.model_path.empty())
        return fail(Code::usage,
                    "%s: no model; give one with -m FILE or KNAPSACK_MODEL (`tools/fetch_model.sh smollm2` fetches a small one)", name);
    for (const char* axis : {",k=", ",v="})
        if (o.session.recipe.find(axis) != std::string::npos && o.recipe_end.find(axis) != std::string::npos)
            return fail(Code::usage, "-ct%c: --kv '%s' names the codec, too; expected one of the two", axis[1],
                        printable(o.session.recipe).c_str());
    if (command == Command::run && !o.has_prompt && o.session_file.empty())
        return fail(Code::usage, "run: no prompt; give one with -p TEXT, -f FILE or --ids FILE");
    if (command == Command::report && !o.has_prompt)
        return fail(Code::usage, "report: nothing to show; give what eval recorded with -f FILE");
    if (command == Command::score && !o.has_prompt) return fail(Code::usage, "score: no text; give one with -f FILE");
    for (const std::string& stop : o.stops)
        if (stop.empty()) return fail(Code::usage, "--stop: expected a text, found an empty one");
    return {};
}

std::string wrapped(const std::string& text, size_t width, size_t indent)
{
    std::string out;
    size_t column = indent;
    for (size_t begin = 0; begin < text.size();) {
        size_t end = std::min(text.find(' ', begin), text.size());
        if (column + (end - begin) >= width && column > indent) {
            out += "\n" + std::string(indent, ' ');
            column = indent;
        } else if (begin > 0) {
            out += ' ';
            column++;
        }
        out += text.substr(begin, end - begin);
        column += end - begin;
        begin = end + 1;
    }
    return out;
}

} // namespace

const CommandInfo& command_info(Command command)
{
    return kCommands[uint32_t(command)];
}

bool find_command(const char* name, Command* out)
{
    for (uint32_t i = 0; i < uint32_t(Command::count); i++) {
        if (strcmp(kCommands[i].name, name) != 0) continue;
        *out = Command(i);
        return true;
    }
    return false;
}

Status parse_options(Command command, int n_args, char** args, Options& out)
{
    const char* name = command_info(command).name;
    out.sampling.seed = std::random_device()();
    if (command == Command::bench) out.session.recipe = "exact";
    KS_TRY(read_environment(command, out));
    for (int i = 0; i < n_args; i++) {
        std::string text = args[i], value;
        size_t equals = text.compare(0, 2, "--") == 0 ? text.find('=') : text.npos;
        bool joined = equals != text.npos;
        if (joined) value = text.substr(equals + 1);
        text = text.substr(0, equals);
        const OptionRow* row = find_option(command, text);
        if (!row) return fail(Code::usage, "%s: unknown option '%s'; `knapsack %s --help` lists them", name, printable(text).c_str(), name);
        if (!row->value && joined)
            return fail(Code::usage, "%s: %s takes no value, found '%s'", name, text.c_str(), printable(value).c_str());
        if (row->value && !joined) {
            if (++i == n_args) return fail(Code::usage, "%s: %s needs a value, %s", name, text.c_str(), row->value);
            value = args[i];
        }
        KS_TRY(row->set(out, {text.c_str(), row->value ? value.c_str() : nullptr}));
        if (out.help) return {};
    }
    if (out.recipes.empty()) out.recipes = {"auto"};
    if (command == Command::eval && !out.has_seed) out.sampling.seed = 1; // what is measured can be measured again
    KS_TRY(check(command, out));
    out.session.recipe += out.recipe_end;
    return {};
}

void print_help(Command command)
{
    const CommandInfo& info = command_info(command);
    printf("knapsack %s: %s\n\nusage: knapsack %s %s\n\n", info.name, info.summary, info.name, info.usage);
    constexpr size_t kIndent = 34;
    for (const OptionRow& row : kOptions) {
        if (!(row.commands & bit(command))) continue;
        std::string names = row.names;
        for (size_t at = 0; (at = names.find(' ', at)) != names.npos; at += 2) names.replace(at, 1, ", ");
        if (row.value) names += std::string(" ") + row.value;
        std::string help = row.help;
        if (row.environment) help += std::string(" (") + row.environment + ")";
        printf("  %-*s", int(kIndent) - 2, names.c_str());
        if (names.size() >= kIndent - 3) printf("\n%*s", int(kIndent), "");
        printf("%s\n", wrapped(help, 100, kIndent).c_str());
    }
    if (*info.notes) printf("\n%s\n", info.notes);
}

void print_help()
{
    printf("knapsack: a language model inside a fixed number of bytes\n\nusage: knapsack COMMAND [options]\n\n");
    for (const CommandInfo& info : kCommands) printf("  %-10s %s\n", info.name, info.summary);
    printf("\n`knapsack COMMAND --help` lists a command's options, `knapsack --version` says what this build has.\n");
    printf("\nexit: 0 ok, 1 usage, 2 model unreadable or invalid, 3 unsupported, 4 does not fit, 5 device, 6 I/O, 130 interrupted\n");
}

} // namespace ks
