// Global functions and methods of loops.
#include "runtime/chat/interpreter.h"

namespace ks::jinja
{
namespace
{

constexpr int64_t kMaxRange = 100'000; // as jinja2's sandbox

Value range(Call& c)
{
    for (const Value& value : c.values)
        if (!value.is(kUndefined) && !value.is(kInteger) && !value.is(kBoolean))
            refuse("range of %s", type_name(value));
    int64_t begin = c.has(1) ? c[0].integer : 0, end = c.has(1) ? c[1].integer : c[0].integer;
    int64_t step = c.integer(2, 1);
    if (step == 0) refuse("the step of a range is 0");
    const auto wide = [](int64_t x) { return static_cast<__int128>(x); };
    __int128 distance = step > 0 ? wide(end) - begin : wide(begin) - end;
    __int128 size = step > 0 ? step : -wide(step);
    __int128 n = distance > 0 ? (distance + size - 1) / size : 0;
    if (n > kMaxRange) refuse("a range of more than %lld items", (long long)kMaxRange);
    Values items;
    for (int64_t i = 0; i < int64_t(n); i++) items.emplace_back(int64_t(begin + wide(i) * step));
    return {move(items), kRange};
}

Value make_dict(Call& c)
{
    Value out = Value::dict();
    for (const Value& pair : c[0].is(kDict) ? Values() : items_of(c[0])) {
        Values both = items_of(pair);
        if (both.size() != 2) refuse("a dict of %zu values", both.size());
        out.dict_object().set(both[0], both[1]);
    }
    for (const Value* from : {&c[0], &c[1]})
        if (from->is(kDict))
            for (const auto& [key, value] : from->members()) out.dict_object().set(key, value);
    return out;
}

Value make_namespace(Call& c)
{
    Value out = make_dict(c);
    out.kind = kNamespace;
    for (const auto& item : out.members())
        if (starts_with(text_of(item.first).bytes, "_"))
            refuse("no attribute of a namespace begins with _");
    c.in.keep(out);
    return out;
}

Value raise(Call& c)
{
    Failure failure{c.written(0).bytes.substr(0, 1000), true};
    const string& text = failure.message;
    string visible;
    for (size_t at = 0; at < text.size();) {
        Char next = next_char(text, at);
        if (next.code < 0) break; // cut
        bool control = next.code < 0x20 && next.code != '\n';
        append_utf8(&visible, control ? 0x2400 + next.code : next.code);
        at += next.bytes;
    }
    failure.message = visible;
    throw failure;
}

Value make_cycler(Call& c)
{
    auto made = make_shared<Loop>();
    made->items = c[0].items();
    if (made->items.empty()) refuse("a cycler without items");
    return {kLoop, move(made)};
}

Loop& loop_of(Call& c)
{
    return static_cast<Loop&>(*c[0].object);
}

Value next_of_cycler(Call& c)
{
    Loop& loop = loop_of(c);
    if (loop.items.empty()) return {};
    Value out = loop.items[loop.index % loop.items.size()];
    loop.index = (loop.index + 1) % loop.items.size();
    return out;
}

Value cycle(Call& c)
{
    const Values& items = c[1].items();
    if (items.empty()) refuse("cycle without items");
    return items[loop_of(c).index % items.size()];
}

Value changed(Call& c)
{
    Loop& loop = loop_of(c);
    const Values& items = c[1].items();
    bool same = std::equal(items.begin(), items.end(), loop.changed.begin(), loop.changed.end(),
                           [](auto& a, auto& b) { return equal(a, b); });
    loop.changed = items;
    return !same;
}

// The first call gives nothing, all others the separator.
Value next_separator(Call& c)
{
    Loop& loop = loop_of(c);
    return loop.index++ ? loop.items[0] : Value("");
}

Value make_joiner(Call& c)
{
    static const Function kNext = {"joiner", kLoopMethod, "", next_separator};
    auto state = make_shared<Loop>();
    state->items = {c.has(0) ? c[0] : Value(", ")};
    return bound(&kNext, kMethod, Value(kLoop, move(state)));
}

const Function kFunctions[] = {
    {"range", kGlobal, "start stop? step?", range},
    {"dict", kGlobal, "other? **", make_dict},
    {"namespace", kGlobal, "other? **", make_namespace},
    {"raise_exception", kGlobal, "message", raise},
    {"strftime_now", kGlobal, "format",
     [](Call& c) { return Value(write_time(c.text(0).bytes, c.in.request.now)); }},
    {"cycler", kGlobal, "*", make_cycler},
    {"joiner", kGlobal, "sep?", make_joiner},
    {"cycle", kLoopMethod, "*", cycle},
    {"changed", kLoopMethod, "*", changed},
    {"next", kLoopMethod, "", next_of_cycler},
};

} // namespace

FunctionTable global_functions()
{
    return {kFunctions, std::size(kFunctions)};
}

} // namespace ks::jinja
