// Arguments of calls, tests, and filters for any value.
#include "runtime/chat/interpreter.h"
#include "runtime/chat/json.h"

#include <cerrno>
#include <cmath>

namespace ks::jinja
{

const Text& Call::text(size_t i) const
{
    if (!values[i].is(kText)) refuse("a text expected, not %s", type_name(values[i]));
    return values[i].text();
}

Text Call::written(size_t i) const
{
    return text_of(values[i]);
}

int64_t Call::integer(size_t i, int64_t otherwise) const
{
    if (values[i].is(kUndefined) || values[i].is(kNone)) return otherwise;
    if (!values[i].is(kInteger) && !values[i].is(kBoolean))
        refuse("an integer expected, not %s", type_name(values[i]));
    return values[i].integer;
}

bool Call::flag(size_t i) const
{
    return truth(values[i]);
}

namespace
{

template <Kind... kinds>
Value is_kind(Call& c)
{
    return (c[0].is(kinds) || ...);
}

template <char op>
Value compares(Call& c)
{
    return compare(op, c[0], c[1]);
}

template <bool wanted>
Value is_boolean(Call& c)
{
    return c[0].is(kBoolean) && c[0].integer == wanted;
}

template <unsigned where>
Value is_known(Call& c)
{
    const Function* found = find_function(c.written(0).bytes, where);
    return found && (!(found->where & kChanges) || c.in.request.extended);
}

template <int divisor, int rest>
Value has_rest(Call& c)
{
    return equal(binary('%', c[0], divisor ? Value(int64_t(divisor)) : c[1]), int64_t(rest));
}

template <Case wanted>
Value is_case(Call& c)
{
    Text text = c.written(0);
    const Case other = wanted == Case::upper ? Case::lower : Case::upper;
    return change_case(text, wanted).bytes == text.bytes &&
           change_case(text, other).bytes != text.bytes;
}

Value to_json(Call& c)
{
    WriteStyle style;
    style.ascii = c.flag(1);
    style.lines = c.has(2) && !c[2].is(kNone);
    if (style.lines) {
        style.indent = c[2].is(kText) ? c[2].str() : repeated(" ", c.integer(2, 0)).str();
        style.comma = ",";
    }
    if (truth(c[3])) {
        Values parts = items_of(c[3]);
        if (parts.size() != 2) refuse("two separators expected");
        style.comma = text_of(parts[0]).bytes;
        style.colon = text_of(parts[1]).bytes;
    }
    style.sorted = c.flag(4);
    return Text(write(c[0], style), author_in(c[0]));
}

Value from_json(Call& c)
{
    const Result<Value> parsed = parse_json(c.text(0).bytes);
    if (!parsed.ok()) refuse("%s", parsed.status().message().c_str());
    return by_author(parsed.value(), author_in(c[0]));
}

Value with_default(Call& c)
{
    if (c.flag(2) ? truth(c[0]) : c.has(0)) return c[0];
    return c.has(1) ? c[1] : Value("");
}

// The number in a text, with white space around it and '_' inside. False: there is none.
bool read_number(const Value& value, int base, int64_t* whole, double* real)
{
    if (value.is_number()) return *real = value.number(), *whole = value.integer, !value.is(kReal);
    string text = value.is(kText) ? value.str() : "";
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    text.erase(text.size() - space_after(text));
    text.erase(0, space_before(text));
    char* end = nullptr;
    *real = strtod(text.c_str(), &end);
    if (text.empty() || *end || text.find_first_of("xX") != kAll) *real = NAN;
    errno = 0;
    *whole = strtoll(text.c_str(), &end, base);
    return !text.empty() && !*end && !errno;
}

Value to_integer(Call& c)
{
    int64_t whole = 0;
    double real = 0;
    if (!c.has(0)) refuse_undefined(c[0]);
    if (read_number(c[0], int(std::clamp<int64_t>(c.integer(2, 10), 2, 36)), &whole, &real))
        return whole;
    if (std::fabs(real) >= 9.2e18) refuse("a number of more than 64 bits");
    return !std::isnan(real) ? Value(int64_t(real)) : c.has(1) ? c[1] : Value(int64_t(0));
}

Value to_real(Call& c)
{
    int64_t whole = 0;
    double real = 0;
    read_number(c[0], 10, &whole, &real);
    return !std::isnan(real) ? Value(real) : c.has(1) ? c[1] : Value(0.0);
}

Value round_number(Call& c)
{
    if (!c[0].is_number()) refuse("round of %s", type_name(c[0]));
    int digits = int(std::clamp<int64_t>(c.integer(1, 0), -300, 300));
    string method = c.has(2) ? c.text(2).bytes : "common";
    double number = c[0].number(), scale = std::pow(10, digits);
    if (method == "floor") return std::floor(number * scale) / scale;
    if (method == "ceil") return std::ceil(number * scale) / scale;
    if (!c[0].is(kReal) && digits >= 0) return c[0];
    if (digits < 0) return std::nearbyint(number * scale) / scale;
    char text[700];
    snprintf(text, sizeof text, "%.*f", digits, number);
    return strtod(text, nullptr);
}

Value absolute(Call& c)
{
    return less(c[0], int64_t(0)) ? binary('-', int64_t(0), c[0]) : c[0];
}

Value attribute_only(Call& c)
{
    const string& name = c.text(1).bytes;
    return find_function(name, methods_of(c[0])) ? c.in.attribute(c[0], name) : Value();
}

Value identical(Call& c)
{
    return c[0].kind == c[1].kind && equal(c[0], c[1]);
}

const Function kFunctions[] = {
    {"defined", kTest, "", [](Call& c) { return Value(c.has(0)); }},
    {"undefined", kTest, "", is_kind<kUndefined>},
    {"none", kTest, "", is_kind<kNone>},
    {"boolean", kTest, "", is_kind<kBoolean>},
    {"true", kTest, "", is_boolean<true>},
    {"false", kTest, "", is_boolean<false>},
    {"integer", kTest, "", is_kind<kInteger>},
    {"float", kTest, "", is_kind<kReal>},
    {"number", kTest, "", [](Call& c) { return Value(c[0].is_number()); }},
    {"string", kTest, "", is_kind<kText>},
    {"mapping", kTest, "", is_kind<kDict>},
    {"iterable", kTest, "",
     is_kind<kUndefined, kText, kList, kTuple, kRange, kView, kLazy, kDict, kLoop>},
    {"sequence", kTest, "", is_kind<kUndefined, kText, kList, kTuple, kRange, kDict>},
    {"callable", kTest, "", is_kind<kMacro, kFunction, kMethod, kLoop>},
    {"odd", kTest, "", has_rest<2, 1>},
    {"even", kTest, "", has_rest<2, 0>},
    {"divisibleby", kTest, "num", has_rest<0, 0>},
    {"in", kTest, "seq", compares<kIn>},
    {"eq == equalto", kTest, "other", compares<kEqual>},
    {"ne !=", kTest, "other", compares<kNotEqual>},
    {"gt > greaterthan", kTest, "other", compares<'>'>},
    {"ge >=", kTest, "other", compares<kAtLeast>},
    {"lt < lessthan", kTest, "other", compares<'<'>},
    {"le <=", kTest, "other", compares<kAtMost>},
    {"sameas", kTest, "other", identical},
    {"lower", kTest, "", is_case<Case::lower>},
    {"upper", kTest, "", is_case<Case::upper>},
    {"filter", kTest, "", is_known<kFilter>},
    {"test", kTest, "", is_known<kTest>},
    {"escaped", kTest, "", [](Call& c) { return Value(c[0].is(kText) && c[0].text().safe); }},
    {"tojson", kFilter, "ensure_ascii? indent? separators? sort_keys?", to_json},
    {"from_json", kFilter | kChanges, "", from_json},
    {"default d", kFilter, "default_value? boolean?", with_default},
    {"int", kFilter, "default? base?", to_integer},
    {"float", kFilter, "default?", to_real},
    {"round", kFilter, "precision? method?", round_number},
    {"abs", kFilter, "", absolute},
    {"is_integer", kRealMethod, "",
     [](Call& c) { return Value(std::trunc(c[0].real) == c[0].real); }},
    {"attr", kFilter, "name", attribute_only},
    {"length count", kFilter, "", [](Call& c) { return Value(length_of(c[0])); }},
};

} // namespace

FunctionTable value_functions()
{
    return {kFunctions, std::size(kFunctions)};
}

} // namespace ks::jinja
