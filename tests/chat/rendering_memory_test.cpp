// A rendering takes at most kHeapShare times as many bytes of the heap as its budget has.
#include "runtime/chat/chat_format.h"
#include "runtime/chat/json.h"

#include <algorithm>
#include <cstdlib>
#include <doctest/doctest.h>
#include <iterator>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KS_SANITIZED 1
#endif
#endif
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&       \
    !defined(KS_SANITIZED)
#include <malloc.h>

static thread_local int64_t t_held = 0, t_peak = 0;

void* operator new(size_t bytes)
{
    void* memory = malloc(bytes);
    if (!memory) throw std::bad_alloc();
    t_held += int64_t(malloc_usable_size(memory) + sizeof(size_t));
    t_peak = std::max(t_peak, t_held);
    return memory;
}
void operator delete(void* memory) noexcept
{
    if (memory) t_held -= int64_t(malloc_usable_size(memory) + sizeof(size_t));
    free(memory);
}
void operator delete(void* memory, size_t) noexcept
{
    operator delete(memory);
}

using namespace ks;

TEST_CASE("jinja: the heap of a rendering stays within its budget")
{
    static const char* const kTemplates[] = {
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s + m.content %}"
        "{% endfor %}{{ ns.s | trim }}",
        "{{ messages | map(attribute='content') | join('\n') | upper }}",
        "{{ messages | tojson }}",
        "{% for m in messages %}{{ m.content.split(' ')[-1] }}{{ m.content.split('w') | length }}"
        "{% endfor %}",
        "{% for m in messages %}{{ m.content | replace('w', 'ww') | trim }}{% endfor %}",
        "{% macro show(m) %}{{ m.role + ': ' + m.content | trim + '\n' }}{% endmacro %}"
        "{% for m in messages %}{{ show(m) }}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for m in messages %}{% set ns.l = ns.l + [m] %}"
        "{% endfor %}{{ ns.l | length }}",
        "{{ messages[0].content | list | length }}",
    };
    constexpr int64_t kOwn = 1 << 16; // of the interpreter
    size_t n_refused = 0;
    for (const char* text : kTemplates) {
        Result<jinja::Template> parsed = jinja::Template::parse(text);
        REQUIRE(parsed.ok());
        for (auto [n_messages, n_bytes] : {std::pair<int, int>{1, 120'000}, {40, 3'000}, {999, 30}})
            for (int64_t budget : {50'000, 300'000, 1'500'000}) {
                CAPTURE(text);
                CAPTURE(n_messages);
                jinja::Request request;
                std::vector<jinja::Value> messages;
                for (int i = 0; i < n_messages; i++) {
                    std::string content;
                    while (int(content.size()) < n_bytes) content += "word ";
                    messages.push_back(chat_message(i % 2 ? "assistant" : "user", content));
                }
                request.messages = jinja::Value(std::move(messages));
                request.budget.bytes = budget;
                jinja::Text out;
                const int64_t held = t_peak = t_held;
                const Status status = parsed.value().render(request, &out);
                CHECK(t_peak - held <= jinja::kHeapShare * budget + kOwn);
                CHECK((status.ok() || status.code() == Code::no_fit));
                n_refused += !status.ok();
            }
    }
    CHECK(n_refused > 0);
    CHECK(n_refused < 3 * 3 * std::size(kTemplates));
}
#endif
