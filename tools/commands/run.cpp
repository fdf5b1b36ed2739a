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
        table.add({"--session", "FILE",
                   "go on from this saved session if it is there, and replace it at the end, also "
                   "after Ctrl-C",
                   [this](const Value& v) { return v.filled("a file's name", &session_file); }});
        add_sampling(table);
        table.add_flag("--ignore-eos", "never choose an end token", &ignore_eos);
        add_json(table, &json);
    }
    Status finish()
    {
        KS_TRY(finish_session("run"));
        if (!has_prompt && session_file.empty())
            return fail(Code::usage,
                        "run: no prompt; give one with -p TEXT, -f FILE or --ids FILE");
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

// Tokens to write. An explicit -n has to fit, the default takes what there is.
static Status choose_limit(const RunOptions& options, size_t n_prompt, const Session& session,
                           uint64_t* out)
{
    const uint32_t context = session.plan().context;
    const uint64_t room = session.room() > n_prompt ? session.room() - n_prompt : 0;
    const bool all = options.n_predict < 0;
    *out = std::min(room, all ? uint64_t(context) : uint64_t(options.n_predict));
    if (options.has_n_predict && !all && uint64_t(options.n_predict) > room)
        return fail(Code::no_fit,
                    "run: %zu tokens and %lld new ones need a context of %llu, this one holds %u: "
                    "raise -c or --memory, or lower -n",
                    n_prompt, (long long)options.n_predict,
                    (unsigned long long)n_prompt + (unsigned long long)options.n_predict, context);
    if (n_prompt > session.room())
        return fail(Code::no_fit,
                    "run: the text has %zu tokens, the context holds %u: raise -c or --memory",
                    n_prompt, context);
    return {};
}

// Goes on from the session's file, if it is there: *found. That it can be written is known before
// anything is read.
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

// The last token was written but perhaps not read; in the file everything is.
static Status save_session(const RunOptions& options, Session& session, const Sampler& sampler,
                           const Generated& made, size_t n_before)
{
    if (options.session_file.empty()) return {};
    interrupt::clear();
    if (session.n_tokens() - n_before < made.ids.size()) KS_TRY(session.feed(&made.ids.back(), 1));
    return session.save({sampler.state(), ""}, options.session_file);
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
        return Status(Code::usage, "run: the saved session ends where reading was interrupted, so "
                                   "a prompt is needed to go on");
    uint64_t limit = 0;
    KS_TRY(choose_limit(options, prompt.size(), session, &limit));

    SamplerOptions sampling = options.sampling;
    if (found && !options.has_seed) sampling.seed = saved.sampler.seed;
    uint32_t n_vocab = session.config().n_vocab;
    KS_TRY(check_sampling(sampling, n_vocab));
    for (uint32_t id = 0; options.ignore_eos && id < n_vocab; id++)
        if (session.tokenizer().is_end(id)) sampling.logit_bias.push_back({id, -INFINITY});
    Sampler sampler(sampling, n_vocab, session.sampler_memory());
    if (found) sampler.set_state(saved.sampler);
    for (uint32_t id : prompt) sampler.accept(id);

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
    size_t n_bytes = 0;
    char last = '\n';
    Emit emit = [&](std::string_view text) {
        n_bytes += text.size();
        if (!text.empty()) last = text.back();
        if (!options.json) write_text(text);
    };
    if (interrupted)
        made.stop = Stop::interrupted;
    else
        KS_TRY(generate(session, sampler, token_text, limit, emit, made));
    if (options.json) {
        std::string text;
        TokenText again(session.tokenizer(), options.stops);
        for (uint32_t id : made.ids) text += again.push(id);
        print_json(session, prompt.size(), made, text += again.finish(), prefill_seconds, sampling);
    } else if (last != '\n') {
        write_text("\n");
    }
    if (!interrupted) KS_TRY(save_session(options, session, sampler, made, n_before));
    return made.stop == Stop::interrupted ? Status(Code::interrupted, "") : Status();
}

extern const Command command_run = {
    "run", "continue a prompt", "-m MODEL (-p TEXT | -f FILE | --ids FILE) [options]",
    "The prompt is taken as it is: no chat template, control tokens in it are plain text.\n"
    "With --session the prompt is appended to the text that was saved, and may be missing. A saved "
    "session goes on exactly as if it\n"
    "had not been interrupted, random draws too where no other -s is given. Model and recipe must "
    "be those it was saved with.",
    start_command<RunOptions, run>};

} // namespace ks
