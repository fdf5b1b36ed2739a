// chat: a conversation in a terminal, or a message per line on a pipe.
#include "tools/generate.h"
#include "tools/option_groups.h"
#include "tools/terminal/chat_note.h"
#include "tools/terminal/memory_view.h"
#include "tools/terminal/message_reader.h"
#include "tools/terminal/tool_calls.h"

#include "runtime/api/conversation.h"
#include "runtime/chat/json.h"

#include <algorithm>
#include <unistd.h>

namespace ks
{
namespace
{

struct ChatOptions : SessionFlags, SamplingFlags, GrammarFlags {
    std::string system;
    bool has_system = false;
    ChatTemplateFlags chat_template;
    bool no_stats = false;

    void add_to(OptionTable& table)
    {
        add_session(table);
        add_length(table);
        auto read_system = [this](const Value& v) {
            has_system = true;
            return v.string(&system);
        };
        table.add({"-sys --system-prompt", "TEXT",
                   "system prompt; default: the one of the chat template", read_system});
        chat_template.add_to(table);
        chat_template.add_tools(table);
        table.add_flag("--no-stats", "print no statistics after an answer", &no_stats);
        add_sampling(table);
        add_grammar(table);
    }
    Status finish()
    {
        KS_TRY(finish_session("chat"));
        KS_TRY(finish_grammar(session));
        session.renders = !chat_template.chosen.empty();
        return finish_sampling();
    }
};

const char* const kHelp =
    "  /memory     show the memory, the KV cache, and how much of each turn it still holds\n"
    "  /memory SIZE  change the budget, to at most that at the start\n"
    "  /clear      forget the conversation\n"
    "  /read FILE  put a text file in front of the next message\n"
    "  /regen      generate another answer to the last message\n"
    "  /save FILE  save the conversation to a file\n"
    "  /load FILE  continue a saved conversation\n"
    "  /think on   let the model reason before it answers; /think off: answer at once\n"
    "  /help       print this list\n"
    "  /exit       quit, like Ctrl-D\n"
    "After an answer that calls tools, type the result of each call.\n"
    "Ctrl-C stops an answer; at the prompt it quits. To write several lines, put the message "
    "between\n"
    "\"\"\" and \"\"\", end a line with a backslash, or press Alt-Enter.\n";

constexpr int kCallEnd = 256; // behind a tool call; no byte

class Chat
{
public:
    Chat(Session& session, const ChatOptions& options, Conversation conversation,
         ProgressLine& progress);
    Status loop();

private:
    Status handle(const std::string& message);
    Status command(const std::string& line);
    Status say(const std::string& message);
    bool waits_for(ToolCall* call) const;
    void note_turn(const PromptStep& step, const std::string& message);
    Status regenerate();
    Status read_turn(const PromptStep& step);
    Status answer();
    Status attach(const std::string& path);
    void begin();
    void clear();
    Status save(const std::string& path);
    Status load(const std::string& path);
    void show(const AnswerEvent& event);
    void end_reasoning();
    void show_memory() const;
    void tell_climb();
    Status set_memory(const std::string& size);
    std::string held_text() const;
    void show_figures(double seconds, size_t n_fed);
    void tell(const std::string& text) const; // prints a line on standard error, dimmed

    Session& m_session;
    uint32_t m_n_climbs = 0; // at the last tell_climb()
    const ChatOptions& m_options;
    ProgressLine& m_progress;
    MessageReader m_reader;
    Sampler m_sampler;
    std::unique_ptr<Constraint> m_constraint;
    std::vector<std::string> m_stops;
    Conversation m_conversation;
    std::vector<uint32_t> m_unread; // the last tokens of an answer, generated but not fed
    std::vector<jinja::Value> m_messages;
    jinja::Value m_values;        // of the template
    bool m_knows_messages = true; // false: the session was saved without them
    ChatNote m_note;
    std::string m_attached;
    size_t m_n_read = 0; // tokens of the last message
    double m_read_seconds = 0;
    bool m_reasons = false; // the last thing shown was reasoning
    int m_last = '\n';      // the last byte shown of the answer, or kCallEnd
    bool m_done = false;
};

Chat::Chat(Session& session, const ChatOptions& options, Conversation conversation,
           ProgressLine& progress)
    : m_session(session), m_options(options), m_progress(progress),
      m_sampler(options.sampling, session.model().config().n_vocab, session.sampler_memory()),
      m_constraint(constraint_of(session, options.grammar)), m_stops(options.stops),
      m_conversation(std::move(conversation)), m_values(options.chat_template.values)
{
    if (!m_conversation.format().stop_text().empty())
        m_stops.push_back(m_conversation.format().stop_text());
    begin();
}

// The system prompt is read with the first message.
void Chat::begin()
{
    m_messages.clear();
    m_knows_messages = true;
    if (m_options.has_system) m_messages.push_back(chat_message("system", m_options.system));
    m_note = {};
    m_unread.clear();
    m_attached.clear();
}

void write_raw(const char* sequence)
{
    fputs(sequence, stdout);
    fflush(stdout);
}

void Chat::tell(const std::string& text) const
{
    bool colour = has_colour(STDERR_FILENO);
    fprintf(stderr, "%s%s%s\n", colour ? "\033[2m" : "", text.c_str(), colour ? "\033[0m" : "");
}

Status Chat::loop()
{
    while (!m_done) {
        interrupt::clear();
        std::string message;
        ToolCall call;
        MessageReader::Result result =
            m_reader.read(message, waits_for(&call) ? call.prompt() : "> ");
        if (result == MessageReader::Result::end) break;
        if (result == MessageReader::Result::quit) return Status(Code::interrupted, "");
        Status status = handle(message);
        if (status.ok()) continue;
        if (!m_reader.interactive() || (status.code() != Code::no_fit && status.code() != Code::io))
            return status;
        tell(status.message());
    }
    return {};
}

Status Chat::handle(const std::string& message)
{
    if (message[0] == '/' && message.find('\n') == message.npos) return command(message);
    bool blank = message.find_first_not_of(" \t\r\n") == message.npos;
    return blank ? Status() : say(message);
}

Status Chat::command(const std::string& line)
{
    size_t space = std::min(line.find(' '), line.size());
    std::string name = line.substr(0, space),
                rest = line.substr(std::min(line.find_first_not_of(' ', space), line.size()));
    const bool wants_file = name == "/read" || name == "/save" || name == "/load";
    if (wants_file && !rest.empty()) {
        Status status = name == "/read" ? attach(rest) : name == "/save" ? save(rest) : load(rest);
        if (status.ok() || !m_reader.interactive()) return status;
        tell(status.message());
        return {};
    }
    if (name == "/think" && (rest == "on" || rest == "off")) {
        m_values.dict_object().set("enable_thinking", rest == "on");
        return {};
    }
    if (name == "/memory" && !rest.empty()) {
        const Status status = set_memory(rest);
        if (!status.ok()) tell(status.message());
        return {};
    }
    if (!rest.empty() || wants_file)
        tell(name + (wants_file ? " needs a file name" : " takes no argument"));
    else if (name == "/exit")
        m_done = true;
    else if (name == "/help")
        fputs(kHelp, stderr);
    else if (name == "/memory")
        show_memory();
    else if (name == "/clear")
        clear();
    else if (name == "/regen")
        return regenerate();
    else
        tell("unknown command " + printable(name) + "; /help lists them");
    return {};
}

void Chat::clear()
{
    m_session.clear();
    m_sampler.reset();
    begin();
    if (m_reader.interactive()) tell("conversation forgotten");
}

Status Chat::attach(const std::string& path)
{
    std::string text;
    KS_TRY(read_file(path, &text));
    m_attached += text + (text.empty() || text.back() == '\n' ? "\n" : "\n\n");
    if (m_reader.interactive())
        tell(printable(path) + ": " + grouped(text.size()) + " bytes, sent with the next message");
    return {};
}

// The file holds the tokens that were fed, so the rest of an answer is fed first.
Status Chat::save(const std::string& path)
{
    if (m_session.n_tokens() == 0) {
        tell("there is no conversation to save yet");
        return {};
    }
    KS_TRY(m_session.feed_answer(m_unread.data(), m_unread.size()));
    m_unread.clear();
    if (m_knows_messages) m_note.messages = jinja::write(jinja::Value(m_messages));
    KS_TRY(m_session.save({m_sampler.state(), m_note.text()}, path));
    if (m_reader.interactive())
        tell(printable(path, 200) + ": " + grouped(m_session.n_tokens()) + " tokens saved");
    return {};
}

// Also continues a session that `run` saved: a text without messages.
Status Chat::load(const std::string& path)
{
    SavedState saved;
    KS_TRY(with_flags(m_session.load(path, &saved), Code::unsupported, "--kv, -c"));
    SamplerOptions sampling = m_options.sampling;
    if (!m_options.has_seed) sampling.seed = saved.sampler.seed;
    m_sampler = Sampler(sampling, m_session.model().config().n_vocab, m_session.sampler_memory());
    m_sampler.set_state(saved.sampler);
    begin();
    m_note = read_chat_note(saved.note, m_session.n_tokens(), m_session.plan().context);
    m_conversation.load();
    Result<jinja::Value> messages = jinja::parse_json(m_note.messages);
    m_knows_messages = messages.ok() && check_messages(messages.value()).ok();
    if (m_knows_messages) m_messages = messages.value().list().items;
    if (m_reader.interactive())
        tell(printable(path, 200) + ": conversation loaded, " + grouped(m_session.n_tokens()) +
             " tokens");
    return {};
}

// How full the cache is: tokens of the context, or slots if the cache evicts.
std::string Chat::held_text() const
{
    const Plan& plan = m_session.plan();
    const uint32_t n_tokens = m_session.n_tokens();
    if (plan.recipe.exact())
        return grouped(n_tokens) + " of " + grouped(plan.context) + " tokens held";
    return grouped(n_tokens) + " tokens in " + grouped(std::min(n_tokens, plan.slots)) + " of " +
           grouped(plan.slots) + " slots";
}

// One line when the cache has climbed to another rung.
void Chat::tell_climb()
{
    const PlanRung& rung = m_session.rung();
    if (m_session.n_climbs() > m_n_climbs)
        tell("the cache is now in k=" + std::string(codec_info(rung.recipe.k).name) + ",v=" +
             codec_info(rung.recipe.v).name + ", which holds " + grouped(rung.slots) + " tokens");
    m_n_climbs = m_session.n_climbs();
}

Status Chat::set_memory(const std::string& size)
{
    uint64_t bytes = 0;
    KS_TRY((Value{"/memory", size.c_str()}.bytes(&bytes)));
    KS_TRY(m_session.set_memory(bytes));
    const Plan& plan = m_session.plan();
    tell(human_bytes(plan.total_bytes) + " of a budget of " + human_bytes(bytes) + ", " +
         grouped(plan.slots) + " slots");
    tell_climb();
    return {};
}

void Chat::show_memory() const
{
    const Plan& plan = m_session.plan();
    const uint64_t n_tokens = m_session.n_tokens(), slots = plan.slots;
    print_memory(stderr, plan, double(std::min(n_tokens, slots)) / double(slots));
    fprintf(stderr, "\n  %-14s %s, %s bytes each, %s\n", "cache", held_text().c_str(),
            grouped(plan.bytes_per_token).c_str(), m_session.rung().recipe_text.c_str());
    print_cache(stderr, m_session, m_note.turns);
    fputc('\n', stderr);
}

// Reads the prompt. If it does not fit or Ctrl-C stops it, the messages are unchanged.
Status Chat::read_turn(const PromptStep& step)
{
    Stopwatch clock;
    m_progress.begin_prompt(step.ids.size());
    Status status = m_conversation.read(step);
    m_progress.end();
    m_n_read = step.ids.size();
    m_read_seconds = clock.seconds();
    if (status.ok())
        for (uint32_t id : step.ids) m_sampler.accept(id);
    if (status.code() == Code::interrupted) interrupt::clear();
    tell_climb();
    return status;
}

// With --tools, the results of an answer's calls are the next messages.
bool Chat::waits_for(ToolCall* call) const
{
    return m_knows_messages && !m_options.chat_template.tools.is(jinja::kNone) &&
           find_waiting_call(m_messages, call);
}

Status Chat::say(const std::string& message)
{
    const std::string text = m_attached + message;
    m_attached.clear();
    ToolCall call;
    const bool is_result = waits_for(&call);
    m_messages.push_back(is_result ? result_message(call, text) : chat_message("user", text));
    if (is_result && waits_for(&call)) return {}; // for the next one
    ChatRequest request;
    request.messages = jinja::Value(m_messages);
    request.tools = m_options.chat_template.tools;
    request.options = m_values;
    request.now = local_time();
    Result<PromptStep> step = m_knows_messages
                                  ? m_conversation.continue_prompt(request)
                                  : m_conversation.next_turn(nullptr, text, request.now);
    m_messages = request.messages.items();
    Status status = step.ok() ? read_turn(step.value()) : step.status();
    if (!status.ok()) {
        if (status.code() == Code::no_fit)
            status = Status(status.code(), status.message() +
                                               "; /clear starts a new conversation, a larger -c or "
                                               "--memory holds more");
        m_messages.pop_back();
        bool dropped = status.code() == Code::interrupted && m_reader.interactive();
        if (dropped) tell("\nmessage dropped");
        return dropped ? Status() : status;
    }
    m_unread.clear();
    note_turn(step.value(), is_result ? call.name + ": " + message : message);
    return answer();
}

// A turn begins where reading began, the first one with the first token of the user.
void Chat::note_turn(const PromptStep& step, const std::string& message)
{
    const uint32_t begin = step.n_kept ? step.n_kept : n_prefix_tokens(step.authors);
    while (!m_note.turns.empty() && m_note.turns.back().position >= begin) m_note.turns.pop_back();
    m_note.turns.push_back({begin, message.substr(0, 200)});
    for (char& c : m_note.turns.back().words) c = c == '\n' ? ' ' : c;
    m_note.answer_begin = m_session.n_tokens();
}

// Generates another answer to the last message. Feeding the last token before the answer again
// restores its logits.
Status Chat::regenerate()
{
    if (m_note.answer_begin == 0) {
        tell("there is no answer yet to regenerate");
        return {};
    }
    uint32_t last = m_session.token(m_note.answer_begin - 1);
    KS_TRY(m_session.rewind(m_note.answer_begin - 1));
    Stopwatch clock;
    const uint8_t of_template = 1; // the template ends a message
    KS_TRY(m_session.feed(&last, 1, &of_template));
    m_progress.end();
    m_n_read = 1;
    m_read_seconds = clock.seconds();
    remove_answer(m_messages);
    return answer();
}

Status Chat::answer()
{
    const uint32_t context = m_session.plan().context;
    uint64_t limit = std::min<uint64_t>(m_session.n_free_tokens(), context);
    if (m_options.has_n_predict && m_options.n_predict >= 0)
        limit = std::min(limit, uint64_t(m_options.n_predict));
    Generated made;
    made.ids.reserve(limit);
    m_last = '\n';
    AnswerSink sink(m_conversation, m_session.model().tokenizer(), m_options.chat_template.tools,
                    m_stops,
                    m_options.sampling.seed + m_messages.size(), // other ids in each answer
                    [&](const AnswerEvent& event) { show(event); });
    if (m_constraint) m_constraint->begin(m_options.grammar);
    KS_TRY(generate(m_session, m_sampler, m_constraint.get(), sink, limit, made));
    end_reasoning();
    write_text(m_reader.interactive() && m_last == '\n' ? "" : "\n");

    m_messages.push_back(sink.message());
    size_t n_fed = m_session.n_tokens() - m_note.answer_begin;
    m_unread.assign(made.ids.begin() + std::ptrdiff_t(n_fed), made.ids.end());
    if (m_reader.interactive()) show_figures(made.seconds, n_fed);
    tell_climb();
    if (made.stop == Stop::interrupted && !m_reader.interactive())
        return Status(Code::interrupted, "");
    if (made.stop == Stop::length && m_session.n_free_tokens() <= 1)
        tell("the context of " + grouped(context) +
             " tokens is full, so the answer ends here; /clear starts a new conversation, a "
             "larger -c or --memory holds more");
    return {};
}

// Reasoning is dimmed on a terminal. On a pipe it goes to standard error.
void Chat::show(const AnswerEvent& event)
{
    if (event.kind == AnswerEvent::Kind::reasoning) {
        if (!m_reasons && has_colour(STDOUT_FILENO)) write_raw("\033[2m");
        m_reasons = true;
        is_terminal(STDOUT_FILENO) ? write_text(event.text)
                                   : void(fputs(event.text.c_str(), stderr));
        return;
    }
    end_reasoning();
    const bool is_call = event.kind == AnswerEvent::Kind::call; // on a line of its own
    if (m_last == kCallEnd || (is_call && m_last != '\n')) write_text("\n");
    write_text(is_call ? "[" + event.name + " " + event.text + "]" : event.text);
    m_last = is_call ? kCallEnd : uint8_t(event.text.back());
}

void Chat::end_reasoning()
{
    if (!m_reasons) return;
    m_reasons = false;
    if (has_colour(STDOUT_FILENO)) write_raw("\033[0m");
    if (!is_terminal(STDOUT_FILENO)) return void(fputc('\n', stderr));
    write_text("\n\n");
    m_last = '\n';
}

void Chat::show_figures(double seconds, size_t n_fed)
{
    if (m_options.no_stats) {
        fputc('\n', stderr);
        return;
    }
    char text[200];
    snprintf(text, sizeof text, "[read %zu at %.0f/s, wrote %zu at %.1f/s, %s]", m_n_read,
             double(m_n_read) / m_read_seconds, n_fed, double(n_fed) / std::max(seconds, 1e-9),
             held_text().c_str());
    tell(std::string(text) + "\n");
}

} // namespace

static Status chat(const ChatOptions& options)
{
    KS_TRY(options.chat_template.check_model(options.session.model_path));
    bool interactive = is_terminal(STDIN_FILENO) && is_terminal(STDERR_FILENO);
    ProgressLine progress;
    Result<std::unique_ptr<Session>> opened = open_session(options.session, progress, interactive);
    if (!opened.ok()) return opened.status();
    Session& session = *opened.value();
    KS_TRY(check_sampling(options.sampling, session.model().config().n_vocab));
    Result<Conversation> conversation = Conversation::open(session, options.chat_template.chosen);
    if (!conversation.ok()) return conversation.status();
    if (interactive) {
        const Plan& plan = session.plan();
        const std::string length = plan.recipe.exact()
                                       ? "context of " + grouped(plan.context) + " tokens"
                                       : "texts of any length in " + grouped(plan.slots) + " slots";
        fprintf(stderr, "%s on %s\n%s of a budget of %s, %s; /help lists the commands\n\n",
                file_name(options.session.model_path).c_str(),
                printable(session.model().device_name(), 200).c_str(),
                human_bytes(plan.total_bytes).c_str(), human_bytes(plan.budget_bytes).c_str(),
                length.c_str());
    }
    return Chat(session, options, std::move(conversation.value()), progress).loop();
}

extern const Command command_chat = {
    "chat", "talk with a model", "-m MODEL [options]",
    "Type a message and Enter; /help lists the commands. Ctrl-C stops an answer; at the prompt it "
    "quits.\nOn a pipe every line is a message. With --tools, the lines after an answer that calls "
    "tools are the results, one for each call.",
    start_command<ChatOptions, chat>};

} // namespace ks
