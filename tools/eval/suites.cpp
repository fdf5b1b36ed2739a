#include "tools/eval/suites.h"

#include "runtime/base/hash.h"
#include "runtime/base/rng.h"

#include <algorithm>
#include <functional>

namespace ks
{
namespace
{

using Strings = std::vector<std::string>;

const Strings kNouns = {
    "fox",    "lamp",   "river",  "stone",  "cloud",  "bird",   "chair",  "tree",   "moon",
    "wolf",   "boat",   "rose",   "drum",   "coin",   "bell",   "kite",   "nest",   "leaf",
    "hill",   "gate",   "apple",  "bread",  "candle", "desk",   "engine", "flower", "garden",
    "hammer", "island", "jacket", "kettle", "ladder", "mirror", "needle", "orange", "pencil",
    "queen",  "rabbit", "salt",   "table",  "violin", "window", "yard",   "zebra",  "anchor",
    "basket", "camera", "dragon", "eagle",  "forest", "guitar", "hotel",  "iron",   "jungle",
    "king",   "lemon",  "market", "night",  "ocean",  "paper"};
const Strings kAdjectives = {"quiet",  "green", "torpid", "brave",  "hollow",  "early",
                             "plain",  "rusty", "gentle", "narrow", "silver",  "heavy",
                             "lively", "dusty", "proud",  "sleepy", "bitter",  "golden",
                             "humble", "rapid", "tender", "wooden", "curious", "frozen"};
const Strings kWho = {"The gardener", "A sailor",  "My neighbour", "The old clerk", "The pilot",
                      "A student",    "The baker", "The farmer",   "An artist",     "The doctor"};
const Strings kDid = {"bought", "lost",    "painted", "repaired", "found",
                      "sold",   "carried", "wrapped", "counted",  "hid"};
const Strings kWhat = {"a wooden box", "three apples",  "an old map",   "a blue coat",
                       "the radio",    "a silver ring", "some letters", "a bicycle",
                       "two lamps",    "a small boat"};
const Strings kWhere = {"near the station",  "in the morning",  "before the storm", "at the market",
                        "after lunch",       "by the river",    "in the attic",     "on Sunday",
                        "behind the school", "under the bridge"};
const char kGrass[] =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. ";
const char kTask[] = "There is an important number hidden in this text. Find it and remember it.\n";

std::string sentence(Dice& d)
{
    return d.of(kWho) + " " + d.of(kDid) + " " + d.of(kWhat) + " " + d.of(kWhere) + ". ";
}

std::string sentences(Dice& d, uint32_t n)
{
    std::string text;
    while (n-- > 0) text += sentence(d);
    return text;
}

std::string grass(uint32_t n)
{
    std::string text;
    while (n-- > 0) text += kGrass;
    return text;
}

// n different strings of `from`.
Strings some(Dice& d, Strings from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        std::swap(from[i], from[i + d.below(uint32_t(from.size()) - i)]);
    from.resize(n);
    return from;
}

// n different names of two words.
Strings some_names(Dice& d, uint32_t n)
{
    Strings names;
    const uint32_t n_pairs = uint32_t(kNouns.size() * kAdjectives.size());
    // The stride is a prime, so that every pair comes once before one repeats.
    for (uint32_t i = 0, at = d.below(n_pairs); i < n; i++, at = (at + 787) % n_pairs) {
        std::string name = kAdjectives[at / kNouns.size()] + "-" + kNouns[at % kNouns.size()];
        names.push_back(i < n_pairs ? name : name + std::to_string(i / n_pairs));
    }
    return names;
}

std::string digits(Dice& d, uint32_t n)
{
    std::string text(1, char('1' + d.below(9)));
    while (text.size() < n) text += char('0' + d.below(10));
    return text;
}

// Hides a needle in `size` units of filler, `at` of them before it.
EvalCase hidden(const std::string& needle, const std::string& question, const std::string& answer,
                uint32_t size, uint32_t at, const std::function<std::string(uint32_t)>& filler)
{
    return {kTask + filler(at), needle, filler(size - at), "\n" + question, {answer}};
}

EvalCase passkey(Dice& d, uint32_t size)
{
    const std::string key = digits(d, 5);
    return hidden("The pass key is " + key + ". Remember it. " + key + " is the pass key. ",
                  "What is the pass key? The pass key is ", key, size, d.below(size + 1), grass);
}

// Ten digits with runs of equal digits. A model that loses its place while copying fails.
EvalCase number(Dice& d, uint32_t size)
{
    std::string run;
    while (run.size() < 10)
        run +=
            std::string(std::min<size_t>(10 - run.size(), d.from(1, 4)), char('0' + d.below(10)));
    return hidden("The sequence of digits is " + run + ". Remember it. " + run +
                      " is the sequence of digits. ",
                  "What is the sequence of digits? The sequence of digits is ", run, size,
                  d.below(size + 1), grass);
}

EvalCase needle_at(Dice& d, uint32_t size, uint32_t at)
{
    const std::string key = digits(d, 5);
    return hidden("The special magic number is " + key + ". ",
                  "What is the special magic number? The special magic number is ", key, size, at,
                  [&](uint32_t n) { return sentences(d, n); });
}

EvalCase niah(Dice& d, uint32_t size)
{
    return needle_at(d, size, d.below(size + 1));
}

EvalCase first(Dice& d, uint32_t size)
{
    return needle_at(d, size, 0);
}

EvalCase last(Dice& d, uint32_t size)
{
    return needle_at(d, size, size);
}

// A record of lines; the question is about line `asked`.
EvalCase record(const Strings& lines, uint32_t asked, const std::string& head,
                const std::string& question, const std::string& answer)
{
    EvalCase c{head, lines[asked], "", question, {answer}};
    for (uint32_t i = 0; i < lines.size(); i++)
        if (i != asked) (i < asked ? c.before : c.after) += lines[i];
    return c;
}

// LongEval's line retrieval, with the published wording.
EvalCase lines(Dice& d, uint32_t size)
{
    const Strings names = some_names(d, size);
    Strings values, text;
    for (const std::string& name : names) {
        values.push_back(std::to_string(d.from(1, 50000)));
        text.push_back("line " + name + ": REGISTER_CONTENT is <" + values.back() + ">\n");
    }
    const uint32_t asked = d.below(size);
    return record(text, asked,
                  "Below is a record of lines I want you to remember. Each line begins with 'line "
                  "<line index>' and contains a "
                  "'<REGISTER_CONTENT>' at the end of the line as a numerical value. For each line "
                  "index, memorize its corresponding "
                  "<REGISTER_CONTENT>. At the end of the record, I will ask you to retrieve the "
                  "corresponding <REGISTER_CONTENT> of a "
                  "certain line index. Now the record start:\n\n",
                  "\nNow the record is over. Tell me what is the <REGISTER_CONTENT> in line " +
                      names[asked] + "? I need the number.\nThe <REGISTER_CONTENT> in line " +
                      names[asked] + " is <",
                  values[asked] + ">");
}

// n_codes codes, with n_filler sentences before each. ask_last: the question is about the last one.
EvalCase codes(Dice& d, uint32_t n_codes, uint32_t n_filler, const char* end, bool ask_last)
{
    Strings names = n_codes <= kNouns.size() ? some(d, kNouns, n_codes) : some_names(d, n_codes),
            values, text;
    for (const std::string& name : names) {
        values.push_back(digits(d, 3));
        text.push_back(sentences(d, n_filler) + "The code for " + name + " is " + values.back() +
                       "." + end);
    }
    const uint32_t asked = ask_last ? n_codes - 1 : d.below(n_codes);
    return record(text, asked, "", "\nThe code for " + names[asked] + " is ", values[asked]);
}

EvalCase sparse(Dice& d, uint32_t size)
{
    return codes(d, 6, size, " ", false);
}

EvalCase dense(Dice& d, uint32_t size)
{
    return codes(d, size, 0, "\n", false);
}

EvalCase recency(Dice& d, uint32_t size)
{
    return codes(d, size, 0, "\n", true);
}

std::string uuid(Dice& d)
{
    std::string text;
    for (uint32_t group : {8, 4, 4, 4, 12}) {
        text += text.empty() ? "" : "-";
        for (uint32_t i = 0; i < group; i++) text += "0123456789abcdef"[d.below(16)];
    }
    return text;
}

EvalCase uuids(Dice& d, uint32_t size)
{
    Strings keys, values, text;
    for (uint32_t i = 0; i < size; i++) {
        keys.push_back(uuid(d));
        values.push_back(uuid(d));
        text.push_back("\"" + keys.back() + "\": \"" + values.back() + "\",\n");
    }
    const uint32_t asked = d.below(size);
    return record(
        text, asked,
        "Extract the value corresponding to the specified key in the JSON object below.\n{",
        "}\nKey: \"" + keys[asked] + "\"\nThe value associated with the specified key is \"",
        values[asked]);
}

// RULER's needles: n_keys keys with n_values numbers each, hidden in filler. The question is about
// the first n_queried keys.
EvalCase magic(Dice& d, uint32_t size, uint32_t n_keys, uint32_t n_values, uint32_t n_queried)
{
    const Strings keys = some(d, kNouns, n_keys);
    std::vector<std::pair<uint32_t, std::string>> needles; // where, what
    EvalCase c;
    for (uint32_t k = 0; k < n_keys; k++)
        for (uint32_t v = 0; v < n_values; v++) {
            const std::string value = digits(d, 5);
            needles.push_back({d.below(size + 1), "One of the special magic numbers for " +
                                                      keys[k] + " is: " + value + ". "});
            if (k < n_queried) c.answers.push_back(value);
        }
    const std::string wanted = needles.front().second;
    std::stable_sort(needles.begin(), needles.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    c.before = "Some special magic numbers are hidden within the following text. Make sure to "
               "memorize them.\n";
    std::string* to = &c.before;
    for (uint32_t at = 0, next = 0; at <= size; at++) {
        for (; next < needles.size() && needles[next].first == at; next++) {
            if (needles[next].second != wanted) {
                *to += needles[next].second;
                continue;
            }
            c.needle = wanted;
            to = &c.after;
        }
        if (at < size) *to += sentence(d);
    }
    std::string asked = keys[0];
    for (uint32_t k = 1; k < n_queried; k++)
        asked += (k + 1 < n_queried ? ", " : " and ") + keys[k];
    c.question = c.answers.size() == 1
                     ? "\nThe special magic number for " + asked + " mentioned in the text is: "
                     : "\nWhat are all the special magic numbers for " + asked +
                           " mentioned in the text? The special magic numbers for " + asked +
                           " mentioned in the text are";
    return c;
}

EvalCase multikey(Dice& d, uint32_t size)
{
    return magic(d, size, 4, 1, 1);
}

EvalCase multivalue(Dice& d, uint32_t size)
{
    return magic(d, size, 1, 4, 1);
}

EvalCase multiquery(Dice& d, uint32_t size)
{
    return magic(d, size, 4, 1, 4);
}

// RULER's variable tracking: a number is assigned along a chain of variables.
EvalCase tracking(Dice& d, uint32_t size)
{
    Strings names;
    while (names.size() < 5) {
        std::string name;
        while (name.size() < 5) name += char('A' + d.below(26));
        names.push_back(name);
    }
    const std::string value = digits(d, 5);
    EvalCase c{
        "Memorize and track the chain of variable assignments hidden in the following text.\n", "",
        "",
        "\nQuestion: Find all variables that are assigned the value " + value +
            " in the text above. Answer: they are",
        names};
    for (uint32_t hop = 0; hop < names.size(); hop++) {
        (hop ? c.after : c.before) += grass(size * (hop + 1) / 5 - size * hop / 5);
        (hop ? c.after : c.needle) +=
            "VAR " + names[hop] + " = " + (hop ? "VAR " + names[hop - 1] : value) + " ";
    }
    return c;
}

EvalCase list_of(Dice& d, const Strings& often, uint32_t n_often, const Strings& seldom,
                 uint32_t n_seldom, const std::string& head, const std::string& question)
{
    Strings all;
    for (const std::string& word : often) all.insert(all.end(), n_often, word);
    for (const std::string& word : seldom) all.insert(all.end(), n_seldom, word);
    all = some(d, all, uint32_t(all.size()));
    EvalCase c{head, "", "", question, often};
    for (uint32_t i = 0; i < all.size(); i++)
        c.before += std::to_string(i + 1) + ". " + all[i] + " ";
    return c;
}

EvalCase common_words(Dice& d, uint32_t size)
{
    const Strings words = some(d, kNouns, uint32_t(kNouns.size()));
    const Strings often(words.begin(), words.begin() + 4),
        seldom(words.begin() + 4, words.begin() + 24);
    return list_of(
        d, often, 5 * size, seldom, size,
        "Below is a numbered list of words. In these words, some appear more often than others.\n",
        "\nQuestion: What are the 4 most common words in the above list? Answer: The top 4 words "
        "that appear most often are:");
}

EvalCase frequent_words(Dice& d, uint32_t size)
{
    Strings coded;
    while (coded.size() < 12) {
        std::string word;
        while (word.size() < 6) word += char('a' + d.below(26));
        coded.push_back(word);
    }
    Strings all;
    for (uint32_t i = 0; i < coded.size(); i++)
        all.insert(all.end(), std::max(1u, 12 * size / ((i + 1) * (i + 1))), coded[i]);
    all = some(d, all, uint32_t(all.size()));
    EvalCase c{"Read the following coded text and track the frequency of each coded word.\n",
               "",
               "",
               "\nQuestion: What are the three most frequently appearing words in the above coded "
               "text? Answer: they are",
               {coded.begin(), coded.begin() + 3}};
    for (const std::string& word : all) c.before += word + " ";
    return c;
}

} // namespace

Dice::Dice(uint64_t seed, const std::string& suite, uint32_t nth) : m_seed(seed)
{
    for (char letter : suite) m_seed = fnv_step(m_seed, uint8_t(letter));
    m_seed += uint64_t(nth) << 32;
}

uint32_t Dice::below(uint32_t n)
{
    return uint32_t(random_uniform(m_seed, m_counter++) * n);
}

const std::vector<EvalSuite>& eval_suites()
{
    static const std::vector<EvalSuite> kSuites = {
        {"passkey", "a number, given twice, in text that repeats", 0, passkey},
        {"number", "ten digits with runs in text that repeats", 0, number},
        {"niah", "a number in text that varies", 0, niah},
        {"first", "the same at the beginning of the text", 0, first},
        {"last", "the same at the end of the text", 0, last},
        {"sparse", "one of six codes, with sentences between them", 0, sparse},
        {"dense", "one of as many codes as fit", 0, dense},
        {"recency", "the last of as many codes as fit", 0, recency},
        {"lines", "LongEval's line retrieval", 0, lines},
        {"uuid", "one of many pairs of uuids", 0, uuids},
        {"multikey", "one of four keyed numbers in text that varies", 0, multikey},
        {"multivalue", "all four numbers of one key", 48, multivalue},
        {"multiquery", "the numbers of four keys", 48, multiquery},
        {"vt", "all variables in a chain of assignments", 48, tracking},
        {"cwe", "the four most common words of a list", 32, common_words},
        {"fwe", "the three most frequent coded words", 32, frequent_words},
    };
    return kSuites;
}

} // namespace ks
