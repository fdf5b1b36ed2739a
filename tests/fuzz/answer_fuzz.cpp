// Any text as an answer in any format: what comes out does not depend on the pieces, calls are
// valid, and nothing is taken back.
#include "runtime/chat/answer.h"
#include "tests/fuzz/fuzz.h"

#include <algorithm>

using namespace ks;

namespace
{

// Texts that count as tokens of a vocabulary.
bool is_token(std::string_view text)
{
    return text.size() > 2 && text.size() < 40 && (text[0] == '<' || text[0] == '[') &&
           text.find_first_of(">]") == text.size() - 1;
}

struct Parts {
    std::string text[2]; // content and reasoning
    std::string calls;
};

void add(const AnswerEvents& events, Parts* parts)
{
    for (const AnswerEvent& event : events) {
        if (event.kind != AnswerEvent::Kind::call) {
            parts->text[size_t(event.kind)] += event.text;
            continue;
        }
        const Result<jinja::Value> arguments = jinja::parse_json(event.text);
        KS_CHECK(arguments.ok() && arguments.value().is(jinja::Kind::dict) && !event.id.empty() &&
                     !event.name.empty(),
                 "call %s: %s", event.name.c_str(), event.text.c_str());
        parts->calls += event.name + event.text + event.id + "\n";
        g_accepted++;
    }
}

// The answer in pieces of n bytes, its tokens as pieces of their own.
Parts parse(const AnswerFormat& format, const AnswerOptions& options, std::string_view text,
            size_t n)
{
    AnswerParser parser(format, options);
    Parts parts;
    const auto feed = [&](std::string_view piece, bool token) {
        AnswerEvents events;
        parser.feed(piece, token, &events);
        add(events, &parts);
    };
    while (!text.empty()) {
        const size_t begin = options.is_token ? text.find_first_of("<[") : text.npos,
                     end = begin ? text.npos : text.find_first_of(">]");
        const bool token = end != text.npos && is_token(text.substr(0, end + 1));
        const size_t bytes = token ? end + 1 : std::min(n, begin ? begin : size_t(1));
        feed(text.substr(0, bytes), token);
        text.remove_prefix(std::min(bytes, text.size()));
    }
    AnswerEvents events;
    parser.finish(&events);
    add(events, &parts);
    const Result<jinja::Value> message = parser.message();
    KS_CHECK(message.ok(), "%s", message.status().message().c_str());
    KS_CHECK(parser.has_calls() == !parts.calls.empty(), "calls: %s", parts.calls.c_str());
    return parts;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    static const jinja::Value tools =
        jinja::parse_json(
            R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string"}}}}])")
            .value();
    const Deadline deadline;
    Input in = input_of(data, size);
    const uint8_t choice = in.byte();
    const AnswerFormat& format = find_answer_format(in.text());
    AnswerOptions options{in.text(), choice & 1 ? &tools : nullptr};
    if (choice & 2) options.is_token = is_token;
    const Parts whole = parse(format, options, in.rest, size + 1),
                pieces = parse(format, options, in.rest, 1 + (choice >> 2) % 8);
    for (int i : {0, 1})
        KS_CHECK(whole.text[i] == pieces.text[i], "%s %d '%s': '%s', in pieces '%s'", format.name,
                 choice,
                 (printable(options.prompt_tail, 200) + "' '" + printable(in.rest, 900)).c_str(),
                 printable(whole.text[i], 300).c_str(), printable(pieces.text[i], 300).c_str());
    KS_CHECK(whole.calls == pieces.calls, "'%s' in pieces '%s'", whole.calls.c_str(),
             pieces.calls.c_str());
    // Invalid bytes may become three.
    KS_CHECK(whole.text[0].size() + whole.text[1].size() <= 3 * in.rest.size(), "%zu of %zu bytes",
             whole.text[0].size() + whole.text[1].size(), in.rest.size());
    return 0;
}

std::vector<std::string> fuzz_seeds()
{
    const char* const texts[][3] = {
        {"<|channel|> <|call|>", "<|start|>assistant",
         "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.f <|constrain|>json<|message|>{\"s\": \"5\"}<|call|>"},
        {"<|channel>", "",
         "<|channel>thought\nHm.<channel|>Wait.<|tool_call>call:f{n:[5,None],"
         "s:<|\"|>5<|\"|>}<tool_call|>"},
        {"<tool_call>", "<think>\n",
         "Hm.\n</think>\n\nWait.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"5\"}}\n"
         "</tool_call>"},
        {"<function=", "",
         "<tool_call>\n<function=f>\n<parameter=s>\n5\n</parameter>\n<parameter=n>"
         "\n{'a': [1, None]}\n</parameter>\n</function>\n</tool_call>"},
        {"<arg_key", "",
         "<think></think>\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>5"
         "</arg_value>\n</tool_call>"},
        {"]<]minimax[>[", "",
         "</mm:think>]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]"
         "minimax[>[<n>]<]minimax[>[<item>1]<]minimax[>[</item>]<]minimax[>["
         "</n>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>"},
        {"[TOOL_CALLS]", "",
         "[THINK]a[/THINK]b[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"n\": 1}"
         "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]"},
        {"List of tools: ", "",
         "<|tool_call_start|>[f(s='it's', n=[1, 'a']), f()]<|tool_call_end|>"},
        {"\"parameters\" ipython", "", "{\"name\": \"f\", \"parameters\": {\"n\": 1}}"},
        {"<atem:invoke", "<|start|>assistant",
         " to=f<|message|><atem:invoke name=\"f\"><atem:parameter name=\"s\">5</atem:parameter>"
         "</atem:invoke><|eom|>"},
    };
    std::vector<std::string> seeds;
    for (char choice : {'\x05', '\x07'})
        for (const auto& [marks, tail, text] : texts)
            seeds.push_back(choice + std::string(marks) + '\0' + tail + '\0' + text);
    return seeds;
}
