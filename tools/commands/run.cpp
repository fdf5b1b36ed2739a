// run: continues a prompt.
#include "tools/alloc_count.h"
#include "tools/generate.h"
#include "tools/json.h"
#include "tools/option_groups.h"

#include "runtime/base/state_file.h"
#include "runtime/chat/json.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <sys/stat.h>

namespace ks
{

struct RunOptions : SessionFlags, PromptFlags, SamplingFlags, GrammarFlags {
    ChatTemplateFlags chat_template;
    std::string chat_file, session_file;
    bool ignore_eos = false;
    bool json = false;

    void add_to(OptionTable& table)
    {
        add_session(table);
        add_prompt(table);
        add_file(table);
        add_ids_file(table);
        table.add({"--chat", "FILE",
                   "answer a conversation: an object in JSON with messages, and tools and options "
                   "if needed",
                   [this](const Value& v) { return v.filled("a file name", &chat_file); }});
        chat_template.add_to(table);
        add_length(table);
        table.add(
            {"--session", "FILE",
             "continue the session saved in FILE, if it exists; save it there at the end, also "
             "after Ctrl-C",
             [this](const Value& v) { return v.filled("a file name", &session_file); }});
        add_sampling(table);
        add_grammar(table);
        table.add_flag("--ignore-eos", "never generate an end token", &ignore_eos);
        add_json(table, &json);
    }
    Status finish()
    {
        KS_TRY(finish_session("run"));
        if (has_prompt && !chat_file.empty())
            return fail(Code::usage, "run: --chat is a prompt; give no other one");
        if (!has_prompt && chat_file.empty() && session_file.empty())
            return fail(Code::usage,
                        "run: no prompt given; use -p TEXT, -f FILE, --ids FILE or --chat FILE");
        KS_TRY(finish_grammar(session));
        session.renders = !chat_file.empty() && !chat_template.chosen.empty();
        return finish_sampling();
    }
};

// What is read before the answer.
struct Prompt {
    std::vector<uint32_t> ids;
    // Of --chat; else null.
    std::unique_ptr<Conversation> conversation;
    PromptStep step;
    jinja::Value tools = jinja::Value::none();
};

static void print_json(const Session& session, size_t n_prompt, const Generated& made,
                       const std::string& text, const Json& message, double prefill_seconds,
                       const SamplerOptions& sampling)
{
    Json json = Json::object({{"text", text},
                              {"prompt_tokens", n_prompt},
                              {"ids", made.ids},
                              {"stop", stop_name(made.stop)}});
    if (message.is_object()) json.set("message", message);
    json.set({{"plan_bytes", session.plan().total_bytes},
              {"peak_bytes", session.model().ledger().peak_bytes()}});
    json.set("host_allocations", counts_allocations() ? Json(made.allocations) : Json());
    json.set({{"prefill_seconds", prefill_seconds}, {"decode_seconds", made.seconds}});
    json.set({{"evicted", session.evicted()},
              {"merged", session.merged()},
              {"recipe", session.plan().recipe_text},
              {"rung", session.rung().recipe_text},
              {"climbs", session.n_climbs()},
              {"climb_seconds", session.climb_seconds()}});
    json.set("logits_hash", logits_hash(session.logits(), session.model().config().n_vocab));
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

// Saves the text with all generated tokens. The last ones may not have been fed yet.
static Status save_session(const RunOptions& options, Session& session, const Sampler& sampler,
                           const Generated& made, size_t n_before)
{
    if (options.session_file.empty()) return {};
    interrupt::clear();
    const size_t n_fed = session.n_tokens() - n_before;
    KS_TRY(session.feed_answer(made.ids.data() + n_fed, made.ids.size() - n_fed));
    return session.save({sampler.state(), ""}, options.session_file);
}

// Draws with the options' seed, else with that of the loaded session.
static Result<SamplerOptions> sampling_of(const RunOptions& options, const Session& session,
                                          const SavedState* saved)
{
    SamplerOptions sampling = options.sampling;
    if (saved && !options.has_seed) sampling.seed = saved->sampler.seed;
    KS_TRY(check_sampling(sampling, session.model().config().n_vocab));
    if (options.ignore_eos) ban_end_tokens(session.model(), sampling);
    return sampling;
}

static std::string whole_text(const Tokenizer& tokenizer, const RunOptions& options,
                              const std::vector<uint32_t>& ids)
{
    std::string text;
    TextSink sink(tokenizer, options.stops, [&](std::string_view piece) { text += piece; });
    for (uint32_t id : ids) sink.push(id);
    sink.finish();
    return text;
}

// Generates with the sink that the prompt needs. *message: of an answer in a conversation.
static Status generate_answer(const RunOptions& options, Session& session, const Prompt& prompt,
                              uint64_t seed, Sampler& sampler, uint64_t limit, Generated& made,
                              Json* message)
{
    const std::unique_ptr<Constraint> constraint = constraint_of(session, options.grammar);
    char last = '\n';
    const Emit emit = [&](std::string_view text) {
        if (!text.empty()) last = text.back();
        if (!options.json) write_text(text);
    };
    if (!prompt.conversation) {
        TextSink sink(session.model().tokenizer(), options.stops, emit);
        KS_TRY(generate(session, sampler, constraint.get(), sink, limit, made));
    } else {
        const Conversation& conversation = *prompt.conversation;
        std::vector<std::string> stops = options.stops;
        if (!conversation.format().stop_text().empty())
            stops.push_back(conversation.format().stop_text());
        AnswerSink sink(conversation, session.model().tokenizer(), prompt.tools, stops, seed,
                        [&](const AnswerEvent& event) {
                            if (event.kind == AnswerEvent::Kind::content) emit(event.text);
                        });
        KS_TRY(generate(session, sampler, constraint.get(), sink, limit, made));
        Json::parse(jinja::write(sink.message()), message);
        if (!options.json && message->has("tool_calls"))
            emit(message->member("tool_calls").text() + "\n");
    }
    if (!options.json && last != '\n') write_text("\n");
    return {};
}

// Reads the prompt, generates and prints.
static Status answer(const RunOptions& options, Session& session, ProgressLine& progress,
                     Prompt& prompt, const SamplerOptions& sampling, uint64_t limit,
                     Sampler& sampler)
{
    Generated made;
    made.ids.reserve(limit);
    progress.begin_prompt(prompt.ids.size());
    Stopwatch clock;
    Status read = prompt.conversation ? prompt.conversation->read(prompt.step)
                                      : session.feed(prompt.ids.data(), prompt.ids.size());
    double prefill_seconds = clock.seconds();
    progress.end();
    bool interrupted = read.code() == Code::interrupted;
    if (!interrupted) KS_TRY(read);
    const uint32_t n_before = session.n_tokens();
    Json message;
    if (interrupted)
        made.stop = Stop::interrupted;
    else
        KS_TRY(generate_answer(options, session, prompt, sampling.seed, sampler, limit, made,
                               &message));
    if (options.json)
        print_json(session, prompt.ids.size(), made,
                   whole_text(session.model().tokenizer(), options, made.ids), message,
                   prefill_seconds, sampling);
    if (!interrupted) KS_TRY(save_session(options, session, sampler, made, n_before));
    return made.stop == Stop::interrupted ? Status(Code::interrupted, "") : Status();
}

// Options of the command line override those of the file.
static Status read_conversation(const RunOptions& options, Session& session, Prompt& prompt)
{
    std::string text;
    KS_TRY(read_file(options.chat_file, &text));
    Result<ChatRequest> request = read_chat_request(text);
    if (!request.ok()) return request.status();
    for (const auto& option : options.chat_template.values.dict_object().items)
        request.value().options.dict_object().set(option.first, option.second);
    request.value().now = local_time();
    Result<Conversation> opened = Conversation::open(session, options.chat_template.chosen);
    const std::string hint = "--chat-template, a file or one of " + template_names();
    if (!opened.ok()) return with_flags(opened.status(), Code::unsupported, hint.c_str());
    prompt.conversation = std::make_unique<Conversation>(std::move(opened.value()));
    Result<PromptStep> step = prompt.conversation->prompt(request.value());
    if (!step.ok()) return with_flags(step.status(), Code::no_fit, "-c, --memory");
    prompt.step = std::move(step.value());
    prompt.ids = prompt.step.ids;
    prompt.tools = request.value().tools;
    return {};
}

static Status run(const RunOptions& options)
{
    ProgressLine progress;
    Result<std::unique_ptr<Session>> opened = open_session(options.session, progress);
    if (!opened.ok()) return opened.status();
    Session& session = *opened.value();
    Prompt prompt;
    SavedState saved;
    bool found = false;
    KS_TRY(load_session(options, session, saved, &found));
    const bool continues = session.n_tokens() > 0;
    if (!options.chat_file.empty())
        KS_TRY(read_conversation(options, session, prompt));
    else
        KS_TRY(read_prompt(options, session.model().tokenizer(), continues, prompt.ids));
    if (prompt.ids.empty() && !session.has_logits())
        return Status(Code::usage, "run: reading was interrupted when this session was saved; give "
                                   "a prompt to continue it");
    uint64_t limit = 0;
    KS_TRY(choose_limit(options, prompt.ids.size(), session, &limit));

    Result<SamplerOptions> sampling = sampling_of(options, session, found ? &saved : nullptr);
    if (!sampling.ok()) return sampling.status();
    Sampler sampler(sampling.value(), session.model().config().n_vocab, session.sampler_memory());
    if (found) sampler.set_state(saved.sampler);
    for (uint32_t id : prompt.ids) sampler.accept(id);
    return answer(options, session, progress, prompt, sampling.value(), limit, sampler);
}

extern const Command command_run = {
    "run", "continue a prompt", "-m MODEL (-p TEXT | -f FILE | --ids FILE | --chat FILE) [options]",
    "The prompt is used as it is, without a chat template, but that of --chat. Control tokens in "
    "it are plain text.\n"
    "With --session the prompt is appended to the saved text, and may be missing. The session "
    "continues as if it had never stopped, with the same random draws unless -s is given. It needs "
    "the model and the recipe it was saved with.",
    start_command<RunOptions, run>};

} // namespace ks
