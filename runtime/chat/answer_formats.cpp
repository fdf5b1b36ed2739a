#include "runtime/chat/answer.h"

#include <algorithm>

namespace ks
{
namespace
{

#define THINK                                                                                      \
    {                                                                                              \
        "<think>", "</think>"                                                                      \
    }

// The first row whose marks the template has, so special formats come before general ones.
// clang-format off
const AnswerFormat kFormats[] = {
    {"harmony", {"<|channel|>", "<|call|>"}, {nullptr, "<|end|>"}, {}, {"<|call|>", "<|end|>"},
     {"%a"}, nullptr, {"<|end|>"}, {"<|start|>assistant", "<|message|>"}},
    {"muse", {"<atem:invoke"}, {nullptr, "<|eom|>"}, {"<atem:function_calls>", "<atem:invoke "},
     {"</atem:invoke>", "</atem:function_calls>", "<|eom|>"}, {"<atem:invoke name=\"%n\">"},
     "<atem:parameter name=\"%k\">%v</atem:parameter>", {"<|eom|>"},
     {"<|start|>assistant", "<|message|>"}},
    {"functionary-3.2", {">>>all"}, {}, {}, {}, {"%a"}, nullptr, {}, {">>>", "\n"}},
    {"gemma-4", {"<|channel>"}, {"<|channel>thought", "<channel|>"}, {"<|tool_call>"},
     {"<tool_call|>"}, {"<|tool_call>call:%n%g"}, "<|\"|>"},
    {"dsml", {"｜DSML｜"}, THINK, {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "<｜DSML｜invoke "},
     {"</｜DSML｜invoke>", "</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
     {"<｜DSML｜invoke name=\"%n\">"},
     "<｜DSML｜parameter name=\"%k\" string=\"%t\">%v</｜DSML｜parameter>"},
    {"deepseek", {"<｜tool▁calls▁begin｜>"}, THINK, {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
     {"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
     {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>%n%a", "<｜tool▁call▁begin｜>%n<｜tool▁sep｜>%a"}},
    {"kimi-k2", {"<|tool_calls_section_begin|>"}, THINK,
     {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
     {"<|tool_call_end|>", "<|tool_calls_section_end|>"},
     {"<|tool_call_begin|>functions.%n:%f<|tool_call_argument_begin|>%a",
      "<|tool_call_begin|>%n<|tool_call_argument_begin|>%a"}},
    {"kimi-k3", {"<|open|>"}, {"<|open|>think<|sep|>", "<|close|>think<|sep|>"}, {"<|open|>call "},
     {"<|close|>call<|sep|>"}, {"<|open|>call tool=\"%n\" index=\"%x\"<|sep|>"},
     "<|open|>argument key=\"%k\" type=\"%t\"<|sep|>%v<|close|>argument<|sep|>",
     {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|open|>tools<|sep|>",
      "<|close|>tools<|sep|>", "<|close|>message<|sep|>"}},
    {"minimax-m3", {"]<]minimax[>["}, {"<mm:think>", "</mm:think>"},
     {"]<]minimax[>[<tool_call>", "]<]minimax[>[<invoke "},
     {"]<]minimax[>[</invoke>", "]<]minimax[>[</tool_call>"},
     {"]<]minimax[>[<invoke name=\"%n\">"}, "]<]minimax[>["},
    {"minimax-m2", {"<minimax:tool_call>"}, THINK, {"<minimax:tool_call>", "<invoke name="},
     {"</invoke>", "</minimax:tool_call>"}, {"<invoke name=\"%n\">"},
     "<parameter name=\"%k\">%v</parameter>"},
    {"hy3", {"<think{}>"}, {"<think:opensource>", "</think:opensource>"},
     {"<tool_calls:opensource>", "<tool_call:opensource>"},
     {"</tool_call:opensource>", "</tool_calls:opensource>"},
     {"<tool_call:opensource>%n<tool_sep:opensource>"},
     "<arg_key:opensource>%k</arg_key:opensource>%s"
     "<arg_value:opensource>%v</arg_value:opensource>"},
    {"glm", {"<arg_key"}, THINK, {"<tool_call>"}, {"</tool_call>"}, {"<tool_call>%n"},
     "<arg_key>%k</arg_key>%s<arg_value>%v</arg_value>"},
    {"seed", {"<seed:tool_call>"}, {"<seed:think>", "</seed:think>"},
     {"<seed:tool_call>", "<function="}, {"</function>", "</seed:tool_call>"}, {"<function=%n>"},
     "<parameter=%k>%v</parameter>"},
    {"minicpm5", {"<function name="}, THINK, {"<function name="}, {"</function>"},
     {"<function name=\"%n\">"}, "<param name=\"%k\">%v</param>"},
    {"functionary-3.1", {"<function=", "start_tag"}, THINK, {"<function="}, {"</function>"},
     {"<function=%n>%a"}},
    {"xml", {"<function="}, THINK, {"<tool_call>", "<function="}, {"</function>", "</tool_call>"},
     {"<function=%n>"}, "<parameter=%k>%l</parameter>"},
    {"solar", {"<|tool_call:begin|>"}, {"<|think|>", "<|end|>"},
     {"<|tool_calls|>", "<|tool_call:begin|>"}, {"<|tool_call:end|>"},
     {"<|tool_call:begin|>%i<|tool_call:name|>%n<|tool_call:args|>%a"}, nullptr,
     {"<|begin|>assistant", "<|content|>", "<|end|>"}, {}, 10},
    {"mistral", {"[TOOL_CALLS]"}, {"[THINK]", "[/THINK]"}, {"[TOOL_CALLS]"}, {},
     {"[TOOL_CALLS]%j", "[TOOL_CALLS]%n[CALL_ID]%i[ARGS]%a", "[TOOL_CALLS]%n[ARGS]%a",
      "[TOOL_CALLS]%n%a"}, nullptr, {}, {}, 9},
    {"lfm2", {"List of tools: "}, THINK, {"<|tool_call_start|>"}, {"<|tool_call_end|>"},
     {"<|tool_call_start|>%j", "<|tool_call_start|>%p"}},
    {"cohere", {"<|START_ACTION|>"}, {"<|START_THINKING|>", "<|END_THINKING|>"},
     {"<|START_ACTION|>"}, {"<|END_ACTION|>"}, {"<|START_ACTION|>%j"}, nullptr,
     {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}},
    {"apertus", {"<|tools_prefix|>"}, {"<|inner_prefix|>", "<|inner_suffix|>"},
     {"<|tools_prefix|>"}, {"<|tools_suffix|>"}, {"<|tools_prefix|>%j"}},
    {"gigachat", {"function call", "<|message_sep|>"}, {},
     {"<|function_call|>", "<|message_sep|>\n\nfunction call<|role_sep|>\n"}, {"<|message_sep|>"},
     {"<|function_call|>%j", "function call<|role_sep|>\n%j"}, nullptr, {"<|message_sep|>"}},
    {"nemotron-2", {"<TOOLCALL>"}, THINK, {"<TOOLCALL>"}, {"</TOOLCALL>"}, {"<TOOLCALL>%j"}},
    {"granite-3", {"<|tool_call|>"}, THINK, {"<|tool_call|>"}, {}, {"<|tool_call|>%j"}, nullptr,
     {"<response>", "</response>"}},
    {"apriel", {"[BEGIN FINAL RESPONSE]"},
     {"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"}, {"<tool_calls>"},
     {"</tool_calls>"}, {"<tool_calls>%j"}, nullptr, {"[END FINAL RESPONSE]"}},
    {"minimax-m1", {"<tool_calls>"}, THINK, {"<tool_calls>"}, {"</tool_calls>"},
     {"<tool_calls>%j"}},
    {"hermes", {"<tool_call>"}, THINK, {"<tool_call>"}, {"</tool_call>"}, {"<tool_call>%j"}},
    {"llama-3", {"\"parameters\"", "ipython"}, {}, {"<|python_tag|>", "{"}, {},
     {"<|python_tag|>%j", "<|python_tag|>%p", "%j"}},
    {"thought", {"</think>"}, THINK, {"<tool_call>"}, {"</tool_call>"}, {"<tool_call>%j"}},
    {"content"},
};
// clang-format on

} // namespace

bool AnswerFormat::has(std::string_view token) const
{
    for (auto [texts, n] : {std::pair(thought, 2), {begins, 3}, {ends, 3}, {drops, 5}, {header, 2}})
        for (int i = 0; i < n; i++)
            if (texts[i] && std::string_view(texts[i]).find(token) != std::string_view::npos)
                return true;
    return false;
}

const AnswerFormat& find_answer_format(std::string_view template_text)
{
    std::string text(template_text);
    text.erase(std::remove(text.begin(), text.end(), '\\'), text.end()); // before quotes
    const auto has = [&](const char* mark) { return !mark || text.find(mark) != text.npos; };
    const AnswerFormat* row = kFormats; // the last row fits every text
    while (!has(row->marks[0]) || !has(row->marks[1])) row++;
    return *row;
}

} // namespace ks
