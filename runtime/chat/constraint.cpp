#include "runtime/chat/constraint.h"

#include <algorithm>
#include <cstring>

namespace ks
{

static uint64_t n_words(uint32_t n_bits)
{
    return (uint64_t(n_bits) + 31) / 32;
}

uint64_t Constraint::bytes_needed(const VocabSource& source, uint32_t n_vocab)
{
    const uint64_t n = source.tokens.n;
    return Matcher::bytes_needed() + 4 * (n_words(n_vocab) + n) + 2 * n + source.tokens.bytes -
           8 * n;
}

Constraint::Constraint(const Tokenizer& tokenizer, uint32_t n_vocab, void* memory)
    : m_tokenizer(tokenizer), m_n_vocab(n_vocab), m_matcher_memory(memory),
      m_encoder(tokenizer.text_encoder())
{
    m_encoder.reserve(kMaxForced);
    m_forced.reserve(kMaxForced);
    const uint32_t n = tokenizer.n_vocab();
    m_allowed =
        reinterpret_cast<uint32_t*>(static_cast<uint8_t*>(memory) + Matcher::bytes_needed());
    m_sorted = m_allowed + n_words(n_vocab);
    m_common = reinterpret_cast<uint8_t*>(m_sorted + n);
    m_lengths = m_common + n;
    m_bytes = m_lengths + n;
    for (uint32_t id = 0; id < n; id++) {
        const TokenType type = tokenizer.type(id);
        const bool is_text =
            type == TokenType::normal || type == TokenType::user_defined || type == TokenType::byte;
        const size_t length = tokenizer.piece(id, reinterpret_cast<char*>(bytes_of(id)));
        m_lengths[id] = is_text && id < n_vocab && length < 256 ? uint8_t(length) : 0;
        if (m_lengths[id]) m_sorted[m_n_sorted++] = id;
    }
    std::sort(m_sorted, m_sorted + m_n_sorted, [&](uint32_t a, uint32_t b) {
        const int order = memcmp(bytes_of(a), bytes_of(b), std::min(m_lengths[a], m_lengths[b]));
        if (order) return order < 0;
        return m_lengths[a] != m_lengths[b] ? m_lengths[a] < m_lengths[b] : a < b;
    });
    for (uint32_t i = 0; i < m_n_sorted; i++) {
        const uint8_t *bytes = bytes_of(m_sorted[i]), *before = bytes_of(m_sorted[i ? i - 1 : 0]);
        const uint8_t most = i ? std::min(m_lengths[m_sorted[i]], m_lengths[m_sorted[i - 1]]) : 0;
        m_common[i] = uint8_t(std::mismatch(bytes, bytes + most, before).first - bytes);
    }
}

uint8_t* Constraint::bytes_of(uint32_t id) const
{
    return m_bytes + (m_tokenizer.text(id).data() - m_tokenizer.text(0).data());
}

void Constraint::begin(const Grammar& grammar)
{
    m_matcher = Matcher(grammar, m_matcher_memory);
}

bool Constraint::go_on(const uint8_t* bytes, uint32_t n)
{
    m_path[n + 1] = m_matcher.step(m_path[n], bytes[n]);
    if (m_path[n + 1] == Matcher::kFull) { // walk this token again, alone
        m_matcher.forget();
        for (uint32_t i = 0; i <= n && !m_matcher.is_exhausted(); i++)
            m_path[i + 1] = m_matcher.step(m_path[i], bytes[i]);
    }
    return m_path[n + 1] < Matcher::kFull && !m_matcher.is_exhausted();
}

bool Constraint::take(uint32_t id)
{
    if (m_tokenizer.is_end(id)) return m_matcher.can_end();
    const uint32_t length = id < m_tokenizer.n_vocab() ? m_lengths[id] : 0;
    for (uint32_t n = 0; n < length; n++)
        if (!go_on(bytes_of(id), n)) return false;
    if (length > 0) m_matcher.advance(m_path[length]);
    return length > 0;
}

// Tokens that begin with the bytes of a refused one are skipped.
bool Constraint::find_allowed()
{
    bool any = false;
    const auto allow = [&](uint32_t id) {
        m_allowed[id / 32] |= 1u << id % 32;
        any = true;
    };
    memset(m_allowed, 0, 4 * n_words(m_n_vocab));
    for (uint32_t id = 0; m_matcher.can_end() && id < m_n_vocab; id++)
        if (m_tokenizer.is_end(id)) allow(id);
    uint32_t n = 0; // bytes that the path has accepted
    for (uint32_t i = 0; i < m_n_sorted; i++) {
        if (m_common[i] > n) continue;
        const uint32_t id = m_sorted[i], length = m_lengths[id];
        n = m_common[i];
        while (n < length && go_on(bytes_of(id), n)) n++;
        if (n == length) allow(id);
    }
    return any;
}

const std::vector<uint32_t>& Constraint::take_forced(uint64_t most)
{
    uint32_t n_bytes = 0;
    uint16_t state = 0;
    for (int byte; n_bytes < kMaxForced && (byte = m_matcher.only_byte(state)) >= 0; n_bytes++) {
        const uint16_t next = m_matcher.step(state, uint8_t(byte));
        if (next >= Matcher::kFull) break;
        m_text[n_bytes] = char(byte);
        state = next;
    }
    m_forced.clear();
    m_encoder.encode({m_text, n_bytes}, false, m_forced);
    if (!m_forced.empty() && !m_matcher.is_end(state)) m_forced.pop_back();
    size_t n = 0;
    while (n < m_forced.size() && n < most && take(m_forced[n])) n++;
    m_forced.resize(n);
    return m_forced;
}

Status Constraint::sample(Sampler& sampler, const float* logits, uint32_t* id)
{
    *id = sampler.choose(logits);
    if (!take(*id)) {
        if (!find_allowed() || m_matcher.is_exhausted())
            return Status(Code::unsupported,
                          "the grammar allows no token of the vocabulary here, or its rules are "
                          "nested too deeply or too ambiguous");
        *id = sampler.choose(logits, m_allowed);
        KS_CHECK(take(*id), "token %u", *id);
    }
    sampler.accept(*id);
    return {};
}

} // namespace ks
