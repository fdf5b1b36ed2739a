// Answers of many templates from a folder outside of the tree: KS_ANSWERS has answers.jsonl and the
// templates in corpus/.
#include "tests/chat/answer_bed.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

using namespace ks;

namespace
{

const char kTools[] = R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
     "properties": {"city": {"type": "string"}, "unit": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
     "s": {"type": "string"}, "i": {"type": "integer"}, "x": {"type": "number"},
     "t": {"type": "boolean"}, "n": {"type": "null"}, "e": {"type": "string"},
     "l": {"type": "array", "items": {"type": "string"}}, "d": {"type": "object"}}}}},
    {"type": "function", "function": {"name": "now", "parameters": {"properties": {}}}}])";

// What ends an answer: these tokens never reach a parser.
const char* const kEnds[] = {"<|im_end|>",
                             "<turn|>",
                             "<|tool_response>",
                             "<|return|>",
                             "<|call|>",
                             "<|end_of_msg|>",
                             "[e~[",
                             "<EOS>",
                             "<|eot_id|>",
                             "<|end_of_text|>",
                             "<seed:eos>",
                             "</assistant>",
                             "<end_of_turn>",
                             "<|endoftext|>",
                             "<|eot|>",
                             "<|calls|>",
                             "<sep>",
                             "<|role_end|>",
                             "<|eom_id|>",
                             "<|END_OF_TURN_TOKEN|>",
                             "<end_of_sentence>",
                             "<SPECIAL_12>",
                             "<｜end▁of▁sentence｜>",
                             "<｜hy_eos:opensource｜>"};

std::string read_text(const std::string& path)
{
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
}

struct Vector {
    std::string name, text;
    Answer answer;
    Parts wanted;
};

std::vector<Vector> read_vectors(const std::string& folder, const jinja::Value* tools)
{
    std::vector<Vector> out;
    std::istringstream lines(read_text(folder + "/answers.jsonl"));
    for (std::string line; std::getline(lines, line);) {
        const jinja::Value v = json(line);
        const auto text = [&](const char* key) { return v.find(key)->text().bytes; };
        Vector one{text("template") + " " + text("id"), text("answer"), {}, {}};
        const std::string program = read_text(folder + "/corpus/" + text("template") + ".jinja");
        one.answer = {&find_answer_format(program), text("prompt_tail"), tools};
        one.wanted = parts_of(*v.find("message"));
        if (one.answer.format->name == std::string("minimax-m3")) // it does not write nulls
            for (std::string& call : one.wanted.calls)
                call = std::regex_replace(call, std::regex("\"n\": null, "), "");
        for (const char* end : kEnds)
            one.text.resize(std::min(one.text.find(end), one.text.size()));
        if (one.answer.format->name == std::string("apriel"))
            one.text.resize(std::min(one.text.find("<|end|>"), one.text.size()));
        out.push_back(one);
    }
    return out;
}

} // namespace

TEST_CASE("answers: all of a folder")
{
    const char* folder = getenv("KS_ANSWERS");
    if (!folder) return;
    const jinja::Value tools = json(kTools);
    std::map<std::string, std::pair<int, int>> counts;
    int n_right = 0, n = 0;
    for (const Vector& v : read_vectors(folder, &tools)) {
        INFO(v.name << " as " << v.answer.format->name);
        Parts whole = v.answer.parse(v.text, v.text.size());
        const bool right = whole == v.wanted;
        if (!right)
            MESSAGE(v.text << "\n  wanted " << shown(v.wanted) << "\n  got " << shown(whole));
        n++, n_right += right;
        auto& count = counts[v.answer.format->name];
        count.first += right, count.second++;
        Answer marked = v.answer; // with the markers as tokens
        marked.tokens = tokens_in(v.answer.prompt_tail + v.text);
        for (const Answer& answer : {v.answer, marked}) {
            std::vector<Parts> early;
            CHECK(shown(answer.parse(v.text, 1, &early)) == shown(whole));
            for (const Parts& parts : early) CHECK_MESSAGE(is_prefix(parts, whole), shown(parts));
        }
        for (size_t i = 0; i < v.text.size(); i++) v.answer.parse(v.text.substr(0, i), 7);
    }
    for (const auto& [name, count] : counts)
        MESSAGE(name << ": " << count.first << " of " << count.second);
    MESSAGE(n_right << " of " << n);
    CHECK(n_right >= 500);
}
