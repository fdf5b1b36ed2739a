#include "runtime/chat/chat_history.h"

#include <algorithm>

namespace ks
{

// The author of what the model generated after the last prompt.
static constexpr char kGenerated = 'g';

std::string_view trimmed(std::string_view text)
{
    const char* const spaces = " \t\r\n";
    const size_t begin = std::min(text.find_first_not_of(spaces), text.size());
    return text.substr(begin, text.find_last_not_of(spaces) + 1 - begin);
}

std::string_view text_behind_answer(const jinja::Text& prompt)
{
    const size_t begin = prompt.authors.rfind(jinja::kByAssistant) + 1,
                 end = prompt.authors.find_first_not_of(kTemplateAuthor, begin);
    if (begin == 0) return {};
    return std::string_view(prompt.bytes).substr(begin, std::min(end, prompt.size()) - begin);
}

// Where the end token of the last answer begins, as markup of tool calls precedes it. Without such
// a token: behind the last byte of the answer. 0: no answer.
static size_t end_of_answers(const Tokenizer& tokenizer, const jinja::Text& prompt,
                             std::string_view markup)
{
    const std::string_view behind = text_behind_answer(prompt);
    const size_t begin = prompt.authors.rfind(jinja::kByAssistant) + 1;
    std::vector<uint32_t> ids;
    std::vector<EncodedPart> parts;
    const std::string authors(behind.size(), kTemplateAuthor);
    tokenizer.encode(AuthoredText{behind, authors, markup, true}, ids, parts);
    for (const EncodedPart& part : parts) {
        const uint32_t id = ids[part.tokens_end - 1];
        if (part.special && tokenizer.is_end(id))
            return begin + part.text_end - tokenizer.text(id).size();
    }
    return begin;
}

// Control tokens of the prompt must have the same author; the tokens of an answer are as they are.
size_t ChatHistory::n_common_bytes(const jinja::Text& prompt) const
{
    const size_t n = std::min(m_text.size(), prompt.bytes.size());
    size_t i = 0;
    for (; i < n && m_text[i] == prompt.bytes[i]; i++)
        if (m_authors[i] != kGenerated &&
            (m_authors[i] == kTemplateAuthor) != (prompt.authors[i] == kTemplateAuthor))
            break;
    return i;
}

// Whether the last answer is the same but for white space around it.
bool ChatHistory::differs_in_spaces(const jinja::Text& prompt, size_t answers_end) const
{
    const size_t begin = std::min(m_authors.find(kGenerated), m_text.size());
    const std::string_view before = trimmed(std::string_view(m_text).substr(0, begin)),
                           answer = trimmed(std::string_view(m_text).substr(begin)),
                           all(prompt.bytes.data(), answers_end);
    if (answer.empty() || trimmed(all.substr(0, before.size())) != before) return false;
    return trimmed(all.substr(before.size())) == answer;
}

// Converts authors of bytes to authors of tokens, which spell the bytes in order. SentencePiece may
// write a space before them.
static void add_authors(const Tokenizer& tokenizer, const uint32_t* ids, size_t n,
                        std::string_view of_bytes, std::string& out)
{
    std::string piece(tokenizer.max_piece_bytes(), '\0');
    size_t n_bytes = 0, at = 0;
    for (size_t i = 0; i < n; i++) n_bytes += tokenizer.piece(ids[i], &piece[0], true);
    const size_t added = n_bytes > of_bytes.size() && tokenizer.adds_space_prefix();
    for (size_t i = 0; i < n; i++) {
        size_t end = at + tokenizer.piece(ids[i], &piece[0], true);
        const size_t first = std::min(at - std::min(at, added), of_bytes.size()),
                     last = std::min(end - std::min(end, added), of_bytes.size());
        const size_t other = of_bytes.substr(0, last).find_first_not_of(kTemplateAuthor, first);
        out += other == std::string_view::npos ? kTemplateAuthor : of_bytes[other];
        at = end;
    }
}

PromptStep ChatHistory::advance(const Tokenizer& tokenizer, jinja::Text prompt,
                                std::string_view markup, const CanRewind& can_rewind)
{
    const EncodedPart held = m_parts.back();
    const size_t n_common = n_common_bytes(prompt),
                 answers_end = end_of_answers(tokenizer, prompt, markup);
    const bool grows = n_common == m_text.size() && n_common < prompt.bytes.size() &&
                       held.text_end == n_common &&
                       (held.special || m_authors.back() == kGenerated);
    size_t n_parts = m_parts.size();
    const auto is_kept = [&](const EncodedPart& part) { // a token at least is read
        return part.special && part.text_end <= n_common && part.text_end < prompt.bytes.size();
    };
    while (!grows && n_parts > 1 && !is_kept(m_parts[n_parts - 1])) n_parts--;
    const bool stays = !grows && answers_end && answers_end >= n_common && held.tokens_end &&
                       (m_text.empty() || differs_in_spaces(prompt, answers_end) ||
                        !can_rewind(uint32_t(m_parts[n_parts - 1].tokens_end)));
    m_parts.resize(n_parts);
    if (stays) m_parts.push_back({answers_end, held.tokens_end, held.special});

    const EncodedPart kept = m_parts.back();
    PromptStep step;
    step.n_kept = uint32_t(kept.tokens_end);
    const std::string_view text(prompt.bytes), authors(prompt.authors);
    std::vector<EncodedPart> parts;
    tokenizer.encode(
        {text.substr(kept.text_end), authors.substr(kept.text_end), markup, kept.special}, step.ids,
        parts);
    for (EncodedPart part : parts) {
        const size_t n_before = step.authors.size();
        part.text_end += kept.text_end;
        if (part.special)
            step.authors += kTemplateAuthor;
        else
            add_authors(
                tokenizer, &step.ids[n_before], part.tokens_end - n_before,
                authors.substr(m_parts.back().text_end, part.text_end - m_parts.back().text_end),
                step.authors);
        part.tokens_end += kept.tokens_end;
        m_parts.push_back(part);
    }
    m_text = std::move(prompt.bytes);
    m_authors = std::move(prompt.authors);
    return step;
}

void ChatHistory::add_answer(const Tokenizer& tokenizer, const uint32_t* ids, size_t n)
{
    std::string piece(tokenizer.max_piece_bytes(), '\0');
    for (size_t i = 0; i < n; i++)
        m_text.append(piece, 0, tokenizer.piece(ids[i], &piece[0], true));
    m_authors.resize(m_text.size(), kGenerated);
    if (n) m_parts.push_back({m_text.size(), m_parts.back().tokens_end + n, false});
}

void ChatHistory::truncate(uint32_t n_tokens)
{
    while (m_parts.back().tokens_end > n_tokens) m_parts.pop_back();
    m_text.resize(std::min(m_text.size(), m_parts.back().text_end));
    m_authors.resize(m_text.size());
}

void ChatHistory::load(uint32_t n_tokens)
{
    m_text.clear();
    m_authors.clear();
    m_parts = {{0, 0, true}};
    if (n_tokens) m_parts.push_back({1, n_tokens, false}); // never at the end of a common text
}

// Numbers with 7 bits a byte, the lowest first.
static void put_number(std::string& out, uint64_t number)
{
    for (; number >= 128; number >>= 7) out += char(number | 128);
    out += char(number);
}

static bool take_number(std::string_view& in, uint64_t* number)
{
    *number = 0;
    for (int shift = 0; shift < 63 && !in.empty(); shift += 7) {
        const uint8_t byte = uint8_t(in[0]);
        in.remove_prefix(1);
        *number |= uint64_t(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

// Its text, the runs of authors, and the parts as differences.
std::string ChatHistory::save() const
{
    std::string out;
    put_number(out, m_text.size());
    out += m_text;
    for (size_t i = 0, end; i < m_authors.size(); i = end) {
        end = std::min(m_authors.find_first_not_of(m_authors[i], i), m_authors.size());
        out += m_authors[i];
        put_number(out, end - i);
    }
    EncodedPart last{0, 0, true};
    for (const EncodedPart& part : m_parts) {
        put_number(out, (part.text_end - last.text_end) << 1 | part.special);
        put_number(out, part.tokens_end - last.tokens_end);
        last = part;
    }
    return out;
}

bool ChatHistory::restore(std::string_view in)
{
    uint64_t n = 0, step = 0;
    if (!take_number(in, &n) || n > in.size()) return false;
    m_text = in.substr(0, n);
    in.remove_prefix(n);
    m_authors.clear();
    while (m_authors.size() < m_text.size()) {
        if (in.empty()) return false;
        const char author = in[0];
        in.remove_prefix(1);
        if (!take_number(in, &n) || n == 0 || n > m_text.size() - m_authors.size()) return false;
        m_authors.append(n, author);
    }
    m_parts.clear();
    for (EncodedPart last{0, 0, true}; !in.empty(); m_parts.push_back(last)) {
        if (!take_number(in, &n) || !take_number(in, &step)) return false;
        last.special = n & 1;
        if (n >> 1 > m_text.size() - last.text_end || step > UINT32_MAX) return false;
        last.text_end += n >> 1;
        last.tokens_end += step;
    }
    return !m_parts.empty() && m_parts[0].text_end == 0 && m_parts[0].tokens_end == 0 &&
           m_parts.back().tokens_end <= UINT32_MAX;
}

uint32_t n_prefix_tokens(const std::string& authors)
{
    return uint32_t(std::min(authors.find(jinja::kByUser), authors.size()));
}

std::vector<uint8_t> template_mask(const std::string& authors)
{
    std::vector<uint8_t> mask;
    for (char author : authors) mask.push_back(author == kTemplateAuthor);
    return mask;
}

} // namespace ks
