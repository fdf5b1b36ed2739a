// What `eval` asks: texts with facts in them and questions about these, made from a seed
// (docs/guide.md says which suite is what).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ks
{

// A text, a question, and what the model should go on with.
struct EvalCase {
    std::string before, needle, after; // the text; needle: the part of it that the answer is in
    std::string question;              // ends where the answer begins
    std::vector<std::string> answers;
};

// Numbers of a stream of their own for every (seed, suite, case).
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
    uint32_t n_free; // tokens that the model may write to name all answers, in any order; 0: the
                     // next ones must be the one answer
    EvalCase (*make)(Dice& dice, uint32_t size); // the text grows with size, which is at least 1
};

const std::vector<EvalSuite>& eval_suites();

} // namespace ks
