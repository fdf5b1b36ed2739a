#include "tools/terminal/message_reader.h"

#include "tools/program.h"

#include <iostream>
#include <unistd.h>

namespace ks
{

MessageReader::MessageReader()
    : m_interactive(is_terminal(STDIN_FILENO) && is_terminal(STDERR_FILENO)),
      m_editor(STDIN_FILENO, STDERR_FILENO)
{
}

MessageReader::Result MessageReader::read_line(const std::string& prompt, std::string& line)
{
    if (!m_interactive) {
        if (std::getline(std::cin, line)) return Result::message;
        return interrupt::pending() ? Result::quit : Result::end;
    }
    fflush(stdout);
    switch (m_editor.read(prompt, line)) {
    case LineEditor::Result::line:
        return Result::message;
    case LineEditor::Result::end:
        return Result::end;
    case LineEditor::Result::interrupted:
        break;
    }
    return Result::quit;
}

MessageReader::Result MessageReader::read(std::string& message, const std::string& prompt)
{
    static const std::string kQuotes = "\"\"\"";
    Result result = read_line(prompt, message);
    if (result != Result::message) {
        // Ctrl-C on a line with text drops the text.
        const bool dropped = result == Result::quit && !message.empty() && m_interactive;
        return dropped ? read(message, prompt) : result;
    }
    const bool quoted = message.compare(0, 3, kQuotes) == 0;
    if (quoted) message.erase(0, 3);
    auto closes = [&] {
        return message.size() >= 3 && message.compare(message.size() - 3, 3, kQuotes) == 0;
    };
    while (quoted ? !closes() : !message.empty() && message.back() == '\\') {
        if (!quoted) message.pop_back();
        std::string line;
        result = read_line(". ", line);
        if (result == Result::quit) return m_interactive ? read(message, prompt) : result;
        message += "\n" + line;
        if (result == Result::end) break;
    }
    if (quoted && closes()) message.resize(message.size() - 3);
    m_editor.add_history(message);
    return Result::message;
}

} // namespace ks
