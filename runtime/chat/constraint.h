// Answers that a grammar allows: which tokens may follow.
#pragma once

#include "runtime/chat/matcher.h"
#include "runtime/text/sampler.h"
#include "runtime/text/tokenizer.h"

namespace ks
{

// A token is sampled freely first. Only if the grammar refuses it, another one is drawn from those
// that it allows.
class Constraint : private TokenFilter
{
public:
    static uint64_t bytes_needed(const VocabSource& source);
    // n_vocab: of the logits. The tokenizer and the memory must outlive this object.
    Constraint(const Tokenizer& tokenizer, uint32_t n_vocab, void* memory);

    void begin(const Grammar& grammar); // a new answer; the grammar must outlive it
    // Chooses the next token, an end token only where the grammar may end. Fails with unsupported
    // if no token of the vocabulary is allowed.
    Status sample(Sampler& sampler, const float* logits, uint32_t* id);
    // Takes the next tokens where only one text can follow, at most `most` of them. The last token
    // of that text is left out unless it ends the answer, as it may merge with what follows.
    const std::vector<uint32_t>& take_forced(uint64_t most);
    // Whether the answer is complete and nothing can follow.
    bool is_complete() const { return m_matcher.can_end() && !m_matcher.can_go_on(); }

private:
    static constexpr uint32_t kMaxForced = 128; // bytes
    bool allows(uint32_t id) override;
    bool take(uint32_t id);
    uint8_t* bytes_of(uint32_t id) const;
    // From the state of the first n bytes to that of one more. False: the grammar refuses it.
    bool go_on(const uint8_t* bytes, uint32_t n);

    const Tokenizer& m_tokenizer;
    Matcher m_matcher;
    void* m_matcher_memory;
    uint8_t* m_first;          // (n_vocab): the first byte of each token
    uint8_t* m_lengths;        // (n_vocab): bytes of each token; 0: the grammar never sees it
    uint8_t* m_bytes;          // of all tokens, each where the tokenizer has its text
    uint16_t m_path[257] = {}; // states of the matcher after each byte of a token
    Encoder m_encoder;
    char m_text[kMaxForced] = {}; // that must follow
    std::vector<uint32_t> m_forced;
};

} // namespace ks
