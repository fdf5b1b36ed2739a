// Reads lines from a terminal with editing and history. Wraps rows itself instead of leaving that
// to the terminal: text of any width and of several lines is drawn and edited alike.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ks
{

class LineEditor
{
public:
    enum class Result { line, end, interrupted };

    LineEditor(int in, int out) : m_in(in), m_out(out) {}
    // `line` becomes the typed text, also after Ctrl-C.
    Result read(std::string_view prompt, std::string& line);
    void add_history(const std::string& line);

private:
    enum class Key {
        none,
        text,
        enter,
        end,
        interrupt,
        suspend,
        up,
        down,
        left,
        right,
        home,
        to_end,
        word_left,
        word_right,
        erase,
        erase_next,
        erase_word,
        erase_line,
        erase_rest,
        redraw,
        newline,
        paste
    };
    Key read_key(char* byte);
    Key read_escape();
    bool input_waits(int milliseconds) const;
    bool read_byte(char* byte);
    void insert(char byte);
    void read_paste();
    size_t target(Key key) const;
    void edit(Key key, char byte);
    void move_in_history(int step);
    size_t previous(size_t at) const; // the start of a neighbouring character
    size_t next(size_t at) const;
    size_t previous_word(size_t at) const;
    size_t next_word(size_t at) const;
    void draw();
    void leave(); // moves the cursor below the text
    void put(const std::string& text) const;

    int m_in, m_out;
    std::string m_prompt, m_text;
    size_t m_cursor = 0; // in bytes of m_text
    size_t m_drawn_cursor_row = 0, m_drawn_rows = 0;
    std::vector<std::string> m_history;
    size_t m_history_at = 0;
    std::string m_unfinished; // the typed line while the history is shown
};

} // namespace ks
