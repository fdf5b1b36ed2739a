#include "runtime/text/tokenizer.h"

#include "runtime/text/encoder.h"
#include "runtime/text/unicode.h"

#include <algorithm>
#include <cstring>

namespace ks
{

static const PreTokenizer* pre_tokenizer_of(const VocabSource& source)
{
    return find_pre_tokenizer(source.is_raw() ? "gemma4" : source.pre);
}

Result<uint64_t> Tokenizer::bytes_needed(const VocabSource& source)
{
    if (!source.is_sentence_piece() && !source.is_raw() && source.model != "gpt2") {
        return fail(Code::unsupported,
                    "tokenizer.ggml.model is '%s', which is not supported; gpt2, llama and gemma4 "
                    "are",
                    printable(source.model).c_str());
    }
    if (!source.is_sentence_piece() && !pre_tokenizer_of(source)) {
        return fail(Code::unsupported,
                    "the pre-tokenizer '%s' (tokenizer.ggml.pre) is not supported; %s",
                    printable(source.pre).c_str(),
                    "those of gpt-2, llama-bpe, qwen2, qwen35, gpt-4o, tekken and others are");
    }
    return Vocab::bytes_needed(source);
}

Status Tokenizer::load(const VocabSource& source, void* memory, uint64_t bytes)
{
    Result<uint64_t> needed = bytes_needed(source);
    if (!needed.ok()) return needed.status();
    KS_TRY(m_vocab.load(source, memory, bytes));

    bool sentence_piece = source.is_sentence_piece();
    m_pre = sentence_piece ? nullptr : pre_tokenizer_of(source);
    // An id outside the vocabulary counts as missing.
    auto id_or = [&](int64_t id, int64_t otherwise) {
        if (id >= 0 && id < n_vocab()) return id;
        return otherwise < n_vocab() ? otherwise : -1;
    };
    m_bos = id_or(source.bos, sentence_piece ? 1 : -1);
    m_eos = id_or(source.eos, sentence_piece ? 2 : -1);
    for (int64_t id : {m_eos, id_or(source.eot, -1), id_or(source.eom, -1)})
        if (id >= 0) m_vocab.mark_end(uint32_t(id));
    for (uint64_t i = 0; i < source.more_eos.n; i++)
        if (int64_t id = id_or(source.more_eos.at(i), -1); id >= 0) m_vocab.mark_end(uint32_t(id));
    auto flag_or = [](int flag, bool otherwise) { return flag < 0 ? otherwise : flag != 0; };
    // Old files of Gemma 4 deny its BOS.
    m_adds_bos = m_bos >= 0 &&
                 (source.is_raw() || flag_or(source.add_bos, sentence_piece || m_pre->adds_bos));
    m_adds_eos = m_eos >= 0 && flag_or(source.add_eos, false);
    m_adds_space_prefix = sentence_piece && flag_or(source.add_space_prefix, true);
    return {};
}

// Finds the special tokens in a text, in text order. Longer tokens are matched first over the whole
// text, from left to right. Shorter ones then match in what is left. So a longer token wins even
// against a shorter one that begins before it.
std::vector<Tokenizer::Cut> Tokenizer::cut_specials(std::string_view text,
                                                    const IsAllowed& is_allowed) const
{
    struct Candidate {
        uint32_t order, index;
        size_t begin;
        // Puts the highest priority (lowest order, then leftmost) on top of a heap.
        bool operator<(const Candidate& c) const
        {
            return order != c.order ? order > c.order : begin > c.begin;
        }
    };
    std::vector<Candidate> heap; // at most one per byte: the longest token that may still match
    std::vector<Cut> cuts;
    auto add = [&](uint32_t index, size_t begin) {
        while (index != Vocab::kNone && !is_allowed(m_vocab.special(index).id, begin))
            index = m_vocab.special(index).shorter;
        if (index != Vocab::kNone) heap.push_back({m_vocab.special(index).order, index, begin});
    };
    const char *data = text.data(), *end = data + text.size();
    for (size_t i = 0; m_vocab.n_specials() && i < text.size(); i++)
        add(m_vocab.find_special(data + i, end), i);
    if (heap.empty()) return cuts;

    std::make_heap(heap.begin(), heap.end());
    std::vector<bool> taken(text.size());
    while (!heap.empty()) {
        Candidate c = heap.front();
        std::pop_heap(heap.begin(), heap.end());
        heap.pop_back();
        if (taken[c.begin]) continue;
        uint32_t id = m_vocab.special(c.index).id;
        size_t last = c.begin + m_vocab.text(id).size();
        // Every token taken so far is at least as long as this one, so none lies strictly inside
        // it. Checking the last byte is enough.
        if (taken[last - 1]) {
            size_t before = heap.size();
            add(m_vocab.special(c.index).shorter, c.begin);
            if (heap.size() > before) std::push_heap(heap.begin(), heap.end());
            continue;
        }
        while (m_vocab.strips_right(id) && last < text.size() && !taken[last] &&
               strchr(" \t\n\v\f\r", text[last]) && text[last])
            last++;
        std::fill(taken.begin() + ptrdiff_t(c.begin), taken.begin() + ptrdiff_t(last), true);
        cuts.push_back({c.begin, last, id});
    }
    std::sort(cuts.begin(), cuts.end(),
              [](const Cut& a, const Cut& b) { return a.begin < b.begin; });
    return cuts;
}

// The beginning of a text counts as the end of a special token.
void Tokenizer::encode_parts(std::string_view text, bool after_special, const IsAllowed& is_allowed,
                             std::vector<uint32_t>& out, std::vector<EncodedPart>* parts) const
{
    Encoder encoder(m_vocab, m_pre);
    size_t at = 0;
    auto end_part = [&](size_t end) {
        at = end;
        if (parts) parts->push_back({end, out.size(), after_special});
    };
    auto encode_until = [&](size_t end) {
        if (end == at) return;
        encoder.encode(text.substr(at, end - at), m_adds_space_prefix && after_special, out);
        after_special = false;
        end_part(end);
    };
    for (const Cut& cut : cut_specials(text, is_allowed)) {
        encode_until(cut.begin);
        out.push_back(cut.id);
        after_special = true;
        end_part(cut.end);
    }
    encode_until(text.size());
}

void Tokenizer::encode(std::string_view text, const EncodeOptions& options,
                       std::vector<uint32_t>& out) const
{
    if (options.add_bos && m_adds_bos) out.push_back(uint32_t(m_bos));
    auto is_allowed = [&](uint32_t id, size_t) {
        return options.parse_special || type(id) == TokenType::user_defined;
    };
    encode_parts(text, true, is_allowed, out, nullptr);
    if (options.add_bos && m_adds_eos) out.push_back(uint32_t(m_eos));
}

static bool begins_with(std::string_view text, std::string_view beginning)
{
    return text.substr(0, beginning.size()) == beginning;
}

static bool ends_with(std::string_view text, std::string_view end)
{
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// White space and single characters are ordinary vocabulary. A marker stands in what the template
// writes, or looks like one.
bool Tokenizer::is_marker(uint32_t id, std::string_view markup) const
{
    if (type(id) != TokenType::user_defined) return true;
    const std::string_view t = text(id);
    int32_t codepoint;
    const bool ordinary = t.find_first_not_of(" \t\n\v\f\r") == t.npos ||
                          utf8_char(t.data(), t.data() + t.size(), &codepoint) == t.size();
    if (ordinary) return false;
    for (std::string_view beginning : {"<|", "<\xef\xbd\x9c", "["})
        if (begins_with(t, beginning)) return true;
    return ends_with(t, "|>") || ends_with(t, "\xef\xbd\x9c>") || markup.find(t) != markup.npos;
}

void Tokenizer::encode(const AuthoredText& text, std::vector<uint32_t>& out,
                       std::vector<EncodedPart>& parts) const
{
    KS_CHECK(text.authors.size() == text.text.size(), "authors of %zu of %zu bytes",
             text.authors.size(), text.text.size());
    auto is_allowed = [&](uint32_t id, size_t begin) {
        const size_t other = text.authors.find_first_not_of(kTemplateAuthor, begin);
        return other >= begin + this->text(id).size() || !is_marker(id, text.markup);
    };
    encode_parts(text.text, text.after_special, is_allowed, out, &parts);
}

// U+2581 stands for a space.
static size_t sentence_piece_bytes(std::string_view text, char* out)
{
    char* to = out;
    for (size_t i = 0; i < text.size(); i++) {
        bool space = text.substr(i, kSpaceSign.size()) == kSpaceSign;
        *to++ = space ? ' ' : text[i];
        if (space) i += kSpaceSign.size() - 1;
    }
    return size_t(to - out);
}

// Every letter encodes one byte. Other characters stand for themselves.
static size_t bpe_bytes(std::string_view text, char* out)
{
    char* to = out;
    for (const char *at = text.data(), *end = at + text.size(); at < end;) {
        int32_t codepoint;
        size_t n = utf8_char(at, end, &codepoint);
        int byte = n ? byte_of_letter(codepoint) : -1;
        if (byte >= 0) {
            *to++ = char(byte);
            at += n;
        } else {
            *to++ = *at++;
        }
    }
    return size_t(to - out);
}

size_t Tokenizer::piece(uint32_t id, char* out, bool special) const
{
    std::string_view t = text(id);
    TokenType ty = type(id);
    bool control = ty == TokenType::control || ty == TokenType::unknown;
    if (control && !special && !m_vocab.is_rendered(id)) return 0;
    if (control || (m_pre && ty == TokenType::user_defined)) {
        memcpy(out, t.data(), t.size());
        return t.size();
    }
    int byte = ty == TokenType::byte ? byte_of_name(t) : -1;
    if (byte >= 0) {
        *out = char(byte);
        return 1;
    }
    return m_pre && !m_pre->raw ? bpe_bytes(t, out) : sentence_piece_bytes(t, out);
}

std::string Tokenizer::decode(const uint32_t* ids, size_t n, bool special) const
{
    std::string out, one(max_piece_bytes(), '\0');
    bool after_special = true;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = piece(ids[i], &one[0], special);
        // A user-defined token that contains U+2581 came from merging spaces, not from
        // special-token matching.
        TokenType ty = type(ids[i]);
        bool is_special =
            ty == TokenType::control || (ty == TokenType::user_defined &&
                                         text(ids[i]).find(kSpaceSign) == std::string_view::npos);
        bool prefix =
            m_adds_space_prefix && after_special && !is_special && bytes > 0 && one[0] == ' ';
        out.append(one, prefix, bytes - prefix);
        after_special = is_special;
    }
    return out;
}

std::string_view Tokenizer::text(uint32_t id) const
{
    KS_CHECK(id < n_vocab(), "token %u of %u", id, n_vocab());
    return m_vocab.text(id);
}

TokenType Tokenizer::type(uint32_t id) const
{
    KS_CHECK(id < n_vocab(), "token %u of %u", id, n_vocab());
    return m_vocab.type(id);
}

int64_t Tokenizer::find(std::string_view token_text) const
{
    uint32_t id = m_vocab.find(token_text);
    return id == Vocab::kNone ? -1 : int64_t(id);
}

bool Tokenizer::is_end(uint32_t id) const
{
    return id < n_vocab() && m_vocab.is_end(id);
}

} // namespace ks
