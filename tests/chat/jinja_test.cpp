#include "runtime/chat/jinja.h"
#include "runtime/chat/json.h"
#include <doctest/doctest.h>

using namespace ks;
using namespace ks::jinja;

static Request make_request()
{
    Request request;
    request.messages = parse_json(R"([{"role": "system", "content": "Be kind."},)"
                                  R"( {"role": "user", "content": " \u00e9<|end|> "}])")
                           .value();
    request.options = parse_json(R"({"n": 3, "list": [3, 1, 2], "dict": {"b": 1, "A": 2},)"
                                 R"( "items_key": {"items": 5}, "u": "\u00e9\u65e5\ud83d\ude42"})")
                          .value();
    request.tokens.dict_object().set("bos_token", "<s>");
    request.now.tm_year = 126;
    request.now.tm_mday = 5;
    return request;
}

// The text, or the error.
static std::string render(std::string_view source, const Request& request = make_request())
{
    const Result<Template> parsed = Template::parse(source);
    if (!parsed.ok()) return parsed.status().message();
    Text text;
    const Status status = parsed.value().render(request, &text);
    return status.ok() ? text.bytes : status.message();
}

static std::string authors(std::string_view source)
{
    Text text;
    const Status status = Template::parse(source).value().render(make_request(), &text);
    return status.ok() ? text.authors : status.message();
}

TEST_CASE("jinja: templates give the text that jinja2 gives")
{
    static const struct {
        const char *source, *text;
    } kCases[] = {
        {"a\n  {% if n %}\n b\n  {% endif %}\nc\n", "a\n b\nc"},
        {"a {%- if n -%} b {%- endif %} c", "ab c"},
        {"{# x #}\n{% raw %}{{ n }}{% endraw %}", "{{ n }}"},
        {"{{ 1 + 2 * 3 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 2 ** 3 ** 2 }} {{ 6 / 2 }}",
         "7 -4 2 64 3.0"},
        {"{{ 'a' ~ 1 * 2 }} {{ 1 < 2 < 3 }} {{ 'x' not in 'abc' }} {{ -3|abs }}", "a2 True True 3"},
        {"{{ n is odd and n is not none }} {{ 'y' if n > 5 }}", "True "},
        {"{% for x in list if x > 1 %}{{ loop.index }}{{ x }}{{ loop.last }} {% endfor %}",
         "13False 22True "},
        {"{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}e{% endfor "
         "%}",
         "32"},
        {"{% set x = 1 %}{% for y in list %}{% set x = x + y %}{{ x }}{% endfor %}{{ x }}", "4231"},
        {"{% set ns = namespace(x=0) %}{% for y in list %}{% set ns.x = ns.x + y %}{% endfor %}{{ "
         "ns.x }}",
         "6"},
        {"{% macro m(a, b=a) %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}",
         "[11][12]"},
        {"{% macro m() %}{{ y }}{% endmacro %}{% for y in list %}{{ m() }}{% endfor %}|", "|"},
        {"{% macro m() %}<{{ caller(1) }}>{% endmacro %}{% call(x) m() %}{{ x }}{% endcall %}",
         "<1>"},
        {"{% set t %} a {% endset %}[{{ t|trim|upper }}]", "[A]"},
        {"{{ list|sort }} {{ dict|dictsort }} {{ list[::-1] }} {{ list[-2:] }}",
         "[1, 2, 3] [('A', 2), ('b', 1)] [2, 1, 3] [1, 2]"},
        {"{{ u[1] }} {{ u|length }} {{ u[::-1] }} {{ 'ß'|upper }}", "日 3 🙂日é SS"},
        {"{{ dict.items()|list }} {{ items_key['items'] }} {{ dict['items'] is defined }}",
         "[('b', 1), ('A', 2)] 5 True"},
        {"{{ dict|tojson }} {{ [1.0, none, 'é</']|tojson }} {{ dict|tojson(indent=1) }}",
         "{\"b\": 1, \"A\": 2} [1.0, null, \"é</\"] {\n \"b\": 1,\n \"A\": 2\n}"},
        {"{{ ['it\\'s', 1e16, 0.1, ()] }} {{ 1e-5 }}", "[\"it's\", 1e+16, 0.1, ()] 1e-05"},
        {"{{ 'a</t>b</t>c'.split('</t>')[-1] }} {{ ' a  b '.split() }} {{ 'xxaxx'.strip('x') }}",
         "c ['a', 'b'] a"},
        {"{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join }}",
         " é<|end|> "},
        {"{{ '%s-%02d' % ('a', 7) }} {{ '{}{1}{x}'.format(1, 2, x=3) }}", "a-07 123"},
        {"{{ strftime_now('%d %b %Y') }} {{ tools is none }} {{ nothing is defined }}",
         "05 Jan 2026 True False"},
        {"{{ '<' + 'a&'|safe }} {{ 'a'|default('b') }}{{ nothing|default('b') }}", "&lt;a& ab"},
        {"{% if false %}{{ 1|no_such_filter }}{% endif %}ok", "ok"},
    };
    for (const auto& c : kCases) CHECK(render(c.source) == c.text);
}

TEST_CASE("jinja: every byte knows its author")
{
    CHECK(
        authors("{{ bos_token }}{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}") ==
        "fff"
        "ffffff"
        "ssssssss"
        "ffff"
        "uuuuuuuuuuu");
    CHECK(authors("{{ messages[1].content|trim }}") == "uuuuuuuuu");
    CHECK(authors("{{ messages[0].content[1:4] ~ n }}") == "sssf");
    CHECK(authors("{{ messages[0].content.replace('kind', bos_token) }}") == "sssfffs");
    CHECK(authors("{{ '%s!' % messages[0].content[:2] }}{{ [1, messages[0].content]|tojson }}") ==
          "ssf" + std::string(15, 's'));
    CHECK(authors("{% set x %}a{{ messages[0].content[:1]|lower }}{% endset %}{{ x ~ 'b' }}") ==
          "fsf");
}

TEST_CASE("jinja: errors are one sentence")
{
    CHECK(render("a\n{{ x.y }}") == "the chat template failed in line 2: 'x' is undefined");
    CHECK(render("{{ raise_exception('no ' ~ n) }}") == "the chat template raised: no 3");
    CHECK(render("{% if n %}") == "the chat template is wrong in line 1: elif expected, found ''");
    CHECK(render("{{ 1 + }}") ==
          "the chat template is wrong in line 1: an expression expected, found '}}'");
    CHECK(render("{{ 'a' + 1 }}") ==
          "the chat template failed in line 1: the operator + between a text and an integer");
    CHECK(render("{{ list.append(1) }}") ==
          "the chat template failed in line 1: 'append' is undefined");
    CHECK(render("\xff") == "the chat template is not UTF-8 at byte 0");
    bool raised = false;
    Text text;
    CHECK(!Template::parse("{{ raise_exception('x') }}")
               .value()
               .render(make_request(), &text, &raised)
               .ok());
    CHECK(raised);
}

TEST_CASE("jinja: extended templates may change their own lists")
{
    Request request = make_request();
    request.extended = true;
    CHECK(render("{% set l = [] %}{% set _ = l.append(1) %}{{ l }}", request) == "[1]");
    CHECK(render("{{ list.append(1) }}", request).find("undefined") != std::string::npos);
}

TEST_CASE("jinja: messages in the form of transformers")
{
    Request request = make_request();
    request.normalized = true;
    request.messages =
        parse_json(R"([{"role": "assistant", "content": null, "reasoning": "r"}])").value();
    CHECK(render("{{ messages[0]|list }}{{ messages[0].reasoning_content }}", request) ==
          "['thinking', 'role', 'reasoning', 'reasoning_content']r");
}

TEST_CASE("jinja: limits")
{
    auto fails_with = [](std::string_view source, const char* part) {
        const std::string message = render(source);
        INFO(message);
        CHECK(message.find(part) != std::string::npos);
    };
    std::string deep, long_sum = "{{ 1";
    for (int i = 0; i < 300; i++) deep += "(";
    for (int i = 0; i < 40000; i++) long_sum += " + 1";
    fails_with("{{ " + deep + "1" + std::string(300, ')') + " }}", "nested deeper than 200");
    fails_with(long_sum + " }}", "nested deeper than 2000");
    fails_with("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
               "too many steps");
    fails_with("{{ range(100001) }}", "a range of more than 100000 items");
    fails_with("{{ 'a' * 9999999999 }}", "at most 16777216");
    fails_with("{{ [1] * 9223372036854775807 }}", "at most 1000000");
    fails_with("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested deeper than 100");
    fails_with("{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% "
               "endfor %}",
               "nested deeper than 200");
    fails_with("{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = ns.l + ['a' * "
               "1000000] %}{% endfor %}",
               "too much memory");
    fails_with("{{ (-9223372036854775807 - 1) * -1 }}", "more than 64 bits");
    CHECK(render("{% set ns = namespace() %}{% set ns.me = [ns] %}{% macro m() %}{% endmacro %}{{ "
                 "ns.me == ns.me }}") == "True");
}
