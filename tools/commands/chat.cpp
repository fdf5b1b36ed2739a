// chat: a conversation in a terminal, or a message per line on a pipe.
#include "tools/generate.h"
#include "tools/option_groups.h"
#include "tools/terminal/chat_note.h"
#include "tools/terminal/memory_view.h"
#include "tools/terminal/message_reader.h"

#include "runtime/model/gguf.h"
#include "runtime/text/chat_template.h"

#include <algorithm>
#include <unistd.h>

namespace ks
{
namespace
{

struct ChatOptions : SessionFlags, SamplingFlags {
    std::string system;
    bool has_system = false;
    std::string chat_template;
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
        table.add_text("--chat-template", "NAME",
                       "chat template, if that of the model is missing or unknown", &chat_template);
        table.add_flag("--no-stats", "print no statistics after an answer", &no_stats);
        add_sampling(table);
    }
    Status finish()
    {
        KS_TRY(finish_session("chat"));
        return finish_sampling();
    }
};

const char* const kHelp =
    "  /memory     show the memory, the KV cache, and how much of each turn it still holds\n"
    "  /clear      forget the conversation\n"
    "  /read FILE  put a text file in front of the next message\n"
    "  /regen      generate another answer to the last message\n"
    "  /save FILE  save the conversation to a file\n"
    "  /load FILE  continue a saved conversation\n"
    "  /help       print this list\n"
    "  /exit       quit, like Ctrl-D\n"
    "Ctrl-C stops an answer; at the prompt it quits. To write several lines, put the message "
    "between\n"
    "\"\"\" and \"\"\", end a line with a backslash, or press Alt-Enter.\n";

// The part of the conversation that the model has not read yet.
struct Talk {
    ChatWriter writer;
    std::vector<uint32_t> unread; // the last tokens of an answer, generated but not fed
    ChatPieces pieces;            // the text after `unread`, not encoded yet
};

class Chat
{
public:
    Chat(Session& session, const ChatOptions& options, const ChatTemplate& chat_template,
         ProgressLine& progress);
    Status loop();

private:
    Status handle(const std::string& message);
    Status command(const std::string& line);
    Status say(const std::string& message);
    Status regenerate();
    Status read_turn(const std::vector<uint32_t>& ids, const std::string& authors);
    Status answer();
    Status attach(const std::string& path);
    void clear();
    Status save(const std::string& path);
    Status load(const std::string& path);
    void show_memory() const;
    std::string held_text() const;
    void show_figures(double seconds, size_t n_fed);
    void tell(const std::string& text) const; // prints a line on standard error, dimmed

    Session& m_session;
    const ChatOptions& m_options;
    ProgressLine& m_progress;
    MessageReader m_reader;
    Sampler m_sampler;
    std::vector<std::string> m_stops;
    Talk m_begin, m_talk;
    ChatNote m_note;
    std::string m_attached;
    size_t m_n_read = 0; // tokens of the last message
    double m_read_seconds = 0;
    bool m_done = false;
};

ChatWriter make_writer(const ChatTemplate& chat_template, const Session& session)
{
    return ChatWriter(chat_template, session.tokenizer().adds_bos(),
                      default_system_text(chat_template, session.chat_template()));
}

Chat::Chat(Session& session, const ChatOptions& options, const ChatTemplate& chat_template,
           ProgressLine& progress)
    : m_session(session), m_options(options), m_progress(progress),
      m_sampler(options.sampling, session.config().n_vocab, session.sampler_memory()),
      m_stops(options.stops), m_begin{make_writer(chat_template, session), {}, {}}, m_talk(m_begin)
{
    if (chat_template.stop && session.tokenizer().find(chat_template.stop) < 0)
        m_stops.push_back(chat_template.stop);
    if (options.has_system) m_begin.writer.turn(ChatRole::system, options.system, m_begin.pieces);
    m_talk = m_begin;
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
        MessageReader::Result result = m_reader.read(message);
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
    m_talk = m_begin; // the system prompt is read again with the next message
    m_note = {};
    m_attached.clear();
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
    if (!m_talk.unread.empty()) KS_TRY(m_session.feed(m_talk.unread.data(), m_talk.unread.size()));
    m_talk.unread.clear();
    KS_TRY(m_session.save({m_sampler.state(), m_note.text()}, path));
    if (m_reader.interactive())
        tell(printable(path, 200) + ": " + grouped(m_session.n_tokens()) + " tokens saved");
    return {};
}

// Also continues a session that `run` saved: a text without turns.
Status Chat::load(const std::string& path)
{
    SavedState saved;
    KS_TRY(with_flags(m_session.load(path, &saved), Code::unsupported, "--kv, -c"));
    SamplerOptions sampling = m_options.sampling;
    if (!m_options.has_seed) sampling.seed = saved.sampler.seed;
    m_sampler = Sampler(sampling, m_session.config().n_vocab, m_session.sampler_memory());
    m_sampler.set_state(saved.sampler);
    m_note = read_chat_note(saved.note, m_session.n_tokens(), m_session.plan().context);
    m_talk = m_begin;
    // The writer must not begin the text again: it gets a turn that is thrown away.
    m_talk.writer.turn(ChatRole::user, "", m_talk.pieces);
    m_talk.pieces.clear();
    if (is_chat_note(saved.note)) m_talk.writer.close_answer(m_talk.pieces);
    m_attached.clear();
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

void Chat::show_memory() const
{
    const Plan& plan = m_session.plan();
    const uint64_t n_tokens = m_session.n_tokens(), slots = plan.slots;
    print_memory(stderr, plan, double(std::min(n_tokens, slots)) / double(slots));
    fprintf(stderr, "\n  %-14s %s, %s bytes each, %s\n", "cache", held_text().c_str(),
            grouped(plan.bytes_per_token).c_str(), plan.recipe_text.c_str());
    print_cache(stderr, m_session, m_note.turns);
    fputc('\n', stderr);
}

// Feeds the tokens of a turn. If they do not fit or Ctrl-C stops it, the cache is unchanged.
Status Chat::read_turn(const std::vector<uint32_t>& ids, const std::string& authors)
{
    const uint32_t held = m_session.n_tokens(), context = m_session.plan().context;
    if (ids.size() >= m_session.n_free_tokens())
        return fail(Code::no_fit,
                    "the context is full: this message needs %zu tokens, %u of %u are left; "
                    "/clear starts a new conversation, a larger -c or --memory holds more",
                    ids.size() + 1, uint32_t(m_session.n_free_tokens()), context);
    const std::vector<uint8_t> mask = template_mask(authors);
    Stopwatch clock;
    m_progress.begin_prompt(ids.size());
    Status status = m_session.feed(ids.data(), ids.size(), mask.data());
    m_progress.end();
    m_n_read = ids.size();
    m_read_seconds = clock.seconds();
    if (status.ok()) {
        for (uint32_t id : ids) m_sampler.accept(id);
    } else if (status.code() == Code::interrupted) {
        interrupt::clear();
        KS_TRY(m_session.rewind(held));
        m_progress.end();
    }
    return status;
}

Status Chat::say(const std::string& message)
{
    Talk before = m_talk;
    const uint32_t held = m_session.n_tokens();
    m_talk.writer.turn(ChatRole::user, m_attached + message, m_talk.pieces);
    m_talk.writer.open_answer(m_talk.pieces);
    std::vector<uint32_t> ids = m_talk.unread;
    std::string authors(ids.size(), kAuthors[int(ChatRole::assistant)]);
    encode_pieces(m_session.tokenizer(), m_talk.pieces, ids, &authors);
    m_attached.clear();
    // The tokens before the first message are pinned.
    const uint32_t n_prefix = held ? 0 : n_prefix_tokens(authors);
    if (held == 0) KS_TRY(m_session.pin(n_prefix));
    Status status = read_turn(ids, authors);
    if (!status.ok()) {
        m_talk = before;
        bool dropped = status.code() == Code::interrupted && m_reader.interactive();
        if (dropped) tell("\nmessage dropped");
        return dropped ? Status() : status;
    }
    m_note.turns.push_back(
        {held + (held ? uint32_t(before.unread.size()) : n_prefix), message.substr(0, 200)});
    for (char& c : m_note.turns.back().words) c = c == '\n' ? ' ' : c;
    m_note.answer_begin = m_session.n_tokens();
    return answer();
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
    TokenText text(m_session.tokenizer(), m_stops);
    char last = 0;
    Emit emit = [&](std::string_view piece) {
        if (!piece.empty()) last = piece.back();
        write_text(piece);
    };
    KS_TRY(generate(m_session, m_sampler, text, limit, emit, made));
    write_text(m_reader.interactive() && last == '\n' ? "" : "\n");

    size_t n_fed = m_session.n_tokens() - m_note.answer_begin;
    m_talk.pieces.clear();
    m_talk.writer.close_answer(m_talk.pieces);
    m_talk.unread.assign(made.ids.begin() + std::ptrdiff_t(n_fed), made.ids.end());
    if (m_reader.interactive()) show_figures(made.seconds, n_fed);
    if (made.stop == Stop::interrupted && !m_reader.interactive())
        return Status(Code::interrupted, "");
    if (made.stop == Stop::length && m_session.n_free_tokens() <= 1)
        tell("the context of " + grouped(context) +
             " tokens is full, so the answer ends here; /clear starts a new conversation, a "
             "larger -c or --memory holds more");
    return {};
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

// Reads only the header of the file, so that a base model is refused before its weights are read.
Result<const ChatTemplate*> choose_template(const ChatOptions& options)
{
    if (!options.chat_template.empty()) {
        const ChatTemplate* chat_template = find_chat_template(options.chat_template);
        if (!chat_template)
            return fail(Code::usage, "--chat-template: expected one of %s, found '%s'",
                        chat_template_names().c_str(), printable(options.chat_template).c_str());
        return chat_template;
    }
    Result<Gguf> gguf = Gguf::open(options.session.model_path);
    if (!gguf.ok()) return gguf.status();
    Result<VocabSource> vocab = gguf.value().vocab();
    if (!vocab.ok()) return vocab.status();
    std::string_view text = vocab.value().chat_template;
    const ChatTemplate* chat_template = recognise_chat_template(text);
    if (chat_template) return chat_template;
    return fail(
        Code::unsupported,
        "%s: %s; use `knapsack run` to continue a text, or --chat-template NAME with one of %s",
        gguf.value().label().c_str(),
        text.empty() ? "no chat template (a base model)" : "unknown chat template",
        chat_template_names().c_str());
}

} // namespace

static Status chat(const ChatOptions& options)
{
    Result<const ChatTemplate*> chat_template = choose_template(options);
    if (!chat_template.ok()) return chat_template.status();
    bool interactive = is_terminal(STDIN_FILENO) && is_terminal(STDERR_FILENO);
    ProgressLine progress;
    Result<std::unique_ptr<Session>> opened = open_session(options.session, progress, interactive);
    if (!opened.ok()) return opened.status();
    Session& session = *opened.value();
    KS_TRY(check_sampling(options.sampling, session.config().n_vocab));
    if (interactive) {
        const Plan& plan = session.plan();
        const std::string length = plan.recipe.exact()
                                       ? "context of " + grouped(plan.context) + " tokens"
                                       : "texts of any length in " + grouped(plan.slots) + " slots";
        fprintf(
            stderr,
            "%s on %s\n%s of a budget of %s, %s, chat template %s; /help lists the commands\n\n",
            file_name(options.session.model_path).c_str(),
            printable(session.device_name(), 200).c_str(), human_bytes(plan.total_bytes).c_str(),
            human_bytes(plan.budget_bytes).c_str(), length.c_str(), chat_template.value()->name);
    }
    return Chat(session, options, *chat_template.value(), progress).loop();
}

extern const Command command_chat = {
    "chat", "talk with a model", "-m MODEL [options]",
    "Type a message and Enter; /help lists the commands. Ctrl-C stops an answer; at the prompt it "
    "quits.\nOn a pipe every line is a message.",
    start_command<ChatOptions, chat>};

} // namespace ks
