#include "tools/terminal/chat_note.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace ks
{

// The first line is this text and answer_begin. Each further line is a turn: its position, a blank
// and its first words. The last line holds the messages.
static const std::string kBegin = "chat, last answer at token ", kMessages = "\nmessages ";

std::string ChatNote::text() const
{
    std::string note = kBegin + std::to_string(answer_begin);
    for (const TurnBegin& turn : turns)
        note += "\n" + std::to_string(turn.position) + " " + turn.words;
    if (note.size() + kMessages.size() + messages.size() <= SavedState::kMaxNoteBytes)
        note += kMessages + messages;
    return note.substr(0, SavedState::kMaxNoteBytes);
}

bool is_chat_note(const std::string& text)
{
    return text.compare(0, kBegin.size(), kBegin) == 0;
}

ChatNote read_chat_note(const std::string& text, uint32_t n_tokens, uint32_t context)
{
    ChatNote note;
    if (is_chat_note(text)) {
        const uint64_t begin = strtoull(text.c_str() + kBegin.size(), nullptr, 10);
        note.answer_begin = begin <= std::min(n_tokens, context) ? uint32_t(begin) : 0;
        for (size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 1)) {
            char* words = nullptr;
            const uint64_t position = strtoull(text.c_str() + at + 1, &words, 10);
            // Positions must ascend and lie inside the text.
            if (*words != ' ' || position >= n_tokens ||
                (!note.turns.empty() && position <= note.turns.back().position))
                break;
            note.turns.push_back(
                {uint32_t(position), std::string(words + 1, strcspn(words + 1, "\n"))});
        }
    }
    const size_t at = is_chat_note(text) ? text.find(kMessages) : text.npos;
    if (at != text.npos) note.messages = text.substr(at + kMessages.size());
    if (note.turns.empty() && n_tokens) note.turns.push_back({0, "(a text without turns)"});
    return note;
}

} // namespace ks
