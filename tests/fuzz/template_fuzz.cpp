// Any text as a chat template and any JSON as its messages and options: rendering stays within its
// limits, every byte has an author, and every error is one sentence.
#include "runtime/chat/jinja.h"
#include "runtime/chat/json.h"
#include "tests/fuzz/fuzz.h"

using namespace ks;

static const char* const kMessages =
    R"([{"role": "system", "content": "S"}, {"role": "user", "content": "a </think> b"},)"
    R"( {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f",)"
    R"( "arguments": {"x": 1.5, "y": [true, "\u00df"]}}}]}, {"role": "tool", "content": "{}"}])";

static jinja::Value parsed(std::string_view text, const jinja::Value& otherwise)
{
    const Result<jinja::Value> value = jinja::parse_json(text);
    if (value.ok()) {
        const std::string written = jinja::write(value.value());
        const Result<jinja::Value> again = jinja::parse_json(written);
        KS_CHECK(!again.ok() || jinja::write(again.value()) == written, "%s", written.c_str());
    } else {
        check_sentence(value.status());
    }
    return value.ok() ? value.value() : otherwise;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    const Deadline deadline;
    Input in = input_of(data, size);
    const uint8_t choice = in.byte();
    const std::string_view source = in.text();
    jinja::Request request;
    request.messages = parsed(in.text(), jinja::parse_json(kMessages).value());
    request.tools = parsed(in.text(), jinja::Value::none());
    const jinja::Value options = parsed(in.text(), jinja::Value::dict());
    if (options.is(jinja::Kind::dict)) request.options = options;
    request.tokens.dict_object().set("bos_token", "<s>");
    request.extended = choice & 1;
    request.normalized = choice & 2;
    request.budget.steps = 20'000;
    request.budget.bytes = 8 << 20;
    const Result<jinja::Template> chat_template = jinja::Template::parse(source);
    if (!chat_template.ok()) return check_sentence(chat_template.status()), 0;
    jinja::Text text, again;
    bool raised = false;
    const Status status = chat_template.value().render(request, &text, &raised);
    g_accepted += status.ok();
    if (!status.ok() && !raised) check_sentence(status);
    KS_CHECK(text.bytes.size() == text.authors.size(), "%zu authors", text.authors.size());
    KS_CHECK(text.authors.find_first_not_of("fsuatxdo") == std::string::npos, "%s",
             text.authors.c_str());
    KS_CHECK(chat_template.value().render(request, &again).ok() == status.ok() &&
                 again.bytes == text.bytes,
             "a second rendering differs");
    return 0;
}

std::vector<std::string> fuzz_seeds()
{
    std::vector<std::string> seeds;
    for (const char* source : {
             "{% for m in messages %}{{ '<|' + m.role + '|>' + (m.content or '')|trim }}{% endfor "
             "%}",
             "{%- set ns = namespace(n=0) -%}{% for m in messages if m.role != 'tool' %}"
             "{% set ns.n = ns.n + 1 %}{{ loop.index ~ loop.last }}{% break %}{% else %}x{% endfor "
             "%}",
             "{% macro show(x, n=2) %}{% if x is mapping %}{% for k, v in x|dictsort %}{{ k }}:"
             "{{ show(v) }}{% endfor %}{% else %}{{ x|tojson(indent=n) }}{% endif %}{% endmacro %}"
             "{{ show(messages[2].tool_calls[0].function) }}",
             "{{ messages[1].content.split('</think>')[-1].lstrip()[::-1] | upper | replace('B', "
             "'c') }}",
             "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join(', "
             "') }}",
             "{% if not tools %}{{ raise_exception('no ' ~ bos_token) }}{% endif %}",
             "{{ '%5.2f|%s|%-4d' % (1.5, [1, 'a'], 7) }}{{ '{:>5}{}{a!r}'.format('x', 2, a='b') }}",
             "{% set t %} a {# c #}{% raw %}{{ b }}{% endraw %}{% endset %}{{ t|trim }}"
             "{% call(a) m() %}{{ a }}{% endcall %}{% generation %}{{ strftime_now('%Y') }}"
             "{% endgeneration %}",
             "{{ [3, 1, 2]|sort|first, {'a': 1}.items()|list, range(1, 9, 2)[1:], 7 // 2 ** -1 }}",
             "{% set l = [] %}{% for i in range(3) %}{% set _ = l.append(l) %}{% endfor %}{{ "
             "l|length }}",
         }) {
        const std::string end(1, '\0');
        seeds.push_back(std::string(1, char(1)) + source + end + kMessages + end + "[]" + end +
                        R"({"a": [1, null, "\ud83d\ude42"]})");
        seeds.push_back(std::string(1, '\0') + source);
    }
    return seeds;
}
