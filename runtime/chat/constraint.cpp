#include "runtime/chat/constraint.h"

namespace ks
{

uint64_t Constraint::bytes_needed(const VocabSource& source)
{
    const uint64_t n = source.tokens.n;
    return Matcher::bytes_needed() + 2 * n + source.tokens.bytes - 8 * n;
}

Constraint::Constraint(const Tokenizer& tokenizer, uint32_t n_vocab, void* memory)
    : m_tokenizer(tokenizer), m_matcher_memory(memory), m_encoder(tokenizer.text_encoder())
{
    m_encoder.reserve(kMaxForced);
    m_forced.reserve(kMaxForced);
    const uint32_t n = tokenizer.n_vocab();
    m_first = static_cast<uint8_t*>(memory) + Matcher::bytes_needed();
    m_lengths = m_first + n;
    m_bytes = m_lengths + n;
    for (uint32_t id = 0; id < n; id++) {
        const TokenType type = tokenizer.type(id);
        const bool is_text =
            type == TokenType::normal || type == TokenType::user_defined || type == TokenType::byte;
        const size_t length = tokenizer.piece(id, reinterpret_cast<char*>(bytes_of(id)));
        m_lengths[id] = is_text && id < n_vocab && length < 256 ? uint8_t(length) : 0;
        m_first[id] = m_lengths[id] ? *bytes_of(id) : 0;
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

bool Constraint::allows(uint32_t id)
{
    const uint32_t length = id < m_tokenizer.n_vocab() ? m_lengths[id] : 0;
    if (m_tokenizer.is_end(id)) return m_matcher.can_end();
    if (length == 0 || m_matcher.step(0, m_first[id]) == Matcher::kDead) return false;
    for (uint32_t n = 0; n < length; n++)
        if (!go_on(bytes_of(id), n)) return false;
    return true;
}

bool Constraint::take(uint32_t id)
{
    if (!allows(id)) return false;
    if (!m_tokenizer.is_end(id)) m_matcher.advance(m_path[m_lengths[id]]);
    return true;
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
        *id = sampler.choose(logits, this);
        if (!take(*id))
            return Status(Code::unsupported,
                          "the grammar allows no token of the vocabulary here, or its rules are "
                          "nested too deeply or too ambiguous");
    }
    sampler.accept(*id);
    return {};
}

} // namespace ks
