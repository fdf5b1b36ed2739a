// The text of the tokens that a session holds. The chat template renders all messages of a
// conversation for each turn; the session reads only what its history lacks.
#pragma once

#include "runtime/chat/value.h"
#include "runtime/text/tokenizer.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ks
{

// What a session does to hold a prompt: it goes back to n_kept tokens and reads ids.
struct PromptStep {
    uint32_t n_kept = 0;
    std::vector<uint32_t> ids;
    std::string authors; // a letter for each of the ids
};

class ChatHistory
{
public:
    ChatHistory() : m_parts{{0, 0, true}} {}

    // Whether the session can go back to n tokens without reading the text again.
    using CanRewind = std::function<bool(uint32_t n)>;
    // The session keeps the tokens up to the first difference between its text and the prompt. An
    // answer stays as the model generated it if the template only trims it, or if the session
    // cannot go back. `markup`: see AuthoredText. The history describes the session after the step.
    PromptStep advance(const Tokenizer& tokenizer, jinja::Text prompt, std::string_view markup,
                       const CanRewind& can_rewind);
    // The session read tokens that the model generated.
    void add_answer(const Tokenizer& tokenizer, const uint32_t* ids, size_t n);
    // The session went back to n tokens.
    void truncate(uint32_t n_tokens);
    // The session holds n tokens of an unknown text.
    void load(uint32_t n_tokens);
    // As bytes, and back. False: the bytes are no history.
    std::string save() const;
    bool restore(std::string_view saved);
    uint32_t n_tokens() const { return uint32_t(m_parts.back().tokens_end); }

private:
    size_t n_common_bytes(const jinja::Text& prompt) const;
    bool differs_in_spaces(const jinja::Text& prompt, size_t answers_end) const;

    std::string m_text, m_authors; // kGenerated for bytes of an answer that follows the prompt
    // Places where the tokens of the text before do not depend on the text behind, ascending.
    std::vector<EncodedPart> m_parts;
};

std::string_view trimmed(std::string_view text); // without white space around it
// What the template writes behind the last answer of a conversation.
std::string_view text_behind_answer(const jinja::Text& prompt);
// The number of tokens before the first user message.
uint32_t n_prefix_tokens(const std::string& authors);
// For each token: 1 if the template wrote the whole token.
std::vector<uint8_t> template_mask(const std::string& authors);

} // namespace ks
