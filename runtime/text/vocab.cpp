#include "runtime/text/vocab.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>

namespace ks
{

// Texts of tokens that are control tokens whatever their type in the file, and texts of tokens that
// end an answer.
// clang-format off
static const char* const kControlTexts[] = {
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
    "<|code_prefix|>", "<|prefix|>", "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",
    "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>", "<|fim_middle|>",
    "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
    "<|middle|>",
};
static const char* const kEndTexts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]",
    "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>", "[e~[",
};
// Control tokens between the parts of an answer. The program reads them in the answer's text.
static const char* const kRenderedTexts[] = {"<|channel|>", "<|message|>", "<|start|>",
                                             "<|constrain|>"};
// clang-format on

template <size_t n>
static bool is_one_of(const char* const (&list)[n], std::string_view text)
{
    if (text.size() < 4 || !strchr(">][", text.back()) || !text.back()) return false;
    return std::find(list, list + n, text) != list + n;
}

Vocab::Exceptions Vocab::exceptions_of(const VocabSource& source)
{
    static const char* const texts[] = {"<|return|>", "<|flush|>",        "<|call|>",
                                        "<|calls|>",  "<|tool_response>", "<|plamo:eos|>"};
    bool has[std::size(texts)] = {};
    uint64_t at = 0;
    for (uint64_t i = 0; i < source.tokens.n; i++) {
        std::string_view text = source.tokens.next(at);
        if (text.substr(0, 2) != "<|") continue;
        for (size_t t = 0; t < std::size(texts); t++) has[t] |= text == texts[t];
    }
    return {(has[0] || has[1]) && (has[2] || has[3]), has[4] || has[5]};
}

uint8_t Vocab::flags_of(const VocabSource& source, uint64_t index, std::string_view text,
                        const Exceptions& exceptions)
{
    int32_t type = int32_t(TokenType::normal);
    if (source.types) memcpy(&type, source.types + index * 4, 4);
    if (type < 1 || type > 6) type = int32_t(TokenType::unused);
    if ((exceptions.end_is_rendered && text == "<|end|>") || is_one_of(kRenderedTexts, text))
        return uint8_t(TokenType::control) | kRendered;
    if (exceptions.s_is_text && text == "</s>") return uint8_t(TokenType::normal);
    if (is_one_of(kEndTexts, text)) return uint8_t(TokenType::control) | kEnd;
    return is_one_of(kControlTexts, text) ? uint8_t(TokenType::control) : uint8_t(type);
}

static bool is_special_type(TokenType type)
{
    return type == TokenType::control || type == TokenType::user_defined ||
           type == TokenType::unknown;
}

uint32_t Vocab::slot_bits(uint64_t n)
{
    uint32_t bits = 4;
    while ((uint64_t(2) << bits) < n * 3) bits++;
    return bits;
}

uint64_t Vocab::Layout::bytes() const
{
    uint64_t words = n_tokens + 1 + (sentence_piece ? n_tokens : 0) + n_merges * 3 +
                     n_specials * 3 + n_suppressed + 65536 / 32;
    words += uint64_t(1) << slot_bits(n_tokens);
    if (n_merges) words += uint64_t(1) << slot_bits(n_merges);
    return words * 4 + n_tokens + texts_bytes;
}

Result<Vocab::Layout> Vocab::measure(const VocabSource& source)
{
    Layout layout = {source.is_sentence_piece(), source.tokens.n, source.merges.n, 0, 0, 0, 1, {}};
    if (layout.sentence_piece) layout.n_merges = 0;
    auto invalid = [&](const char* what, uint64_t n, uint64_t least) {
        return fail(Code::invalid,
                    "the tokenizer has %" PRIu64 " %s, at least %" PRIu64 " were expected", n, what,
                    least);
    };
    if (source.tokens.n == 0) return invalid("tokens", 0, 1);
    if (source.types && source.n_types < source.tokens.n)
        return invalid("token types", source.n_types, source.tokens.n);
    if (source.scores && source.n_scores < source.tokens.n)
        return invalid("scores", source.n_scores, source.tokens.n);
    if (!layout.sentence_piece && source.merges.n == 0) return invalid("merges", 0, 1);
    if (layout.n_tokens >= kMaxItems || layout.n_merges >= kMaxItems ||
        source.tokens.bytes >= kNone) {
        return fail(Code::unsupported,
                    "the tokenizer has %" PRIu64 " tokens of %" PRIu64 " bytes and %" PRIu64
                    " merges, too many for this build",
                    layout.n_tokens, source.tokens.bytes, layout.n_merges);
    }
    for (uint64_t i = 0; i < source.suppress.n; i++)
        layout.n_suppressed += uint64_t(source.suppress.at(i)) < layout.n_tokens;
    layout.exceptions = exceptions_of(source);
    uint64_t at = 0;
    for (uint64_t i = 0; i < source.tokens.n; i++) {
        std::string_view text = source.tokens.next(at);
        layout.texts_bytes += text.size();
        layout.longest = std::max(layout.longest, uint32_t(text.size()));
        layout.n_specials +=
            !text.empty() &&
            is_special_type(TokenType(flags_of(source, i, text, layout.exceptions) & kTypeMask));
    }
    return layout;
}

Result<uint64_t> Vocab::bytes_needed(const VocabSource& source)
{
    Result<Layout> layout = measure(source);
    if (!layout.ok()) return layout.status();
    return layout.value().bytes();
}

void Vocab::place(const Layout& layout, void* memory)
{
    *this = Vocab();
    auto* word = static_cast<uint32_t*>(memory);
    auto take = [&](uint64_t n) {
        uint32_t* taken = word;
        word += n;
        return taken;
    };
    m_n_tokens = uint32_t(layout.n_tokens);
    m_n_merges = uint32_t(layout.n_merges);
    m_n_specials = uint32_t(layout.n_specials);
    m_longest = layout.longest;
    m_offsets = take(layout.n_tokens + 1);
    m_ranks = layout.sentence_piece ? take(layout.n_tokens) : nullptr;
    m_merges = reinterpret_cast<Merge*>(take(layout.n_merges * 3));
    m_specials = reinterpret_cast<Special*>(take(layout.n_specials * 3));
    m_suppressed = take(layout.n_suppressed);
    m_special_begins = take(65536 / 32);
    m_lookup.bits = slot_bits(layout.n_tokens);
    m_lookup.slots = take(uint64_t(1) << m_lookup.bits);
    m_merge_lookup.bits = layout.n_merges ? slot_bits(layout.n_merges) : 0;
    m_merge_lookup.slots = layout.n_merges ? take(uint64_t(1) << m_merge_lookup.bits) : nullptr;
    m_flags = reinterpret_cast<uint8_t*>(word);
    m_texts = reinterpret_cast<char*>(m_flags + layout.n_tokens);
}

Status Vocab::load(const VocabSource& source, void* memory, uint64_t bytes)
{
    Result<Layout> layout = measure(source);
    if (!layout.ok()) return layout.status();
    KS_CHECK(bytes >= layout.value().bytes(), "%" PRIu64 " of %" PRIu64 " bytes", bytes,
             layout.value().bytes());
    place(layout.value(), memory);
    copy_tokens(source, layout.value().exceptions);
    KS_TRY(fill_lookup());
    if (m_n_merges) KS_TRY(fill_merges(source));
    fill_specials(source);
    fill_byte_ids(source);
    for (uint64_t i = 0; i < source.suppress.n; i++)
        if (uint64_t(source.suppress.at(i)) < m_n_tokens)
            m_suppressed[m_n_suppressed++] = uint32_t(source.suppress.at(i));
    return {};
}

// Maps descending scores to ascending ranks. NaN comes last.
static uint32_t rank_of(float score)
{
    if (std::isnan(score)) return 0xffffffff;
    score += 0.0f; // converts -0 to +0
    uint32_t bits;
    memcpy(&bits, &score, 4);
    return bits >> 31 ? bits : ~bits & 0x7fffffff;
}

void Vocab::note_spaces(std::string_view text)
{
    for (size_t at = text.find(kSpaceSign, 1); at < text.size();
         at = text.find(kSpaceSign, at + 1)) {
        auto before = uint8_t(text[at - 1]);
        m_joins_space[before / 32] |= uint32_t(1) << before % 32;
    }
}

void Vocab::copy_tokens(const VocabSource& source, const Exceptions& exceptions)
{
    uint64_t at = 0;
    uint32_t end = 0;
    for (uint32_t i = 0; i < m_n_tokens; i++) {
        std::string_view text = source.tokens.next(at);
        m_offsets[i] = end;
        if (!text.empty()) memcpy(m_texts + end, text.data(), text.size());
        end += uint32_t(text.size());
        m_flags[i] = flags_of(source, i, text, exceptions);
        if (!m_ranks) continue;
        float score = 0;
        if (source.scores) memcpy(&score, source.scores + i * uint64_t(4), 4);
        m_ranks[i] = rank_of(score);
        note_spaces(text);
    }
    m_offsets[m_n_tokens] = end;
}

uint64_t Vocab::hash(std::string_view text)
{
    constexpr uint64_t k = 0x9e3779b97f4a7c15;
    auto load = [](const char* p, size_t n) {
        uint64_t value = 0;
        memcpy(&value, p, n);
        return value;
    };
    uint64_t h = text.size() * k;
    const char* p = text.data();
    size_t n = text.size();
    for (; n > 8; p += 8, n -= 8) {
        h = (h ^ load(p, 8)) * k;
        h ^= h >> 32;
    }
    uint64_t rest = 0; // the last 1 to 8 bytes; bytes in the middle may be read twice
    if (n >= 4)
        rest = load(p, 4) | load(p + n - 4, 4) << 32;
    else if (n > 0)
        rest = uint64_t(uint8_t(p[0])) | uint64_t(uint8_t(p[n / 2])) << 8 |
               uint64_t(uint8_t(p[n - 1])) << 16;
    h = (h ^ rest) * k;
    h = (h ^ h >> 32) * k;
    return h ^ h >> 32;
}

template <class Same>
uint32_t& Vocab::Slots::at(uint64_t hash, Same same, uint64_t& n_steps) const
{
    uint32_t mask = (uint32_t(1) << bits) - 1, tag = uint32_t(hash) << 24;
    for (uint64_t i = hash >> (64 - bits);; i = (i + 1) & mask) {
        n_steps++;
        uint32_t slot = slots[i];
        if (slot == kNone || ((slot ^ tag) >> 24 == 0 && same(slot & 0xffffff))) return slots[i];
    }
}

template <class Same>
uint32_t Vocab::Slots::find(uint64_t hash, Same same) const
{
    uint64_t n_steps = 0;
    uint32_t slot = at(hash, same, n_steps);
    return slot == kNone ? kNone : slot & 0xffffff;
}

// Refuses a file whose texts were chosen to collide: inserting them would take hours.
static Status check_steps(uint64_t n_steps, uint64_t n)
{
    if (n_steps <= 64 * n + 4096) return {};
    return fail(Code::invalid,
                "the tokenizer's %" PRIu64 " texts collide in its table, they were made to do so",
                n);
}

Status Vocab::fill_lookup()
{
    memset(m_lookup.slots, 0xff, size_t(4) << m_lookup.bits);
    uint64_t n_steps = 0;
    for (uint32_t i = 0; i < m_n_tokens; i++) {
        std::string_view text = this->text(i);
        if (text.empty()) continue;
        uint64_t h = hash(text);
        uint32_t& slot = m_lookup.at(
            h, [&](uint32_t id) { return this->text(id) == text; }, n_steps);
        if (slot == kNone) slot = i | uint32_t(h) << 24;
        KS_TRY(check_steps(n_steps, m_n_tokens));
    }
    return {};
}

uint32_t Vocab::find(std::string_view text) const
{
    if (text.empty() || text.size() > m_longest) return kNone;
    return m_lookup.find(hash(text), [&](uint32_t id) { return this->text(id) == text; });
}

uint32_t Vocab::find_mergeable(std::string_view text) const
{
    uint32_t id = find(text);
    if (id == kNone) return kNone;
    TokenType t = type(id);
    return t == TokenType::control || t == TokenType::unknown || t == TokenType::byte ? kNone : id;
}

static uint64_t hash_pair(uint32_t left, uint32_t right)
{
    uint64_t h = (uint64_t(left) << 32 | right) * 0x9e3779b97f4a7c15;
    h = (h ^ h >> 32) * 0x9e3779b97f4a7c15;
    return h ^ h >> 32;
}

// A merge is "left right". A merge that names an unknown token is never applied.
Status Vocab::fill_merges(const VocabSource& source)
{
    memset(m_merge_lookup.slots, 0xff, size_t(4) << m_merge_lookup.bits);
    uint64_t at = 0, n_steps = 0;
    std::string joined;
    for (uint32_t i = 0; i < m_n_merges; i++) {
        std::string_view text = source.merges.next(at);
        Merge& merge = m_merges[i];
        merge = {kNone, kNone, kNone};
        size_t space = text.find(' ', 1);
        if (space == text.npos || text.size() > 2 * uint64_t(m_longest) + 1) continue;
        joined.assign(text.substr(0, space)).append(text.substr(space + 1));
        uint32_t left = find_mergeable(text.substr(0, space)),
                 right = find_mergeable(text.substr(space + 1));
        uint32_t result = find_mergeable(joined);
        if (left == kNone || right == kNone || result == kNone) continue;
        merge = {left, right, result};
        uint64_t h = hash_pair(left, right);
        uint32_t& slot = m_merge_lookup.at(
            h, [&](uint32_t m) { return m_merges[m].left == left && m_merges[m].right == right; },
            n_steps);
        if (slot == kNone) slot = i | uint32_t(h) << 24;
        KS_TRY(check_steps(n_steps, m_n_merges));
    }
    return {};
}

uint32_t Vocab::find_merge(uint32_t left, uint32_t right, uint32_t* rank) const
{
    *rank = m_merge_lookup.find(hash_pair(left, right), [&](uint32_t m) {
        return m_merges[m].left == left && m_merges[m].right == right;
    });
    return *rank == kNone ? kNone : m_merges[*rank].result;
}

static bool is_own_letter(int c)
{
    return (c > 0x20 && c < 0x7f) || (c > 0xa0 && c <= 0xff && c != 0xad);
}

// The 68 bytes without a printable letter map to U+0100 ... U+0143, in order.
std::string byte_letter(uint8_t byte)
{
    int c = is_own_letter(byte) ? byte
            : byte <= 0x20      ? 0x100 + byte
            : byte == 0xad      ? 0x143
                                : 0x121 + byte - 0x7f;
    if (c < 0x80) return std::string(1, char(c));
    return {char(0xc0 | c >> 6), char(0x80 | (c & 0x3f))};
}

int byte_of_letter(int32_t codepoint)
{
    if (codepoint < 0x100) return is_own_letter(codepoint) ? codepoint : -1;
    if (codepoint <= 0x120) return codepoint - 0x100;
    return codepoint <= 0x142 ? codepoint - 0x121 + 0x7f : codepoint == 0x143 ? 0xad : -1;
}

int byte_of_name(std::string_view text)
{
    auto digit = [](char c) {
        return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    };
    if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>' || digit(text[3]) < 0 ||
        digit(text[4]) < 0)
        return -1;
    return digit(text[3]) * 16 + digit(text[4]);
}

void Vocab::fill_byte_ids(const VocabSource& source)
{
    uint32_t unknown =
        source.unknown >= 0 && source.unknown < int64_t(m_n_tokens) ? uint32_t(source.unknown) : 0;
    for (int b = 0; b < 256; b++) {
        if (!source.is_sentence_piece() && !source.is_raw()) {
            m_byte_ids[b] = find_mergeable(byte_letter(uint8_t(b)));
            continue;
        }
        char name[8], byte = char(b);
        snprintf(name, sizeof name, "<0x%02X>", unsigned(b));
        m_byte_ids[b] = find({name, 6});
        if (source.is_raw()) continue;
        if (m_byte_ids[b] == kNone) m_byte_ids[b] = find_mergeable({&byte, 1});
        if (m_byte_ids[b] == kNone) m_byte_ids[b] = unknown;
    }
}

} // namespace ks
