#include "tools/terminal/line_editor.h"

#include "tools/program.h"

#include <algorithm>
#include <csignal>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <utf8proc.h>

namespace ks
{
namespace
{

struct termios g_cooked; // the mode that a signal handler restores
int g_raw_fd = -1;

void on_death(int signal_number)
{
    if (g_raw_fd >= 0) tcsetattr(g_raw_fd, TCSANOW, &g_cooked);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

// While this object lives, the terminal delivers each key at once and marks pasted text.
class RawMode
{
public:
    RawMode(int in, int out) : m_in(in), m_out(out) { begin(); }
    ~RawMode() { end(); }
    void begin()
    {
        tcgetattr(m_in, &g_cooked);
        struct termios raw = g_cooked;
        raw.c_iflag &= ~tcflag_t(ICRNL | IXON | BRKINT | INPCK | ISTRIP);
        raw.c_lflag &= ~tcflag_t(ECHO | ICANON | IEXTEN | ISIG);
        raw.c_cc[VMIN] = 1;
        raw.c_cc[VTIME] = 0;
        g_raw_fd = m_in;
        signal(SIGTERM, on_death);
        signal(SIGHUP, on_death);
        tcsetattr(m_in, TCSADRAIN, &raw);
        write_all("\033[?2004h");
    }
    void end()
    {
        write_all("\033[?2004l");
        tcsetattr(m_in, TCSADRAIN, &g_cooked);
        g_raw_fd = -1;
    }

private:
    void write_all(std::string_view text) const
    {
        if (::write(m_out, text.data(), text.size()) < 0)
            return; // read() reports a closed terminal
    }
    int m_in, m_out;
};

bool continues(char c)
{
    return (uint8_t(c) & 0xc0) == 0x80;
}

// Describes the character at `at`: returns its bytes, sets its columns and its visible form.
size_t character(std::string_view text, size_t at, int* width, std::string* shown)
{
    utf8proc_int32_t c;
    auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    utf8proc_ssize_t length = utf8proc_iterate(bytes + at, utf8proc_ssize_t(text.size() - at), &c);
    if (length <= 0 || c == '\t') {
        *width = length <= 0 ? 1 : 4;
        *shown = std::string(size_t(*width), length <= 0 ? '?' : ' ');
        return 1;
    }
    *width = utf8proc_charwidth(c);
    *shown = std::string(text.substr(at, size_t(length)));
    return size_t(length);
}

struct Layout {
    std::vector<std::string> rows{""};
    size_t cursor_row = 0, cursor_column = 0;
};

Layout lay_out(const std::string& prompt, const std::string& text, size_t cursor, int columns)
{
    Layout layout;
    layout.rows[0] = prompt;
    int column = int(prompt.size()); // prompts are ASCII
    for (size_t at = 0;;) {
        int width = 0;
        std::string shown;
        size_t length =
            at < text.size() && text[at] != '\n' ? character(text, at, &width, &shown) : 1;
        if (column + std::max(width, at == cursor ? 1 : 0) > columns) {
            layout.rows.push_back("");
            column = 0;
        }
        if (at == cursor) {
            layout.cursor_row = layout.rows.size() - 1;
            layout.cursor_column = size_t(column);
        }
        if (at == text.size()) return layout;
        layout.rows.back() += shown;
        column += width;
        if (text[at] == '\n') {
            layout.rows.push_back("");
            column = 0;
        }
        at += length;
    }
}

size_t terminal_rows(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

} // namespace

bool LineEditor::input_waits(int milliseconds) const
{
    struct pollfd waiting = {m_in, POLLIN, 0};
    return poll(&waiting, 1, milliseconds) > 0;
}

bool LineEditor::read_byte(char* byte)
{
    ssize_t n;
    do n = ::read(m_in, byte, 1);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

void LineEditor::put(const std::string& text) const
{
    for (size_t at = 0; at < text.size();) {
        ssize_t n = ::write(m_out, text.data() + at, text.size() - at);
        if (n < 0 && errno != EINTR) return;
        if (n > 0) at += size_t(n);
    }
}

LineEditor::Key LineEditor::read_escape()
{
    char c;
    if (!input_waits(50) || !read_byte(&c)) return Key::none;
    if (c == 'b') return Key::word_left;
    if (c == 'f') return Key::word_right;
    if (c == 127) return Key::erase_word;
    if (c == '\r') return Key::newline;
    if (c != '[' && c != 'O') return Key::none;
    std::string sequence;
    do {
        if (!input_waits(50) || !read_byte(&c)) return Key::none;
        sequence += c;
    } while (c < 0x40 || c > 0x7e);
    static const struct {
        const char* sequence;
        Key key;
    } kKeys[] = {{"A", Key::up},           {"B", Key::down},          {"C", Key::right},
                 {"D", Key::left},         {"H", Key::home},          {"F", Key::to_end},
                 {"1~", Key::home},        {"7~", Key::home},         {"4~", Key::to_end},
                 {"8~", Key::to_end},      {"3~", Key::erase_next},   {"1;5C", Key::word_right},
                 {"1;5D", Key::word_left}, {"1;3C", Key::word_right}, {"1;3D", Key::word_left},
                 {"200~", Key::paste}};
    for (const auto& row : kKeys)
        if (sequence == row.sequence) return row.key;
    return Key::none;
}

LineEditor::Key LineEditor::read_key(char* byte)
{
    if (!read_byte(byte)) return Key::end;
    static const struct {
        char byte;
        Key key;
    } kKeys[] = {
        {'\r', Key::enter},    {'\n', Key::enter},    {1, Key::home},     {2, Key::left},
        {3, Key::interrupt},   {5, Key::to_end},      {6, Key::right},    {8, Key::erase},
        {11, Key::erase_rest}, {12, Key::redraw},     {14, Key::down},    {16, Key::up},
        {21, Key::erase_line}, {23, Key::erase_word}, {26, Key::suspend}, {127, Key::erase}};
    if (*byte == 4) return m_text.empty() ? Key::end : Key::erase_next;
    if (*byte == 27) return read_escape();
    for (const auto& row : kKeys)
        if (*byte == row.byte) return row.key;
    return uint8_t(*byte) < 0x20 ? Key::none : Key::text;
}

void LineEditor::insert(char byte)
{
    m_text.insert(m_cursor++, 1, byte);
}

void LineEditor::read_paste()
{
    static const std::string kEnd = "\033[201~";
    std::string pasted;
    char c;
    while (read_byte(&c)) {
        pasted += c == '\r' ? '\n' : c;
        if (pasted.size() < kEnd.size() ||
            pasted.compare(pasted.size() - kEnd.size(), kEnd.size(), kEnd) != 0)
            continue;
        pasted.resize(pasted.size() - kEnd.size());
        break;
    }
    for (char p : pasted)
        if (uint8_t(p) >= 0x20 || p == '\n' || p == '\t') insert(p);
}

size_t LineEditor::previous(size_t at) const
{
    int width = 0;
    std::string shown;
    while (at > 0 && width == 0) { // skips combining characters, which have no width
        at--;
        while (at > 0 && continues(m_text[at])) at--;
        character(m_text, at, &width, &shown);
        if (m_text[at] == '\n') break;
    }
    return at;
}

size_t LineEditor::next(size_t at) const
{
    int width = 0;
    std::string shown;
    if (at < m_text.size()) at += character(m_text, at, &width, &shown);
    while (at < m_text.size() && m_text[at] != '\n') {
        size_t length = character(m_text, at, &width, &shown);
        if (width > 0) break;
        at += length;
    }
    return at;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t';
}

size_t LineEditor::previous_word(size_t at) const
{
    while (at > 0 && is_space(m_text[at - 1])) at--;
    while (at > 0 && !is_space(m_text[at - 1])) at--;
    return at;
}

size_t LineEditor::next_word(size_t at) const
{
    while (at < m_text.size() && is_space(m_text[at])) at++;
    while (at < m_text.size() && !is_space(m_text[at])) at++;
    return at;
}

void LineEditor::move_in_history(int step)
{
    if (step < 0 ? m_history_at == 0 : m_history_at == m_history.size()) return;
    if (m_history_at == m_history.size()) m_unfinished = m_text;
    m_history_at += size_t(step);
    m_text = m_history_at == m_history.size() ? m_unfinished : m_history[m_history_at];
    m_cursor = m_text.size();
}

void LineEditor::add_history(const std::string& line)
{
    if (!line.empty() && (m_history.empty() || m_history.back() != line)) m_history.push_back(line);
}

// The cursor's position after a movement key. Other keys do not move it.
size_t LineEditor::target(Key key) const
{
    switch (key) {
    case Key::left:
    case Key::erase:
        return previous(m_cursor);
    case Key::right:
    case Key::erase_next:
        return next(m_cursor);
    case Key::word_left:
    case Key::erase_word:
        return previous_word(m_cursor);
    case Key::word_right:
        return next_word(m_cursor);
    case Key::home:
    case Key::erase_line:
        return 0;
    case Key::to_end:
    case Key::erase_rest:
        return m_text.size();
    default:
        return m_cursor;
    }
}

void LineEditor::edit(Key key, char byte)
{
    size_t to = target(key), begin = std::min(to, m_cursor), end = std::max(to, m_cursor);
    switch (key) {
    case Key::text:
        return insert(byte);
    case Key::newline:
        return insert('\n');
    case Key::paste:
        return read_paste();
    case Key::up:
        return move_in_history(-1);
    case Key::down:
        return move_in_history(1);
    case Key::redraw:
        put("\033[H\033[2J");
        m_drawn_cursor_row = 0;
        return;
    case Key::erase:
    case Key::erase_next:
    case Key::erase_word:
    case Key::erase_line:
    case Key::erase_rest:
        m_text.erase(begin, end - begin);
        m_cursor = begin;
        return;
    default:
        m_cursor = to;
    }
}

// Draws the text. If it is taller than the screen, draws the rows around the cursor.
void LineEditor::draw()
{
    Layout layout = lay_out(m_prompt, m_text, m_cursor, std::max(8, terminal_columns(m_out)));
    size_t height = terminal_rows(m_out), n = layout.rows.size();
    size_t first =
        n <= height
            ? 0
            : std::min(n - height, layout.cursor_row - std::min(layout.cursor_row, height / 2));
    size_t last = std::min(n, first + height);
    std::string out = "\r";
    if (m_drawn_cursor_row) out += "\033[" + std::to_string(m_drawn_cursor_row) + "A";
    out += "\033[J";
    for (size_t i = first; i < last; i++) out += (i > first ? "\r\n" : "") + layout.rows[i];
    if (size_t up = last - 1 - layout.cursor_row) out += "\033[" + std::to_string(up) + "A";
    out += "\r";
    if (layout.cursor_column) out += "\033[" + std::to_string(layout.cursor_column) + "C";
    put(out);
    m_drawn_cursor_row = layout.cursor_row - first;
    m_drawn_rows = last - first;
}

void LineEditor::leave()
{
    draw();
    size_t down = m_drawn_rows - 1 - m_drawn_cursor_row;
    put((down ? "\033[" + std::to_string(down) + "B" : "") + "\r\n");
    m_drawn_cursor_row = 0;
}

LineEditor::Result LineEditor::read(std::string_view prompt, std::string& line)
{
    RawMode raw(m_in, m_out);
    m_prompt = prompt;
    m_text.clear();
    m_cursor = m_drawn_cursor_row = 0;
    m_history_at = m_history.size();
    for (;;) {
        if (!input_waits(0)) draw();
        char byte = 0;
        Key key = read_key(&byte);
        if (key == Key::suspend) {
            leave();
            raw.end();
            raise(SIGTSTP);
            raw.begin();
        }
        if (key == Key::enter || key == Key::end || key == Key::interrupt) {
            leave();
            line = m_text;
            return key == Key::enter ? Result::line
                   : key == Key::end ? Result::end
                                     : Result::interrupted;
        }
        edit(key, byte);
    }
}

} // namespace ks
