// The suites of `eval`: texts with facts and questions about them, generated from a seed.
// docs/guide.md describes the suites.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ks
{

// A text, a question, and the expected answers.
struct EvalCase {
    std::string before, needle, after; // the text; needle: the part with the answer
    std::string question;              // ends where the answer begins
    std::vector<std::string> answers;
};

// A random stream for each (seed, suite, case).
class Dice
{
public:
    Dice(uint64_t seed, const std::string& suite, uint32_t nth);
    uint32_t below(uint32_t n);
    uint32_t from(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
    template <class T>
    const T& of(const std::vector<T>& items)
    {
        return items[below(uint32_t(items.size()))];
    }

private:
    uint64_t m_seed, m_counter = 0;
};

struct EvalSuite {
    const char* name;
    const char* summary;
    // The model may generate n_free tokens, which must contain the answers in any order. 0: the
    // next tokens must be the answer.
    uint32_t n_free;
    EvalCase (*make)(Dice& dice, uint32_t size); // size, at least 1, sets the length of the text
};

const std::vector<EvalSuite>& eval_suites();

} // namespace ks
