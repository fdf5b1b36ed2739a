// Answers of every format, whole and piece by piece, and answers that go wrong.
#include "tests/chat/answer_bed.h"

using namespace ks;

namespace
{

const char kTools[] = R"([
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object",
     "properties": {"note": {"type": "string"}, "n": {"type": "integer"},
                    "tag": {"type": ["string", "null"]}}}}},
    {"name": "list_files", "parameters": {}}])";

struct Example {
    const char* format;
    const char* marks; // in a template
    const char* prompt_tail;
    const char* text;
    Parts wanted;
};

const Parts kBoth = {"Hm.", "Wait.", {R"(add{"n": 5, "note": "5"})"}};
const Parts kTwo = {"Hm.", "Wait.", {R"(add{"n": 5, "note": "5"})", "list_files{}"}};
const Parts kCalls = {"", "Wait.", {R"(add{"n": 5, "note": "5"})", "list_files{}"}};

// clang-format off
const Example kExamples[] = {
    {"harmony", "<|channel|> <|call|>", "<|start|>assistant",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
     "Wait.<|end|><|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json"
     "<|message|>{\"note\": \"5\", \"n\": 5}", kBoth},
    {"harmony", "<|channel|> <|call|>", "<|start|>assistant",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final "
     "<|constrain|>json<|message|>{\"n\": 5}", {"Hm.", "{\"n\": 5}", {}}},
    {"muse", "<atem:invoke", "<|start|>assistant",
     " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Wait.<|eom|><|start|>"
     "assistant to=add<|message|><atem:function_calls>\n<atem:invoke name=\"add\">\n"
     "<atem:parameter name=\"note\">5</atem:parameter>\n<atem:parameter name=\"n\">5"
     "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>", kBoth},
    {"functionary-3.2", ">>>all", "<|end_header_id|>\n\n>>>",
     "all\nWait.>>>add\n{\"note\": \"5\", \"n\": 5}", {"", "Wait.", {kBoth.calls}}},
    {"gemma-4", "<|channel>", "<|turn>model\n",
     "<|channel>thought\nHm.\n<channel|>Wait.<|tool_call>call:add{n:5,note:<|\"|>5<|\"|>}"
     "<tool_call|><|tool_call>call:list_files{}<tool_call|>", kTwo},
    {"dsml", "｜DSML｜", "<think>",
     "Hm.</think>Wait.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"add\">\n"
     "<｜DSML｜parameter name=\"note\" string=\"true\">5</｜DSML｜parameter>\n"
     "<｜DSML｜parameter name=\"n\" string=\"false\">5</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
     "<｜DSML｜invoke name=\"list_files\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", kTwo},
    {"deepseek", "<｜tool▁calls▁begin｜>", "<think>\n",
     "Hm.\n</think>\n\nWait.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>"
     "{\"note\": \"5\", \"n\": 5}<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
     "list_files\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", kTwo},
    {"kimi-k2", "<|tool_calls_section_begin|>", "",
     "<think>Hm.</think>Wait.<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0"
     "<|tool_call_argument_begin|>{\"note\": \"5\", \"n\": 5}<|tool_call_end|><|tool_call_begin|>"
     "functions.list_files:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>", kTwo},
    {"kimi-k3", "<|open|>", "<|open|>think<|sep|>",
     "Hm.<|close|>think<|sep|><|open|>response<|sep|>Wait.<|close|>response<|sep|><|open|>tools"
     "<|sep|><|open|>call tool=\"add\" index=\"1\"<|sep|><|open|>argument key=\"note\" "
     "type=\"string\"<|sep|>5<|close|>argument<|sep|><|open|>argument key=\"n\" type=\"number\""
     "<|sep|>5<|close|>argument<|sep|><|close|>call<|sep|><|open|>call tool=\"list_files\" "
     "index=\"2\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>", kTwo},
    {"minimax-m3", "]<]minimax[>[", "",
     "<mm:think>Hm.</mm:think>Wait.]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"add\">"
     "]<]minimax[>[<note>5]<]minimax[>[</note>]<]minimax[>[<n>5]<]minimax[>[</n>]<]minimax[>["
     "</invoke>\n]<]minimax[>[<invoke name=\"list_files\">]<]minimax[>[</invoke>\n]<]minimax[>["
     "</tool_call>", kTwo},
    {"minimax-m3", "]<]minimax[>[", "",
     "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"add\">]<]minimax[>[<n>]<]minimax[>["
     "<item>]<]minimax[>[<n>a</n>]<]minimax[>[</n>]<]minimax[>[</item>]<]minimax[>[<item>]<]"
     "minimax[>[<item>7]<]minimax[>[</item>]<]minimax[>[</item>]<]minimax[>[</n>]<]minimax[>["
     "</invoke>]<]minimax[>[</tool_call>", {"", "", {R"(add{"n": [{"n": "a</n>"}, [7]]})"}}},
    {"minimax-m2", "<minimax:tool_call>", "<think>\n",
     "Hm.\n</think>\n\nWait.\n<minimax:tool_call>\n<invoke name=\"add\">\n<parameter name=\"note\">"
     "5</parameter>\n<parameter name=\"n\">5</parameter>\n</invoke>\n<invoke name=\"list_files\">\n"
     "</invoke>\n</minimax:tool_call>", kTwo},
    {"hy3", "<think{}>", "<think:opensource>",
     "Hm.</think:opensource>Wait.<tool_calls:opensource>\n<tool_call:opensource>add"
     "<tool_sep:opensource>\n<arg_key:opensource>note</arg_key:opensource>\n<arg_value:opensource>"
     "5</arg_value:opensource>\n<arg_key:opensource>n</arg_key:opensource>\n<arg_value:opensource>5"
     "</arg_value:opensource>\n</tool_call:opensource>\n<tool_call:opensource>list_files"
     "<tool_sep:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>", kTwo},
    {"glm", "<arg_key>", "<|assistant|>",
     "\n<think>Hm.</think>\nWait.\n<tool_call>add\n<arg_key>note</arg_key>\n<arg_value>5"
     "</arg_value>\n<arg_key>n</arg_key>\n<arg_value>5</arg_value>\n</tool_call><tool_call>"
     "list_files</tool_call>", kTwo},
    {"seed", "<seed:tool_call>", "",
     "<seed:think>Hm.</seed:think>\nWait.\n\n<seed:tool_call>\n<function=add>\n<parameter=note>5"
     "</parameter>\n<parameter=n>5</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n"
     "<function=list_files>\n</function>\n</seed:tool_call>", kTwo},
    {"minicpm5", "<function name=", "<think>\n",
     "Hm.\n</think>\n\nWait.\n<function name=\"add\"><param name=\"note\"><![CDATA[5]]></param>"
     "<param name=\"n\">5</param></function><function name=\"list_files\"></function>", kTwo},
    {"functionary-3.1", "<function= start_tag", "",
     "Wait.<function=add>{\"note\": \"5\", \"n\": 5}</function><function=list_files>{}</function>",
     kCalls},
    {"xml", "<function=", "<think>\n",
     "Hm.\n</think>\n\nWait.\n\n<tool_call>\n<function=add>\n<parameter=note>\n5\n</parameter>\n"
     "<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>\n<function=list_files>\n"
     "</function>\n</tool_call>", kTwo},
    {"solar", "<|tool_call:begin|>", "<|begin|>assistant",
     "<|think|>Hm.<|end|><|begin|>assistant<|content|>Wait.<|end|><|begin|>assistant<|tool_calls|>"
     "<|tool_call:begin|>abcdefghij<|tool_call:name|>add<|tool_call:args|>{\"note\": \"5\", "
     "\"n\": 5}<|tool_call:end|><|tool_call:begin|>1<|tool_call:name|>list_files<|tool_call:args|>"
     "{}<|tool_call:end|>", kTwo},
    {"mistral", "[TOOL_CALLS]", "",
     "[THINK]Hm.[/THINK]Wait.[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{\"note\": \"5\", \"n\": 5}"
     "[TOOL_CALLS]list_files[ARGS]{}", kTwo},
    {"mistral", "[TOOL_CALLS]", "",
     "Wait.[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"note\": \"5\", \"n\": 5}}, "
     "{\"name\": "
     "\"list_files\", \"arguments\": {}, \"id\": \"abc\"}]", kCalls},
    {"lfm2", "List of tools: ", "",
     "<think>Hm.</think>Wait.<|tool_call_start|>[add(note='5', n=5), list_files()]"
     "<|tool_call_end|>", kTwo},
    {"cohere", "<|START_ACTION|>", "<|START_THINKING|>",
     "Hm.<|END_THINKING|><|START_RESPONSE|>Wait.<|END_RESPONSE|><|START_ACTION|>[\n    {"
     "\"tool_call_id\": \"0\", \"tool_name\": \"add\", \"parameters\": {\"note\": \"5\", \"n\": "
     "5}},"
     "\n    {\"tool_call_id\": \"1\", \"tool_name\": \"list_files\", \"parameters\": {}}\n]"
     "<|END_ACTION|>", kTwo},
    {"apertus", "<|tools_prefix|>", "<|assistant_start|>",
     "<|inner_prefix|>Hm.<|inner_suffix|>Wait.<|tools_prefix|>[{\"add\": {\"note\": \"5\", "
     "\"n\": 5}"
     "}, {\"list_files\": {}}]<|tools_suffix|>", kTwo},
    {"gigachat", "function call <|message_sep|>", "assistant<|role_sep|>\n",
     "Wait.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"add\", \"arguments\": {"
     "\"note\": \"5\", \"n\": 5}}<|message_sep|>\n\n", {"", "Wait.", {kBoth.calls}}},
    {"gigachat", "function call <|message_sep|>", "assistant<|role_sep|>\n",
     "Wait.<|function_call|>{\"name\": \"add\", \"arguments\": {\"note\": \"5\", \"n\": 5}}"
     "<|message_sep|>\n\n", {"", "Wait.", {kBoth.calls}}},
    {"nemotron-2", "<TOOLCALL>", "<think>\n",
     "Hm.\n</think>\n\nWait.\n<TOOLCALL>[{\"name\": \"add\", \"arguments\": {\"note\": \"5\", "
     "\"n\": 5}}, {\"name\": \"list_files\", \"arguments\": {}}]</TOOLCALL>", kTwo},
    {"granite-3", "<|tool_call|>", "",
     "<think>Hm.</think><response>Wait.</response><|tool_call|>[{\"name\": \"add\", \"arguments\": "
     "{\"note\": \"5\", \"n\": 5}}]", kBoth},
    {"apriel", "[BEGIN FINAL RESPONSE]", "Here are my reasoning steps:\n",
     "Hm.\n[BEGIN FINAL RESPONSE]\nWait.\n<tool_calls>[{\"name\": \"add\", \"arguments\": "
     "{\"note\":"
     " \"5\", \"n\": 5}}]</tool_calls>\n[END FINAL RESPONSE]", kBoth},
    {"minimax-m1", "<tool_calls>", "",
     "Wait.<tool_calls>\n{\"name\": \"add\", \"arguments\": {\"note\": \"5\", \"n\": "
     "5}}\n{\"name\":"
     " \"list_files\", \"arguments\": {}}\n</tool_calls>", kCalls},
    {"hermes", "<tool_call>", "<|im_start|>assistant\n",
     "<think>\nHm.\n</think>\n\nWait.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"note\": "
     "\"5\", \"n\": 5}}\n</tool_call>\n<tool_call>\n{\"name\": \"list_files\", \"arguments\": "
     "\"{}\""
     "}\n</tool_call>", kTwo},
    {"llama-3", "\\\"parameters\\\" ipython", "",
     "{\"name\": \"add\", \"parameters\": {\"note\": \"5\", \"n\": 5}}", {"", "", {kBoth.calls}}},
    {"llama-3", "\\\"parameters\\\" ipython", "",
     "<|python_tag|>list_files.call(path=\"a, b\", deep=True)",
     {"", "", {R"(list_files{"deep": true, "path": "a, b"})"}}},
    {"thought", "</think>", "",
     "<think>Hm.</think>Wait.<tool_call>{\"name\": \"add\", \"arguments\": {\"note\": \"5\", "
     "\"n\": "
     "5}}</tool_call>", kBoth},
    {"content", "", "", " <think>Hm.</think> \n", {"", "<think>Hm.</think>", {}}},
};
// clang-format on

Parts parse(const char* format_marks, std::string_view text, std::string_view prompt_tail = "",
            std::set<std::string> tokens = {})
{
    static const jinja::Value tools = json(kTools);
    const Answer answer{&find_answer_format(format_marks), std::string(prompt_tail), &tools,
                        std::move(tokens)};
    const Parts whole = answer.parse(text, text.size());
    CHECK(shown(answer.parse(text, 1)) == shown(whole));
    return whole;
}

constexpr char kHermes[] = "<tool_call>", kXml[] = "<function=", kGlm[] = "<arg_key>";

} // namespace

TEST_CASE("answer: every format")
{
    const jinja::Value tools = json(kTools);
    std::set<std::string> formats;
    for (const Example& example : kExamples) {
        INFO(example.format << ": " << example.text);
        Answer answer{&find_answer_format(example.marks), example.prompt_tail, &tools};
        CHECK(answer.format->name == std::string(example.format));
        formats.insert(answer.format->name);
        for (bool has_tokens : {false, true}) {
            if (has_tokens) answer.tokens = tokens_in(answer.prompt_tail + example.text);
            for (size_t n : {1, 5, 10000}) {
                std::vector<Parts> early;
                CHECK(shown(answer.parse(example.text, n, &early)) == shown(example.wanted));
                for (const Parts& parts : early)
                    CHECK_MESSAGE(is_prefix(parts, example.wanted), shown(parts));
            }
        }
    }
    CHECK(formats.size() == 30);
}

TEST_CASE("answer: markers in letters are text where the vocabulary has them as tokens")
{
    const std::set<std::string> tokens = {"<think>", "</think>", "<tool_call>", "</tool_call>"};
    const Answer answer{&find_answer_format(kHermes), "", nullptr, tokens};
    AnswerParser parser = answer.parser();
    AnswerEvents events;
    const auto say = [&](std::string_view text, bool is_token) {
        parser.feed(text, is_token, &events);
    };
    say("<think>", true);
    say("no </thi", false), say("nk> yet", false);
    say("</think>", true);
    say("a <tool", false), say("_call> is", false);
    say("<tool_call>", true);
    say("{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call>\"}}", false);
    say("</tool_call>", true);
    say("<|other|>", true), say("\xfe<think>", false);
    parser.finish(&events);
    Parts parts;
    add(events, &parts);
    CHECK(shown(parts) == shown({"no </think> yet",
                                 "a <tool_call> is<|other|>\xef\xbf\xbd<think>",
                                 {"f{\"s\": \"</tool_call>\"}"}}));
    CHECK(parser.has_calls());
}

TEST_CASE("answer: thoughts")
{
    const auto hermes = [](std::string_view text, const char* tail = "") {
        return shown(parse(kHermes, text, tail));
    };
    CHECK(hermes("never ends\n", "<think>\n") == shown({"never ends", "", {}}));
    CHECK(hermes("<tool_call>{}</tool_call>", "<think>") ==
          shown({"<tool_call>{}</tool_call>", "", {}}));
    CHECK(hermes("<think>a\n\n b\n</think>\n<think>\nc</think>\n d \n e ") ==
          shown({"a\n\n b\nc", "d \n e", {}}));
    CHECK(hermes("</think>x", "<think>\n") == shown({"", "x", {}}));
    CHECK(hermes("</think>x", "<think>\n\n</think>") == shown({"", "x", {}}));
    CHECK(hermes("say <think> and </think>") == shown({"", "say <think> and </think>", {}}));
    CHECK(hermes("x <thin") == shown({"", "x <thin", {}}));
    // As tokens they are no words.
    const std::set<std::string> tokens = {"<think>", "</think>"};
    CHECK(parse(kHermes, "a <think>b</think>c</think>", "", tokens) == Parts{"b", "a c", {}});
}

TEST_CASE("answer: what is no call is content")
{
    for (const char* text : {"<tool_call>\n{\"name\": \"add\", \"arguments\": {\"n\":",
                             "<tool_call>{\"name\": 1}</tool_call>", "<tool_call></tool_call>",
                             "<tool_call>[1]</tool_call>", "<tool_call>x</tool_call> y",
                             "<tool_call>{\"name\": \"a b\", \"arguments\": {}}</tool_call>",
                             "<tool_call>{\"name\": \"a\", \"arguments\": [1]}</tool_call>"})
        CHECK(shown(parse(kHermes, text)) == shown({"", text, {}}));
    for (const char* text : {"<tool_call>add<arg_key>n</arg_key><arg_value>5</arg_value>",
                             "<tool_call>add<arg_key>n</arg_key></tool_call>"})
        CHECK(shown(parse(kGlm, text)) == shown({"", text, {}}));
    for (const char* text : {"{\"name\": \"Ann\", \"age\": 3}", "{\"a\": [", "{}x"})
        CHECK(shown(parse("\"parameters\" ipython", text)) == shown({"", text, {}}));
    // The calls before stay.
    CHECK(shown(parse(kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n"
                               "<tool_call>{\"name\"")) ==
          shown({"", "<tool_call>{\"name\"", {"f{}"}}));
    // An end is no content after a call only.
    CHECK(shown(parse(kXml, "<function=f>\n</function>\n</tool_call> a </tool_call>")) ==
          shown({"", "a </tool_call>", {"f{}"}}));
}

TEST_CASE("answer: JSON of calls")
{
    const auto call = [](const std::string& text) {
        return shown(parse(kHermes, "<tool_call>" + text + "</tool_call>"));
    };
    const std::string one = shown({"", "", {"f{\"a\": [1, 1.0, \"}\"]}"}});
    CHECK(call("{\"name\": \"f\", \"arguments\": {\"a\": [1, 1.0, \"}\"]}}") == one);
    CHECK(call("\n```json\n{\"name\": \"f\", \"arguments\": {\"a\": [1, 1.0, \"}\"]}}\n```\n") ==
          one);
    CHECK(call("{\"type\": \"function\", \"function\": \"f\", \"parameters\": {\"a\": 2, "
               "\"a\": [1, 1.0, \"}\"]}}") == one);
    CHECK(call("{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": [1, 1.0, \\\"}\\\"]}\"}") == one);
}

TEST_CASE("answer: types of arguments")
{
    const auto xml = [](const char* name, const char* key, const std::string& value) {
        const Parts parts = parse(kXml, std::string("<function=") + name + "><parameter=" + key +
                                            ">\n" + value + "\n</parameter></function>");
        return parts.calls.empty() ? "content" : parts.calls[0].substr(std::string(name).size());
    };
    CHECK(xml("add", "note", "007") == "{\"note\": \"007\"}");
    CHECK(xml("add", "note", "\n {\"a\": 1}\n") == "{\"note\": \"\\n {\\\"a\\\": 1}\\n\"}");
    CHECK(xml("add", "tag", "null") == "{\"tag\": \"null\"}");
    CHECK(xml("add", "n", "1.0") == "{\"n\": 1.0}");
    CHECK(xml("add", "n", "None") == "{\"n\": null}");
    CHECK(xml("add", "n", "five") == "{\"n\": \"five\"}");
    CHECK(xml("unknown", "x", "True") == "{\"x\": true}");
    CHECK(xml("unknown", "x", "\"quoted\"") == "{\"x\": \"\\\"quoted\\\"\"}");
    CHECK(xml("unknown", "x", "[see this]") == "{\"x\": \"[see this]\"}");
    CHECK(xml("unknown", "x", "{'k': ['it\\'s', \"a\\n\", None, -1.5]}") ==
          "{\"x\": {\"k\": [\"it's\", \"a\\n\", null, -1.5]}}");
    CHECK(xml("unknown", "x", "{'k': 'open") == "{\"x\": \"{'k': 'open\"}");
}

TEST_CASE("answer: Python's and Gemma's notations")
{
    const auto python = [](const std::string& text) {
        return shown(parse("List of tools: ", "<|tool_call_start|>" + text + "<|tool_call_end|>"));
    };
    CHECK(python("[f(a='it's, well', b=\"x\", c=[1, 'y'], d={\"k\": None}), g.h()]") ==
          shown({"",
                 "",
                 {R"(f{"a": "it's, well", "b": "x", "c": [1, "y"], "d": {"k": null}})", "g.h{}"}}));
    CHECK(python("[{\"name\": \"f\", \"arguments\": {}}]") == shown({"", "", {"f{}"}}));
    for (const char* text : {"[f(", "[f(a=", "[f(a='b", "[f(a)]", "f", "[]", "[f(a=(]"})
        CHECK(parse("List of tools: ", std::string("<|tool_call_start|>") + text).calls.empty());
    const auto gemma = [](const std::string& text) {
        return shown(parse("<|channel>", "<|tool_call>call:f" + text + "<tool_call|>"));
    };
    CHECK(gemma("{a:<|\"|>\"x\\n', }\n<|\"|>,b:{c d:[1,true,None,word]},e:<|\"|><|\"|>}") ==
          shown({"",
                 "",
                 {R"(f{"a": "\"x\\n', }\n", "b": {"c d": [1, true, null, "word"]}, "e": ""})"}}));
    CHECK(gemma("{a:<|\"|>x}") == shown({"", "<|tool_call>call:f{a:<|\"|>x}<tool_call|>", {}}));
}

TEST_CASE("answer: ids")
{
    const auto ids = [](const char* marks, const std::string& text, uint64_t seed) {
        AnswerOptions options;
        options.seed = seed;
        AnswerParser parser(find_answer_format(marks), options);
        AnswerEvents events;
        parser.feed(text, false, &events);
        parser.finish(&events);
        std::vector<std::string> out;
        for (const AnswerEvent& event : events) out.push_back(event.id);
        return out;
    };
    const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    const std::vector<std::string> two = ids(kHermes, call + call, 1);
    REQUIRE(two.size() == 2);
    CHECK(two == ids(kHermes, call + call, 1));
    CHECK(two != ids(kHermes, call + call, 2));
    CHECK(two[0] != two[1]);
    CHECK(two[0].size() == 5 + 24);
    CHECK(starts_with(two[0], "call_"));
    CHECK(ids("[TOOL_CALLS]", "[TOOL_CALLS]f[CALL_ID]abcDEF123[ARGS]{}", 1)[0] == "abcDEF123");
    CHECK(ids("[TOOL_CALLS]", "[TOOL_CALLS]f[CALL_ID]too long an id[ARGS]{}", 1)[0].size() == 9);
    const char kimi[] = "<|tool_calls_section_begin|>";
    const auto kimi_id = [&](const char* id) {
        return ids(kimi,
                   std::string("<|tool_call_begin|>") + id +
                       "<|tool_call_argument_begin|>{}<|tool_call_end|>",
                   1)[0];
    };
    CHECK(kimi_id("functions.f:3") == "functions.f:3");
    CHECK(starts_with(kimi_id("f"), "call_"));
}

TEST_CASE("answer: the message")
{
    AnswerParser parser(find_answer_format("[TOOL_CALLS]"), {});
    AnswerEvents events;
    parser.feed("[THINK]a[/THINK]b[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"x\": 1}", false, &events);
    parser.finish(&events);
    CHECK(
        jinja::write(parser.message().value()) ==
        R"({"role": "assistant", "content": "b", "reasoning_content": "a", "tool_calls": [{"id": )"
        R"("abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]})");
    AnswerParser empty(find_answer_format(""), {});
    CHECK(jinja::write(empty.message().value()) == R"({"role": "assistant", "content": ""})");
}

TEST_CASE("answer: white space before the content, unless the prompt has its begin")
{
    for (const bool goes_on : {false, true}) {
        AnswerOptions options;
        options.goes_on = goes_on;
        AnswerParser parser(find_answer_format("<tool_call>"), options);
        AnswerEvents events;
        parser.feed(" blue", false, &events);
        parser.finish(&events);
        REQUIRE(events.size() == 1);
        CHECK(events[0].text == (goes_on ? " blue" : "blue"));
    }
}

TEST_CASE("answer: whole characters, and texts without end")
{
    const std::string text = "<think>\xe2\x82\xac\xf0\x9f\x98\x80</think>\xc3\xa9\xff\xe2\x82";
    AnswerParser parser(find_answer_format(kHermes), {});
    std::vector<std::string> given;
    for (char c : text) {
        AnswerEvents events;
        parser.feed({&c, 1}, false, &events);
        for (const AnswerEvent& event : events) given.push_back(event.text);
    }
    CHECK(given ==
          std::vector<std::string>{"\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xc3\xa9", "\xff"});

    // A call, a name and nested tags that are too long are content.
    std::string open = "<tool_call>" + std::string(5 << 20, 'x');
    AnswerParser endless(find_answer_format(kHermes), {});
    AnswerEvents events;
    endless.feed(open, false, &events);
    REQUIRE(events.size() == 1);
    CHECK(events[0].text == open);
    CHECK(
        parse("<|channel|> <|call|>", std::string(2000, 'x'), "<|start|>assistant").calls.empty());
    std::string tags = "]<]minimax[>[<invoke name=\"f\">";
    for (int i = 0; i < 20000; i++) tags += "]<]minimax[>[<a>";
    for (int i = 0; i < 20000; i++) tags += "]<]minimax[>[</a>";
    tags += "]<]minimax[>[</invoke>";
    CHECK(parse("]<]minimax[>[", tags).content == tags);
    const std::string deep =
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " + std::string(100000, '[') +
        "</tool_call>";
    CHECK(parse(kHermes, deep).content == deep);
}
