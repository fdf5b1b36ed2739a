// run: continues a prompt.
#include "tools/alloc_count.h"
#include "tools/generate.h"
#include "tools/json.h"
#include "tools/option_groups.h"

#include "runtime/base/state_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <sys/stat.h>

namespace ks
{

struct RunOptions : SessionFlags, PromptFlags, SamplingFlags {
    std::string session_file;
    bool ignore_eos = false;
    bool json = false;

    void add_to(OptionTable& table)
    {
        add_session(table);
        add_prompt(table);
        add_file(table);
        add_ids_file(table);
        add_length(table);
        table.add(
            {"--session", "FILE",
             "continue the session saved in FILE, if it exists; save it there at the end, also "
             "after Ctrl-C",
             [this](const Value& v) { return v.filled("a file name", &session_file); }});
        add_sampling(table);
        table.add_flag("--ignore-eos", "never generate an end token", &ignore_eos);
        add_json(table, &json);
    }
    Status finish()
    {
        KS_TRY(finish_session("run"));
        if (!has_prompt && session_file.empty())
            return fail(Code::usage, "run: no prompt given; use -p TEXT, -f FILE or --ids FILE");
        return finish_sampling();
    }
};

static void print_json(const Session& session, size_t n_prompt, const Generated& made,
                       const std::string& text, double prefill_seconds,
                       const SamplerOptions& sampling)
{
    Json json = Json::object({{"text", text},
                              {"prompt_tokens", n_prompt},
                              {"ids", made.ids},
                              {"stop", stop_name(made.stop)}});
    json.set({{"plan_bytes", session.plan().total_bytes}, {"peak_bytes", session.peak_bytes()}});
    json.set("host_allocations", counts_allocations() ? Json(made.allocations) : Json());
    json.set({{"prefill_seconds", prefill_seconds}, {"decode_seconds", made.seconds}});
    json.set({{"evicted", session.evicted()},
              {"merged", session.merged()},
              {"recipe", session.plan().recipe_text}});
    json.set("logits_hash", logits_hash(session.logits(), session.config().n_vocab));
    json.set({{"context", session.plan().context},
              {"seed", sampling.seed},
              {"device", session.plan().device}});
    json.print();
}

// The number of tokens to generate. An explicit -n must fit; the default takes what is free.
static Status choose_limit(const RunOptions& options, size_t n_prompt, const Session& session,
                           uint64_t* out)
{
    const uint32_t context = session.plan().context;
    const uint64_t n_free =
        session.n_free_tokens() > n_prompt ? session.n_free_tokens() - n_prompt : 0;
    const bool all = options.n_predict < 0;
    *out = std::min(n_free, all ? uint64_t(context) : uint64_t(options.n_predict));
    if (options.has_n_predict && !all && uint64_t(options.n_predict) > n_free)
        return fail(
            Code::no_fit,
            "run: %zu tokens and %lld new ones need a context of %llu tokens, this one holds "
            "%u; raise -c or --memory, or lower -n",
            n_prompt, (long long)options.n_predict,
            (unsigned long long)n_prompt + (unsigned long long)options.n_predict, context);
    if (n_prompt > session.n_free_tokens())
        return fail(Code::no_fit,
                    "run: the text has %zu tokens, the context holds %u; raise -c or --memory",
                    n_prompt, context);
    return {};
}

// Loads the session's file; *found: it exists. Fails early if the file cannot be written.
static Status load_session(const RunOptions& options, Session& session, SavedState& saved,
                           bool* found)
{
    *found = false;
    if (options.session_file.empty()) return {};
    StateFile probe(StateFile::Mode::save, options.session_file);
    if (!probe.ok()) return probe.finish();
    struct stat info;
    *found = stat(options.session_file.c_str(), &info) == 0 || errno != ENOENT;
    if (*found)
        return with_flags(session.load(options.session_file, &saved), Code::unsupported,
                          "--kv, -c");
    return {};
}

// Saves the text with all generated tokens. The last one may not have been fed yet.
static Status save_session(const RunOptions& options, Session& session, const Sampler& sampler,
                           const Generated& made, size_t n_before)
{
    if (options.session_file.empty()) return {};
    interrupt::clear();
    if (session.n_tokens() - n_before < made.ids.size()) KS_TRY(session.feed(&made.ids.back(), 1));
    return session.save({sampler.state(), ""}, options.session_file);
}

// Draws with the options' seed, else with that of the loaded session.
static Result<SamplerOptions> sampling_of(const RunOptions& options, const Session& session,
                                          const SavedState* saved)
{
    SamplerOptions sampling = options.sampling;
    if (saved && !options.has_seed) sampling.seed = saved->sampler.seed;
    const uint32_t n_vocab = session.config().n_vocab;
    KS_TRY(check_sampling(sampling, n_vocab));
    for (uint32_t id = 0; options.ignore_eos && id < n_vocab; id++)
        if (session.tokenizer().is_end(id)) sampling.logit_bias.push_back({id, -INFINITY});
    return sampling;
}

static std::string whole_text(const Tokenizer& tokenizer, const RunOptions& options,
                              const std::vector<uint32_t>& ids)
{
    std::string text;
    TokenText pieces(tokenizer, options.stops);
    for (uint32_t id : ids) text += pieces.push(id);
    return text += pieces.finish();
}

// Feeds the prompt, generates and prints.
static Status answer(const RunOptions& options, Session& session, ProgressLine& progress,
                     const std::vector<uint32_t>& prompt, const SamplerOptions& sampling,
                     uint64_t limit, Sampler& sampler)
{
    Generated made;
    made.ids.reserve(limit);
    progress.begin_prompt(prompt.size());
    Stopwatch clock;
    Status read = session.feed(prompt.data(), prompt.size());
    double prefill_seconds = clock.seconds();
    progress.end();
    bool interrupted = read.code() == Code::interrupted;
    if (!interrupted) KS_TRY(read);
    const uint32_t n_before = session.n_tokens();
    TokenText token_text(session.tokenizer(), options.stops);
    char last = '\n';
    Emit emit = [&](std::string_view text) {
        if (!text.empty()) last = text.back();
        if (!options.json) write_text(text);
    };
    if (interrupted)
        made.stop = Stop::interrupted;
    else
        KS_TRY(generate(session, sampler, token_text, limit, emit, made));
    if (options.json)
        print_json(session, prompt.size(), made, whole_text(session.tokenizer(), options, made.ids),
                   prefill_seconds, sampling);
    else if (last != '\n')
        write_text("\n");
    if (!interrupted) KS_TRY(save_session(options, session, sampler, made, n_before));
    return made.stop == Stop::interrupted ? Status(Code::interrupted, "") : Status();
}

static Status run(const RunOptions& options)
{
    ProgressLine progress;
    Result<std::unique_ptr<Session>> opened = open_session(options.session, progress);
    if (!opened.ok()) return opened.status();
    Session& session = *opened.value();
    std::vector<uint32_t> prompt;
    SavedState saved;
    bool found = false;
    KS_TRY(load_session(options, session, saved, &found));
    const bool continues = session.n_tokens() > 0;
    KS_TRY(read_prompt(options, session.tokenizer(), continues, prompt));
    if (prompt.empty() && !session.has_logits())
        return Status(Code::usage, "run: reading was interrupted when this session was saved; give "
                                   "a prompt to continue it");
    uint64_t limit = 0;
    KS_TRY(choose_limit(options, prompt.size(), session, &limit));

    Result<SamplerOptions> sampling = sampling_of(options, session, found ? &saved : nullptr);
    if (!sampling.ok()) return sampling.status();
    Sampler sampler(sampling.value(), session.config().n_vocab, session.sampler_memory());
    if (found) sampler.set_state(saved.sampler);
    for (uint32_t id : prompt) sampler.accept(id);
    return answer(options, session, progress, prompt, sampling.value(), limit, sampler);
}

extern const Command command_run = {
    "run", "continue a prompt", "-m MODEL (-p TEXT | -f FILE | --ids FILE) [options]",
    "The prompt is used as it is, without a chat template. Control tokens in it are plain text.\n"
    "With --session the prompt is appended to the saved text, and may be missing. The session "
    "continues as if it had never stopped, with the same random draws unless -s is given. It needs "
    "the model and the recipe it was saved with.",
    start_command<RunOptions, run>};

} // namespace ks
