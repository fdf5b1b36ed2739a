#include "runtime/text/pretokenizer.h"

#include "runtime/text/word_rules.h"

namespace ks
{

using namespace rules;

// clang-format off
static constexpr Range kCjk[] = {{0x3040, 0x30ff}, {0x4e00, 0x9fa5}};
static constexpr Range kCjkAndMore[] = {{0x800, 0x9fa5}, {0xac00, 0xd7ff}};
static constexpr Range kAsian[] = {
    {0xe40, 0xeff}, {0x1000, 0x109f}, {0x1100, 0x11ff}, {0x1780, 0x17ff}, {0x2f00, 0x2fdf},
    {0x3040, 0x30ff}, {0x3400, 0x4dbf}, {0x4e00, 0xfaff}, {0xff65, 0xff9f}};
static constexpr Range kHangul[] = {{0x3131, 0x318e}, {0xac00, 0xd7a3}};
static constexpr Range kBopomofo[] = {{0x3105, 0x312f}};
static constexpr Range kCjkPunctuation[] = {
    {0x2014, 0x2014}, {0x2018, 0x2019}, {0x201c, 0x201d}, {0x2026, 0x2026}, {0x3001, 0x303f},
    {0xfe30, 0xfe4f}, {0xff01, 0xff01}, {0xff0c, 0xff0c}, {0xff1a, 0xff1b}};
static constexpr Range kMarks[] = {
    {0x21, 0x2f}, {0x3a, 0x7e}, {0x2018, 0x201f}, {0x3000, 0x3002}, {0xff01, 0xff0f},
    {0xff1a, 0xff5e}};
static constexpr Range kStops[] = {
    {'!', '!'}, {'(', ')'}, {',', ','}, {'.', '.'}, {'?', '?'}, {'|', '|'}, {0x60c, 0x60c},
    {0x6d4, 0x6d4}, {0x964, 0x964}, {0x2026, 0x2026}, {0x3001, 0x3002}, {0xff0c, 0xff0c}};
// Letters with case that deepseek-llm's list lacks.
static constexpr Range kUnlisted[] = {
    {0x560, 0x588}, {0x10c7, 0x10ff}, {0x1c80, 0x1c88}, {0x2d00, 0x2d2d}, {0xa790, 0xa7fa},
    {0xab30, 0xab68}, {0x10570, 0x105bc}, {0x16e40, 0x16e7f}, {0x1d400, 0x1df1e}};

static constexpr unsigned kAny = ~0u, kCaseFree = kCaseless | kHan | kMark,
                          kMarkOrSymbol = kPunctuation | kSymbol;

// Passes: lists of alternatives.
static constexpr Rule
    kNumber1[] = {run<kNumber, 1>, nullptr},
    kNumber3[] = {run<kNumber, 3>, nullptr},
    kNumbers[] = {run<kNumber>, nullptr},
    kThreeDigits[] = {three_digits, nullptr},
    kRightNumbers[] = {digits_from_right<kNumber>, nullptr},
    kRightNumbersBeforeBorder[] = {digits_from_right<kDigit, true>, nullptr},
    kRightDigits[] = {digits_from_right<kDigit>, nullptr},
    kPunctuations[] = {punctuation<false>, nullptr},
    kFalconPunctuations[] = {punctuation<true>, nullptr},
    kLines[] = {line, nullptr},
    kNewline[] = {one_newline, nullptr},
    kLastSpaces[] = {last_spaces, nullptr},
    kCjkRuns[] = {in_ranges<kCjk>, nullptr},
    kCjkAndMoreRuns[] = {in_ranges<kCjkAndMore>, nullptr},
    kAsianRuns[] = {in_ranges<kAsian>, nullptr},
    kYoutuRuns[] = {in_ranges<kHangul>, in_ranges<kCjkPunctuation>, in_ranges<kBopomofo>,
                    in_ranges<kCjk>, nullptr},
    kGpt2[] = {contraction<false>, spaced<kLetter>, spaced<kNumber>, spaced<kNotWord>, spaces,
               nullptr},
    kLlama3[] = {contraction<true>, word<>, run<kNumber, 3>, spaced<kNotWord, newlines_tail>,
                 newlines, spaces, nullptr},
    kQwen2[] = {contraction<true>, word<>, run<kNumber, 1>, spaced<kNotWord, newlines_tail>,
                newlines, spaces, nullptr},
    kQwen35[] = {contraction<true>, word<kLetter | kMark>, run<kNumber, 1>,
                 spaced<kMarkOrSymbol | kOther, newlines_tail>, newlines, spaces, nullptr},
    kMiniCpm5[] = {contraction<true>, word<>, run<kNumber>, spaced<kNotWord, newlines_tail>,
                   newlines, spaces, nullptr},
    kSeedCoder[] = {contraction<true>, word<>, run<kNumber, 1>, spaced<kNotWord>, newlines, spaces,
                    nullptr},
    kUfakzeka[] = {word<>, run<kNumber, 1>, spaced<kNotWord, newlines_tail>, newlines, spaces,
                   nullptr},
    kJais2[] = {contraction<true>, word<>, run<kNumber, 3>, spaced<kNotWord, newlines_tail>,
                newlines, halved_spaces, nullptr},
    kExaoneMoe[] = {contraction<true>, phrase, run<kNumber, 1>, spaced<kNotWord, one_slash_tail>,
                    newlines, spaces, nullptr},
    kGpt4o[] = {cased_word<kCaseFree, true>, run<kNumber, 3>, spaced<kNotWord, slashes_tail>,
                newlines, spaces, nullptr},
    kTekken[] = {cased_word<kCaseFree, false>, run<kNumber, 1>, spaced<kNotWord, slashes_tail>,
                 newlines, spaces, nullptr},
    kYoutu[] = {cased_word<kCaseFree, true>, run<kNumber, 1>, spaced<kNotWord, slashes_tail>,
                newlines, spaces, nullptr},
    kKimi[] = {run<kHan>, cased_word<kCaseless | kMark, true>, run<kNumber, 3>,
               spaced<kNotWord, newlines_tail>, newlines, spaces, nullptr},
    kDeepSeek3[] = {marked_letters, word<kLetter | kMark, kLetter | kMarkOrSymbol>,
                    spaced<kMarkOrSymbol, newlines_tail>, newlines, spaces, nullptr},
    kSpark[] = {marked_letters, word<kLetter | kMark, kLetter | kMarkOrSymbol>,
                spaced<kMarkOrSymbol>, one_newline, spaces, nullptr},
    kDeepSeekLetters[] = {after_space<kUpper | kLower, kUnlisted>, nullptr},
    kDeepSeekMarks[] = {after_space<kAny, kMarks, true>, nullptr},
    kCoderLetters[] = {after_space<kLetter>, nullptr},
    kCoderMarks[] = {after_space<kPunctuation>, nullptr},
    kBloom[] = {not_in_ranges<kStops>, nullptr};

static constexpr PreTokenizer kPreTokenizers[] = {
    {"default", "BPE (default)", {kPunctuations, kGpt2, kNumbers, kThreeDigits}},
    {"gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum exaone4",
     "BPE (gpt-2)", {kGpt2}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", "BPE (smollm)",
     {kNumber1, kGpt2}},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", "BPE (llama-3)",
     {kLlama3}, true, true},
    {"glm4 glm5", "BPE (llama-3)", {kLlama3}, true},
    {"dbrx smaug-bpe chatglm-bpe", "BPE (llama-3)", {kLlama3}},
    {"qwen2 deepseek-r1-qwen megrez kormo f2llmv2 stablelm2 hunyuan solar-open grok-2 bailingmoe "
     "bailingmoe2 llada-moe", "BPE (qwen2)", {kQwen2}},
    {"qwen35", "BPE (qwen3.5)", {kQwen35}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", "BPE (gpt-4o)", {kGpt4o}},
    {"tekken", "BPE (tekken)", {kTekken}, true, true},
    {"minicpm5", "BPE (minicpm5)", {kNumber3, kMiniCpm5}, true},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", "BPE (deepseek-v3)",
     {kNumber3, kCjkRuns, kDeepSeek3}},
    {"spark2_5", "BPE (spark2.5)", {kNumber3, kCjkRuns, kSpark, kNumber1}},
    {"seed-coder", "BPE (seed-coder)", {kSeedCoder}},
    {"jais-2", "BPE (jais-2)", {kJais2}},
    {"tiny_aya cohere2moe", "BPE (tiny-aya)", {kRightNumbersBeforeBorder, kGpt4o}},
    {"afmoe", "BPE (afmoe)", {kRightNumbers, kAsianRuns, kDeepSeek3}},
    {"superbpe", "BPE (superbpe)", {kNumbers, kRightDigits}},
    {"exaone-moe", "BPE (exaone-moe)", {kExaoneMoe}},
    {"laguna", "BPE (laguna)", {kLines, kQwen2}},
    {"youtu", "BPE (youtu)", {kYoutuRuns, kYoutu}, true},
    {"kimi-k2", "BPE (kimi-k2)", {kKimi}},
    {"ufakzeka", "BPE (ufakzeka)", {kUfakzeka}},
    {"falcon", "BPE (falcon)", {kFalconPunctuations, kGpt2, kThreeDigits}},
    {"deepseek-llm", "BPE (deepseek-llm)",
     {kNewline, kDeepSeekLetters, kDeepSeekMarks, kLastSpaces, kCjkAndMoreRuns, kNumbers}},
    {"deepseek-coder", "BPE (deepseek-coder)",
     {kNewline, kCoderLetters, kCoderMarks, kCjkAndMoreRuns, kNumber1}},
    {"bloom poro-chat gpt3-finnish", "BPE (bloom)", {kBloom}},
    {"viking", "BPE (viking)", {kBloom, kNumber1}},
    {"gemma4", "BPE (gemma4)", {kLines}, false, true, true},
};
// clang-format on

// Whether the list, separated by spaces, has the name.
static bool has_name(std::string_view names, std::string_view name)
{
    size_t end = 0;
    for (size_t at = 0; at < names.size(); at = end + 1) {
        end = std::min(names.find(' ', at), names.size());
        if (names.substr(at, end - at) == name) return true;
    }
    return false;
}

const PreTokenizer* find_pre_tokenizer(std::string_view name)
{
    for (const PreTokenizer& row : kPreTokenizers)
        if (has_name(row.names, name.empty() ? "default" : name)) return &row;
    return nullptr;
}

const char* Scanner::skip(const char* from, unsigned kinds, unsigned most) const
{
    for (Char next; most > 0 && (next = char_at(from, end)).kind & kinds; most--)
        from += next.bytes;
    return from;
}

void Scanner::measure_spaces()
{
    if (at < spaces_end) return;
    spaces_end = last_space = newlines_end = at;
    for (Char next = c; next.kind == kSpace; next = char_at(spaces_end, end)) {
        last_space = spaces_end;
        spaces_end += next.bytes;
        if (is_newline(last_space)) newlines_end = spaces_end;
    }
}

// Advances over the next match, or over the text before it.
static void advance(Scanner& s, const Rule* rules)
{
    const char* begin = s.at;
    while (s.at < s.end && !s.match_end) {
        s.c = char_at(s.at, s.end);
        size_t n = 0;
        for (const Rule* rule = rules; *rule && n == 0; rule++) n = (*rule)(s);
        if (n)
            s.match_end = s.at + n;
        else
            s.at += s.c.bytes;
    }
    if (s.at > begin) return;
    s.at = s.match_end;
    s.match_end = nullptr;
}

WordSplitter::WordSplitter(const PreTokenizer& pre, std::string_view text) : m_pre(pre)
{
    while (pre.passes[m_n_passes]) m_ends[++m_n_passes] = text.data();
    m_ends[0] = text.data() + text.size();
}

std::string_view WordSplitter::next()
{
    const char* begin = m_ends[m_n_passes];
    if (begin == m_ends[0]) return {};
    for (int i = 0; i < m_n_passes; i++) {
        if (m_ends[i + 1] != begin) continue; // still in a piece of this pass
        Scanner& s = m_scanners[i];
        if (s.end != m_ends[i]) {
            s = Scanner();
            s.at = begin;
            s.end = m_ends[i];
        }
        advance(s, m_pre.passes[i]);
        m_ends[i + 1] = s.at;
    }
    return {begin, size_t(m_ends[m_n_passes] - begin)};
}

} // namespace ks
