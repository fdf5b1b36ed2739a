// Methods and filters of lists and dicts.
#include "runtime/chat/interpreter.h"

namespace ks::jinja
{
namespace
{

// The result of a filter that jinja2 makes a generator of.
Value lazy(Call& c, Values items)
{
    return {move(items), c.in.request.extended ? kList : kLazy};
}

// What an item is ordered and distinguished by: itself or an attribute, or several with commas
// between them. Letters count as lower case.
Value key_for(Call& c, const Value& item, const Value& attribute, bool case_sensitive)
{
    if (attribute.kind <= kNone)
        return item.is(kText) && !case_sensitive ? change_case(item.text(), Case::lower) : item;
    size_t comma = attribute.is(kText) ? attribute.str().find(',') : kAll;
    if (comma == kAll) return key_for(c, c.in.at_path(item, attribute), {}, case_sensitive);
    return Values{key_for(c, item, attribute.str().substr(0, comma), case_sensitive),
                  key_for(c, item, attribute.str().substr(comma + 1), case_sensitive)};
}

using Keyed = vector<std::pair<Value, Value>>; // key and item

Keyed keyed(Call& c, const Values& items, const Value& attribute, bool case_sensitive)
{
    Keyed out;
    for (const Value& item : items)
        out.emplace_back(key_for(c, item, attribute, case_sensitive), item);
    return out;
}

Keyed sorted(Keyed items, bool reverse)
{
    std::stable_sort(items.begin(), items.end(), [&](auto& a, auto& b) {
        const Value &low = (reverse ? b : a).first, &high = (reverse ? a : b).first;
        return !equal(low, high) && less(low, high);
    });
    return items;
}

Value items_of(const Keyed& keyed_items)
{
    Values out;
    for (const auto& [key, item] : keyed_items) out.push_back(item);
    return out;
}

Value sort(Call& c)
{
    return items_of(sorted(keyed(c, items_of(c[0]), c[3], c.flag(2)), c.flag(1)));
}

Values pairs_of(const Value& dict)
{
    Values out;
    if (dict.is(kUndefined)) return out;
    if (!dict.is(kDict)) refuse("the items of %s", type_name(dict));
    for (const auto& [key, value] : dict.members()) out.emplace_back(Values{key, value}, kTuple);
    return out;
}

Value dict_sort(Call& c)
{
    int64_t by_value = c.has(2) && c.text(2).bytes == "value";
    return items_of(sorted(keyed(c, pairs_of(c[0]), by_value, c.flag(1)), c.flag(3)));
}

Value unique(Call& c)
{
    Values out;
    Value seen = Value::dict();
    for (const auto& [key, item] : keyed(c, items_of(c[0]), c[2], c.flag(1))) {
        if (!seen.dict_object().find(key)) out.push_back(item);
        seen.dict_object().set(key, true);
    }
    return lazy(c, move(out));
}

template <bool largest>
Value extreme(Call& c)
{
    Keyed items = sorted(keyed(c, items_of(c[0]), c[2], c.flag(1)), largest);
    return items.empty() ? Value() : items[0].second;
}

Value group_by(Call& c)
{
    Values groups;
    Value last;
    for (const auto& [key, item] : sorted(keyed(c, items_of(c[0]), c[1], false), false)) {
        if (groups.empty() || !equal(key, last))
            groups.emplace_back(Values{c.in.at_path(item, c[1]), Values()}, kTuple);
        groups.back().items()[1].items().push_back(item);
        last = key;
    }
    return groups;
}

Value sum(Call& c)
{
    Value total = c.has(2) ? c[2] : Value(int64_t(0));
    for (const Value& item : items_of(c[0]))
        total = binary('+', total, c.has(1) ? c.in.at_path(item, c[1]) : item);
    return total;
}

// Calls the filter or test rest[0] with the item and the arguments behind it.
Value apply(Call& c, unsigned where, const Value& item, const Values& rest)
{
    Values values = rest;
    values[0] = item;
    return c.in.apply(rest[0], where, move(values));
}

// map('filter', ...) and map(attribute=..., default=...)
Value map(Call& c)
{
    Values out;
    const Value *attribute = c[2].find("attribute"), *otherwise = c[2].find("default");
    if (!attribute && c[1].items().empty()) refuse("map needs a filter or an attribute");
    for (const Value& item : truth(c[0]) ? items_of(c[0]) : Values()) {
        out.push_back(attribute ? c.in.at_path(item, *attribute)
                                : apply(c, kFilter, item, c[1].items()));
        if (otherwise && out.back().is(kUndefined)) out.back() = *otherwise;
    }
    return lazy(c, move(out));
}

// select and reject; by an attribute: its path is the first argument.
template <bool by_attribute, bool wanted>
Value select(Call& c)
{
    Values out, rest = c[1].items();
    Value path;
    if (by_attribute && rest.empty()) refuse("an attribute is missing");
    if (by_attribute) path = rest[0], rest.erase(rest.begin());
    for (const Value& item : truth(c[0]) ? items_of(c[0]) : Values()) {
        Value tested = by_attribute ? c.in.at_path(item, path) : item;
        if (!rest.empty()) tested = apply(c, kTest, tested, rest);
        if (truth(tested) == wanted) out.push_back(item);
    }
    return lazy(c, move(out));
}

Value reverse(Call& c)
{
    if (c[0].is(kText)) return slice_of(c[0], {}, {}, int64_t(-1));
    Values items = items_of(c[0]);
    std::reverse(items.begin(), items.end());
    return lazy(c, move(items));
}

Value first(Call& c)
{
    Values items = items_of(c[0]);
    if (items.empty()) return {};
    if (c[0].is(kLazy)) c[0].items().assign(items.begin() + 1, items.end());
    return items[0];
}

Value last(Call& c)
{
    if (c[0].is(kLazy) || c[0].is(kView)) refuse("%s has no last item", type_name(c[0]));
    Values items = items_of(c[0]);
    return items.empty() ? Value() : items.back();
}

// Rows of n items, or n columns that differ by at most one item.
template <bool rows>
Value batch(Call& c)
{
    Values items = items_of(c[0]);
    int64_t n = c.integer(1, 0), size = int64_t(items.size());
    if (n <= 0) refuse("%lld parts of a list", (long long)n);
    check_items(uint64_t(n));
    int64_t n_parts = rows ? (size + n - 1) / n : n;
    Values out;
    for (int64_t i = 0, at = 0; i < n_parts; i++) {
        int64_t most = rows ? n : size / n + (size % n > 0),
                n_here = rows ? min(n, size - at) : size / n + (i < size % n);
        Values part(items.begin() + at, items.begin() + at + n_here);
        if (c.has(2)) part.resize(size_t(most), c[2]);
        out.push_back(part);
        at += n_here;
    }
    return lazy(c, move(out));
}

// ---- Methods

Value get(Call& c)
{
    const Value* found = c[0].dict_object().find(c[1]);
    return found ? *found : c.has(2) ? c[2] : Value::none();
}

template <int part> // 0: keys, 1: values, 2: both
Value view(Call& c)
{
    Values out;
    for (const Value& pair : pairs_of(c[0])) out.push_back(part == 2 ? pair : pair.items()[part]);
    static const char* const kTypes[] = {"dict_keys", "dict_values", "dict_items"};
    Value made(move(out), kView);
    made.list().view = kTypes[part];
    return made;
}

Value index_of(Call& c)
{
    const Values& items = c[0].items();
    for (size_t i = 0; i < items.size(); i++)
        if (equal(items[i], c[1])) return int64_t(i);
    refuse("the list has no such item");
}

Value count(Call& c)
{
    const Values& items = c[0].items();
    return int64_t(
        std::count_if(items.begin(), items.end(), [&](auto& item) { return equal(item, c[1]); }));
}

Value append(Call& c)
{
    check_items(c[0].items().size() + 1);
    c.in.keep(c[0]);
    c[0].list().count(2 * sizeof(Value));
    c[0].items().push_back(c[1]);
    return Value::none();
}

Value pop(Call& c)
{
    Values& items = c[0].items();
    int64_t n = length_of(c[0]), given = c.integer(1, -1), at = given < 0 ? given + n : given;
    if (at < 0 || at >= n) refuse("pop from a list of %lld items", (long long)n);
    Value out = items[size_t(at)];
    use_steps(items.size());
    items.erase(items.begin() + at);
    return out;
}

Value update(Call& c)
{
    c.in.keep(c[0]);
    for (const Value* from : {&c[1], &c[2]})
        if (from->is(kDict))
            for (const auto& [key, value] : from->members()) c[0].dict_object().set(key, value);
    return Value::none();
}

const Function kFunctions[] = {
    {"sort", kFilter, "reverse? case_sensitive? attribute?", sort},
    {"dictsort", kFilter, "case_sensitive? by? reverse?", dict_sort},
    {"unique", kFilter, "case_sensitive? attribute?", unique},
    {"min", kFilter, "case_sensitive? attribute?", extreme<false>},
    {"max", kFilter, "case_sensitive? attribute?", extreme<true>},
    {"groupby", kFilter, "attribute", group_by},
    {"sum", kFilter, "attribute? start?", sum},
    {"map", kFilter, "* **", map},
    {"select", kFilter, "*", select<false, true>},
    {"reject", kFilter, "*", select<false, false>},
    {"selectattr", kFilter, "*", select<true, true>},
    {"rejectattr", kFilter, "*", select<true, false>},
    {"reverse", kFilter, "", reverse},
    {"first", kFilter, "", first},
    {"last", kFilter, "", last},
    {"list", kFilter, "", [](Call& c) { return Value(items_of(c[0])); }},
    {"items", kFilter, "", [](Call& c) { return lazy(c, pairs_of(c[0])); }},
    {"batch", kFilter, "linecount fill_with?", batch<true>},
    {"slice", kFilter, "slices fill_with?", batch<false>},
    {"get", kDictMethod, "key default?", get},
    {"keys", kDictMethod, "", view<0>},
    {"values", kDictMethod, "", view<1>},
    {"items", kDictMethod, "", view<2>},
    {"update", kDictMethod | kChanges, "other? **", update},
    {"index", kListMethod, "value", index_of},
    {"count", kListMethod, "value", count},
    {"append", kListMethod | kChanges, "item", append},
    {"pop", kListMethod | kChanges, "index?", pop},
};

} // namespace

FunctionTable list_functions()
{
    return {kFunctions, std::size(kFunctions)};
}

} // namespace ks::jinja
