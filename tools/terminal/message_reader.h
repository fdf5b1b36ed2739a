// Reads the messages of a chat: from a terminal with the line editor, or from lines on a pipe.
#pragma once

#include "tools/terminal/line_editor.h"

namespace ks
{

class MessageReader
{
public:
    enum class Result { message, end, quit }; // quit: Ctrl-C at the prompt

    MessageReader();
    bool interactive() const { return m_interactive; }
    // Reads one message. It has several lines between """ and """, or where lines end with \.
    Result read(std::string& message, const std::string& prompt = "> ");

private:
    Result read_line(const std::string& prompt, std::string& line);

    bool m_interactive;
    LineEditor m_editor;
};

} // namespace ks
