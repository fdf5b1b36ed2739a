#include "runtime/text/encoder.h"

#include "runtime/text/unicode.h"

#include <algorithm>

namespace ks
{

static constexpr uint32_t kNone = Vocab::kNone;
static constexpr size_t kMaxBytes = size_t(1) << 30; // encoded at once: symbol indexes have 32 bits

void Encoder::encode(std::string_view text, bool space_prefix, std::vector<uint32_t>& out)
{
    for (; text.size() > kMaxBytes; text.remove_prefix(kMaxBytes), space_prefix = false)
        encode(text.substr(0, kMaxBytes), space_prefix, out);
    if (!m_pre) return encode_sentence_piece(text, space_prefix, out);
    m_text.clear();
    if (m_pre->raw) put_space_signs(text);
    WordSplitter words(*m_pre, m_pre->raw ? m_text : text);
    for (std::string_view word = words.next(); !word.empty(); word = words.next())
        m_pre->raw ? encode_raw_bpe(word, out) : encode_bpe(word, out);
}

void Encoder::add_symbol(const char* text, size_t bytes, uint32_t id)
{
    uint32_t index = uint32_t(m_symbols.size());
    m_symbols.push_back({text, uint32_t(bytes), id, index - 1, index + 1});
}

template <class Find>
void Encoder::add_pair(uint32_t left, uint32_t right, Find find)
{
    const Symbol &a = m_symbols[left], &b = m_symbols[right];
    uint32_t rank, id = find(a, b, &rank);
    if (id == kNone) return;
    m_pairs.push_back({uint64_t(rank) << 32 | left, right, a.bytes + b.bytes, id});
    std::push_heap(m_pairs.begin(), m_pairs.end());
}

// Merges the best pair until no pair merges. find(left, right, &rank) returns the merged token or
// kNone.
template <class Find>
void Encoder::merge(Find find)
{
    uint32_t n = uint32_t(m_symbols.size());
    m_pairs.clear();
    for (uint32_t i = 1; i < n; i++) add_pair(i - 1, i, find);
    while (!m_pairs.empty()) {
        Pair pair = m_pairs.front();
        std::pop_heap(m_pairs.begin(), m_pairs.end());
        m_pairs.pop_back();
        uint32_t left = uint32_t(pair.order);
        Symbol &a = m_symbols[left], &b = m_symbols[pair.right];
        if (a.bytes == 0 || b.bytes == 0 || a.bytes + b.bytes != pair.bytes) continue;
        a.bytes = pair.bytes;
        a.id = pair.id;
        a.next = b.next;
        b.bytes = 0;
        if (a.next < n) m_symbols[a.next].previous = left;
        if (a.previous < n) add_pair(a.previous, left, find);
        if (a.next < n) add_pair(left, a.next, find);
    }
}

void Encoder::encode_bpe(std::string_view word, std::vector<uint32_t>& out)
{
    if (m_pre->ignores_merges && word.size() <= m_vocab.longest()) {
        m_text.clear();
        for (char c : word) m_text += byte_letter(uint8_t(c));
        uint32_t id = m_vocab.find_mergeable(m_text);
        if (id != kNone) return out.push_back(id);
    }
    m_symbols.clear();
    for (const char& c : word) add_symbol(&c, 1, m_vocab.byte_id(uint8_t(c)));
    merge_ranked();
    for (const Symbol& s : m_symbols)
        if (s.bytes && s.id != kNone) out.push_back(s.id);
}

void Encoder::merge_ranked()
{
    merge([&](const Symbol& a, const Symbol& b, uint32_t* rank) {
        return m_vocab.find_merge(a.id, b.id, rank);
    });
}

// The symbols are characters; those without a token become bytes. A run of newlines that is a token
// is not merged from parts.
void Encoder::encode_raw_bpe(std::string_view word, std::vector<uint32_t>& out)
{
    uint32_t newlines = word[0] == '\n' ? m_vocab.find_mergeable(word) : kNone;
    if (newlines != kNone) return out.push_back(newlines);
    m_symbols.clear();
    add_characters(word);
    merge_ranked();
    for (const Symbol& s : m_symbols) {
        if (s.bytes && s.id != kNone) out.push_back(s.id);
        for (uint32_t i = 0; i < s.bytes && s.id == kNone; i++) {
            uint32_t id = m_vocab.byte_id(uint8_t(s.text[i]));
            if (id != kNone) out.push_back(id);
        }
    }
}

void Encoder::put_space_signs(std::string_view text)
{
    for (char c : text) {
        if (c == ' ')
            m_text += kSpaceSign;
        else
            m_text += c;
    }
}

void Encoder::add_characters(std::string_view text)
{
    for (const char *at = text.data(), *end = at + text.size(); at < end;) {
        int32_t codepoint;
        size_t n = std::max<size_t>(utf8_char(at, end, &codepoint), 1);
        add_symbol(at, n, m_vocab.find_mergeable({at, n}));
        at += n;
    }
}

// Encodes the text in parts that no token crosses.
void Encoder::encode_sentence_piece(std::string_view text, bool space_prefix,
                                    std::vector<uint32_t>& out)
{
    size_t begin = 0;
    for (size_t i = 1; i < text.size(); i++) {
        if (text[i] != ' ' && text.substr(i, kSpaceSign.size()) != kSpaceSign) continue;
        char before = text[i - 1] == ' ' ? kSpaceSign.back() : text[i - 1];
        if (m_vocab.joins_space(uint8_t(before))) continue;
        encode_part(text.substr(begin, i - begin), space_prefix && begin == 0, out);
        begin = i;
    }
    encode_part(text.substr(begin), space_prefix && begin == 0, out);
}

void Encoder::encode_part(std::string_view text, bool space_prefix, std::vector<uint32_t>& out)
{
    m_text.assign(space_prefix ? kSpaceSign : "");
    put_space_signs(text);
    m_symbols.clear();
    add_characters(m_text);
    merge([&](const Symbol& a, const Symbol& b, uint32_t* rank) {
        uint32_t id = m_vocab.find_mergeable({a.text, size_t(a.bytes) + b.bytes});
        if (id != kNone) *rank = m_vocab.rank(id);
        return id;
    });
    for (const Symbol& s : m_symbols) {
        if (!s.bytes) continue;
        if (s.id != kNone) {
            out.push_back(s.id);
            continue;
        }
        // Without byte tokens, one unknown token stands for the whole character.
        uint32_t before = kNone;
        for (uint32_t i = 0; i < s.bytes; i++) {
            uint32_t id = m_vocab.byte_id(uint8_t(s.text[i]));
            if (id != before || m_vocab.type(id) != TokenType::unknown) out.push_back(id);
            before = id;
        }
    }
}

} // namespace ks
