// chat: a conversation in a terminal, or one turn per line of a pipe.
#include "tools/generate.h"
#include "tools/option_groups.h"
#include "tools/terminal/cache_view.h"
#include "tools/terminal/line_editor.h"
#include "tools/terminal/memory_view.h"

#include "runtime/model/gguf.h"
#include "runtime/text/chat_template.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
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
        table.add({"-sys --system-prompt", "TEXT", "the system text; default: the template's own",
                   read_system});
        table.add_text("--chat-template", "NAME",
                       "the chat frame, where the model's own template is none of the known ones",
                       &chat_template);
        table.add_flag("--no-stats", "no line of figures after an answer", &no_stats);
        add_sampling(table);
    }
    Status finish()
    {
        KS_TRY(finish_session("chat"));
        return finish_sampling();
    }
};

const char* const kHelp =
    "  /memory     the memory, what is in the cache and what it no longer holds of which turn\n"
    "  /clear      forget the conversation\n"
    "  /read FILE  put a text file in front of the next message\n"
    "  /regen      another answer to the last message\n"
    "  /save FILE  keep the conversation in a file\n"
    "  /load FILE  go on with a conversation that was kept\n"
    "  /help       this list\n"
    "  /exit       quit, as Ctrl-D does\n"
    "Ctrl-C stops an answer; at the prompt it quits. A message of several lines stands between "
    "\"\"\" and \"\"\",\n"
    "or its lines end with a backslash, or Alt-Enter breaks them.\n";

// In a saved session: this, the number, then a line for each turn with the token where it begins
// and its first words.
const std::string kNote = "chat, last answer at token ";

// Where the conversation stands beside what the cache holds.
struct Talk {
    ChatWriter writer;
    ChatPieces pieces; // written, but not read by the model yet
    std::vector<uint32_t>
        unread; // the same as tokens, before the pieces: the end of an answer that was cut
};

class Chat
{
public:
    Chat(Session& session, const ChatOptions& options, const ChatTemplate& template_row,
         ProgressLine& progress);
    Status loop();

private:
    enum class Next { message, end, quit };
    Next read_message(std::string& message);
    Next read_line(const char* prompt, std::string& line);
    Status handle(const std::string& message);
    Status command(const std::string& line);
    Status say(const std::string& message);
    Status regenerate();
    Status read_rope(const std::vector<uint32_t>& ids, const std::string& authors);
    Status answer();
    Status attach(const std::string& path);
    void clear();
    Status save(const std::string& path);
    Status load(const std::string& path);
    void show_memory() const;
    std::string note() const;
    void read_note(const std::string& note);
    std::string held_text() const;
    void show_figures(double seconds, size_t n_fed);
    void tell(const std::string& text) const; // a line of the program's own, on standard error

    Session& m_session;
    const ChatOptions& m_options;
    ProgressLine& m_progress;
    bool m_interactive;
    LineEditor m_editor;
    Sampler m_sampler;
    std::vector<std::string> m_stops;
    Talk m_begin, m_talk;
    uint32_t m_answer_begin = 0; // tokens before the last answer; 0: none yet
    std::vector<TurnBegin> m_rope_table;
    std::string m_attached;
    size_t m_n_read = 0; // of the last turn, with the time it took
    double m_read_seconds = 0;
    bool m_done = false;
};

Chat::Chat(Session& session, const ChatOptions& options, const ChatTemplate& template_row,
           ProgressLine& progress)
    : m_session(session), m_options(options), m_progress(progress),
      m_interactive(is_terminal(STDIN_FILENO) && is_terminal(STDERR_FILENO)),
      m_editor(STDIN_FILENO, STDERR_FILENO),
      m_sampler(options.sampling, session.config().n_vocab, session.sampler_memory()),
      m_stops(options.stops), m_begin{ChatWriter(template_row, session.tokenizer().adds_bos(),
                                                 default_system_text(template_row,
                                                                     session.chat_template())),
                                      {},
                                      {}},
      m_talk(m_begin)
{
    if (template_row.stop && session.tokenizer().find(template_row.stop) < 0)
        m_stops.push_back(template_row.stop);
    if (options.has_system) m_begin.writer.turn(ChatRole::system, options.system, m_begin.pieces);
    m_talk = m_begin;
}

void Chat::tell(const std::string& text) const
{
    bool colour = has_colour(STDERR_FILENO);
    fprintf(stderr, "%s%s%s\n", colour ? "\033[2m" : "", text.c_str(), colour ? "\033[0m" : "");
}

Chat::Next Chat::read_line(const char* prompt, std::string& line)
{
    if (!m_interactive) {
        if (std::getline(std::cin, line)) return Next::message;
        return interrupt::pending() ? Next::quit : Next::end;
    }
    fflush(stdout);
    switch (m_editor.read(prompt, line)) {
    case LineEditor::Result::line:
        return Next::message;
    case LineEditor::Result::end:
        return Next::end;
    case LineEditor::Result::interrupted:
        break;
    }
    return Next::quit;
}

// One message: a line, or several.
Chat::Next Chat::read_message(std::string& message)
{
    static const std::string kQuotes = "\"\"\"";
    Next next = read_line("> ", message);
    if (next != Next::message)
        return next == Next::quit && !message.empty() && m_interactive ? read_message(message)
                                                                       : next;
    bool quoted = message.compare(0, 3, kQuotes) == 0;
    if (quoted) message.erase(0, 3);
    auto closes = [&] {
        return message.size() >= 3 && message.compare(message.size() - 3, 3, kQuotes) == 0;
    };
    while (quoted ? !closes() : !message.empty() && message.back() == '\\') {
        if (!quoted) message.pop_back();
        std::string line;
        next = read_line(". ", line);
        if (next == Next::quit)
            return m_interactive ? read_message(message) : next; // Ctrl-C drops the message
        message += "\n" + line;
        if (next == Next::end) break;
    }
    if (quoted && closes()) message.resize(message.size() - 3);
    m_editor.add_history(message);
    return Next::message;
}

Status Chat::loop()
{
    while (!m_done) {
        interrupt::clear();
        std::string message;
        Next next = read_message(message);
        if (next == Next::end) break;
        if (next == Next::quit) return Status(Code::interrupted, "");
        Status status = handle(message);
        if (status.ok()) continue;
        if (!m_interactive || (status.code() != Code::no_fit && status.code() != Code::io))
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
        if (status.ok() || !m_interactive) return status;
        tell(status.message());
        return {};
    }
    if (!rest.empty() || wants_file)
        tell(name + (wants_file ? " needs a file's name" : " takes nothing behind it"));
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
    m_answer_begin = 0;
    m_rope_table.clear();
    m_attached.clear();
    if (m_interactive) tell("the conversation is forgotten");
}

Status Chat::attach(const std::string& path)
{
    std::string text;
    KS_TRY(read_file(path, &text));
    m_attached += text + (text.empty() || text.back() == '\n' ? "\n" : "\n\n");
    if (m_interactive)
        tell(printable(path) + ": " + grouped(text.size()) + " bytes go with the next message");
    return {};
}

std::string Chat::note() const
{
    std::string note = kNote + std::to_string(m_answer_begin);
    for (const TurnBegin& turn : m_rope_table)
        note += "\n" + std::to_string(turn.position) + " " + turn.words;
    return note.substr(0, SavedState::kMaxNoteBytes);
}

// A file may say anything: positions ascend and are of tokens that were read, words are shown with
// care.
void Chat::read_note(const std::string& note)
{
    const uint32_t n_tokens = m_session.n_tokens();
    m_rope_table.clear();
    m_answer_begin = 0;
    if (note.compare(0, kNote.size(), kNote) == 0) {
        const uint64_t begin = strtoull(note.c_str() + kNote.size(), nullptr, 10);
        m_answer_begin =
            begin <= std::min(n_tokens, m_session.plan().context) ? uint32_t(begin) : 0;
        for (size_t at = note.find('\n'); at != note.npos; at = note.find('\n', at + 1)) {
            char* words = nullptr;
            const uint64_t position = strtoull(note.c_str() + at + 1, &words, 10);
            if (*words != ' ' || position >= n_tokens ||
                (!m_rope_table.empty() && position <= m_rope_table.back().position))
                break;
            m_rope_table.push_back(
                {uint32_t(position), std::string(words + 1, strcspn(words + 1, "\n"))});
        }
    }
    if (m_rope_table.empty() && n_tokens) m_rope_table.push_back({0, "(a text without turns)"});
}

// Everything that was said is in the file, so the end of a cut answer is read first.
Status Chat::save(const std::string& path)
{
    if (m_session.n_tokens() == 0) {
        tell("there is nothing to save yet");
        return {};
    }
    if (!m_talk.unread.empty()) KS_TRY(m_session.feed(m_talk.unread.data(), m_talk.unread.size()));
    m_talk.unread.clear();
    KS_TRY(m_session.save({m_sampler.state(), note()}, path));
    if (m_interactive)
        tell(printable(path, 200) + ": " + grouped(m_session.n_tokens()) + " tokens are kept");
    return {};
}

// A session that `run` saved is a text without turns; the next message follows it.
Status Chat::load(const std::string& path)
{
    SavedState saved;
    KS_TRY(with_flags(m_session.load(path, &saved), Code::unsupported, "--kv, -c"));
    SamplerOptions sampling = m_options.sampling;
    if (!m_options.has_seed) sampling.seed = saved.sampler.seed;
    m_sampler = Sampler(sampling, m_session.config().n_vocab, m_session.sampler_memory());
    m_sampler.set_state(saved.sampler);
    const bool is_chat = saved.note.compare(0, kNote.size(), kNote) == 0;
    read_note(saved.note);
    m_talk = m_begin;
    m_talk.writer.turn(ChatRole::user, "", m_talk.pieces); // so that it does not begin again
    m_talk.pieces.clear();
    if (is_chat) m_talk.writer.close_answer(m_talk.pieces);
    m_attached.clear();
    if (m_interactive)
        tell(printable(path, 200) + ": the conversation goes on, " + grouped(m_session.n_tokens()) +
             " tokens are held");
    return {};
}

// The exact cache has a place for each token of its context, the others for as many as there are
// slots.
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
    print_cache(stderr, m_session, m_rope_table);
    fputc('\n', stderr);
}

// Feeds the turn's tokens. If they do not fit or Ctrl-C stops it, the cache is as before.
Status Chat::read_rope(const std::vector<uint32_t>& ids, const std::string& authors)
{
    const uint32_t held = m_session.n_tokens(), context = m_session.plan().context;
    if (ids.size() >= m_session.room())
        return fail(Code::no_fit,
                    "the context is full: this turn needs %zu tokens, %u of %u are left; /clear "
                    "begins anew, a larger -c or --memory holds more",
                    ids.size() + 1, uint32_t(m_session.room()), context);
    const std::vector<uint8_t> frames = template_mask(authors);
    Stopwatch clock;
    m_progress.begin_prompt(ids.size());
    Status status = m_session.feed(ids.data(), ids.size(), frames.data());
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
    // What comes before the first message stays for good.
    const uint32_t head = held ? 0 : n_prefix_tokens(authors);
    if (held == 0) KS_TRY(m_session.pin(head));
    Status status = read_rope(ids, authors);
    if (!status.ok()) {
        m_talk = before;
        bool dropped = status.code() == Code::interrupted && m_interactive;
        if (dropped) tell("\nthe message was dropped");
        return dropped ? Status() : status;
    }
    m_rope_table.push_back(
        {held + (held ? uint32_t(before.unread.size()) : head), message.substr(0, 200)});
    for (char& c : m_rope_table.back().words) c = c == '\n' ? ' ' : c;
    m_answer_begin = m_session.n_tokens();
    return answer();
}

// Another answer to the last message: the question's last token is read again, which brings its
// logits back.
Status Chat::regenerate()
{
    if (m_answer_begin == 0) {
        tell("there is no answer yet to write again");
        return {};
    }
    uint32_t last = m_session.token(m_answer_begin - 1);
    KS_TRY(m_session.rewind(m_answer_begin - 1));
    Stopwatch clock;
    const uint8_t is_frame = 1; // a question ends with the frame's words
    KS_TRY(m_session.feed(&last, 1, &is_frame));
    m_progress.end();
    m_n_read = 1;
    m_read_seconds = clock.seconds();
    return answer();
}

Status Chat::answer()
{
    const uint32_t context = m_session.plan().context;
    uint64_t limit = std::min<uint64_t>(m_session.room(), context);
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
    write_text(m_interactive && last == '\n' ? "" : "\n");

    size_t n_fed = m_session.n_tokens() - m_answer_begin;
    m_talk.pieces.clear();
    m_talk.writer.close_answer(m_talk.pieces);
    m_talk.unread.assign(made.ids.begin() + std::ptrdiff_t(n_fed), made.ids.end());
    if (m_interactive) show_figures(made.seconds, n_fed);
    if (made.stop == Stop::interrupted && !m_interactive) return Status(Code::interrupted, "");
    if (made.stop == Stop::length && m_session.room() <= 1)
        tell("the context of " + grouped(context) +
             " tokens is full, so the answer ends here; /clear begins anew, a larger -c or "
             "--memory holds more");
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

// From the file's header alone, so that a base model is refused before its weights are read.
Result<const ChatTemplate*> choose_frame(const ChatOptions& options)
{
    if (!options.chat_template.empty()) {
        const ChatTemplate* template_row = find_chat_template(options.chat_template);
        if (!template_row)
            return fail(Code::usage, "--chat-template: expected one of %s, found '%s'",
                        chat_template_names().c_str(), printable(options.chat_template).c_str());
        return template_row;
    }
    Result<Gguf> gguf = Gguf::open(options.session.model_path);
    if (!gguf.ok()) return gguf.status();
    Result<VocabSource> vocab = gguf.value().vocab();
    if (!vocab.ok()) return vocab.status();
    std::string_view text = vocab.value().chat_template;
    const ChatTemplate* template_row = recognise_chat_template(text);
    if (template_row) return template_row;
    return fail(
        Code::unsupported,
        "%s: %s; `knapsack run` continues a text as it is, --chat-template NAME takes one of %s",
        gguf.value().label().c_str(),
        text.empty() ? "has no chat template (a base model)"
                     : "its chat template is none of the known ones",
        chat_template_names().c_str());
}

} // namespace

static Status chat(const ChatOptions& options)
{
    Result<const ChatTemplate*> template_row = choose_frame(options);
    if (!template_row.ok()) return template_row.status();
    bool interactive = is_terminal(STDIN_FILENO) && is_terminal(STDERR_FILENO);
    ProgressLine progress;
    Result<std::unique_ptr<Session>> opened = open_session(options.session, progress, interactive);
    if (!opened.ok()) return opened.status();
    Session& session = *opened.value();
    KS_TRY(check_sampling(options.sampling, session.config().n_vocab));
    if (interactive) {
        const Plan& plan = session.plan();
        const std::string length = plan.recipe.exact()
                                       ? "context " + grouped(plan.context) + " tokens"
                                       : "any length of text in " + grouped(plan.slots) + " slots";
        fprintf(stderr,
                "%s on %s\n%s of a budget of %s, %s, chat frame %s; /help lists the commands\n\n",
                file_name(options.session.model_path).c_str(),
                printable(session.device_name(), 200).c_str(),
                human_bytes(plan.total_bytes).c_str(), human_bytes(plan.budget_bytes).c_str(),
                length.c_str(), template_row.value()->name);
    }
    return Chat(session, options, *template_row.value(), progress).loop();
}

extern const Command command_chat = {
    "chat", "talk with a model", "-m MODEL [options]",
    "Type a message; /help lists what else there is. Ctrl-C stops an answer, at the prompt it "
    "quits. Lines on a pipe are turns, too.",
    start_command<ChatOptions, chat>};

} // namespace ks
