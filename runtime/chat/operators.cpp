// What Python's operators and conversions do with the values of a template.
#include "runtime/chat/interpreter.h"
#include "runtime/chat/json.h"

#include <cmath>

namespace ks::jinja
{

const char* type_name(const Value& value)
{
    static const char* const kNames[] = {
        "an undefined value",
        "none",
        "a boolean",
        "an integer",
        "a float",
        "a text",
        "a list",
        "a tuple",
        "a range",
        "a view",
        "a generator",
        "a dict",
        "a namespace",
        "a macro",
        "a function",
        "a method",
        "a loop",
    };
    return kNames[int(value.kind)];
}

void refuse_undefined(const Value& value)
{
    refuse("'%s' is undefined", value.object ? printable(value.str()).c_str() : "");
}

bool truth(const Value& value)
{
    if (value.is(kReal)) return value.real != 0;
    if (value.is_number()) return value.integer != 0;
    if (value.is(kText) || value.is(kDict) || (value.has_items() && !value.is(kLazy)))
        return length_of(value) > 0;
    return value.kind > kNone;
}

Text repr_of(const Value& value)
{
    WriteStyle style;
    style.python = true;
    return Text(write(value, style), author_in(value));
}

Text text_of(const Value& value)
{
    if (value.is(kText)) return value.text();
    return value.is(kUndefined) ? Text() : repr_of(value);
}

int64_t length_of(const Value& value)
{
    if (value.is(kUndefined)) return 0;
    if (value.is(kText)) return int64_t(static_cast<TextObject&>(*value.object).n_chars);
    if (value.is(kDict)) return int64_t(value.members().size());
    if (!value.has_items() || value.is(kLazy)) refuse("%s has no length", type_name(value));
    return int64_t(value.items().size());
}

Values items_of(const Value& value)
{
    Values out;
    if (value.has_items()) {
        use_steps(value.items().size());
        if (value.is(kLazy))
            out.swap(value.items());
        else
            out = value.items();
    } else if (value.is(kDict)) {
        use_steps(value.members().size());
        for (const auto& item : value.members()) out.push_back(item.first);
    } else if (value.is(kText)) {
        vector<size_t> starts = char_starts(value.str());
        check_items(starts.size());
        for (size_t i = 0; i + 1 < starts.size(); i++)
            out.push_back(value.text().part(starts[i], starts[i + 1] - starts[i]));
    } else if (!value.is(kUndefined)) {
        refuse("%s cannot be iterated", type_name(value));
    }
    return out;
}

// ---- Comparisons

static bool is_sequence(const Value& value)
{
    return value.is(kList) || value.is(kTuple) || value.is(kRange);
}

// The order of two numbers, texts or sequences: negative, 0, positive. Others are equal (0) or have
// none (kUnordered).
constexpr int kUnordered = 2;
static int order(const Value& a, const Value& b, int depth)
{
    if (depth > kMaxDepth) refuse("a value is nested deeper than %d", kMaxDepth);
    use_steps(1);
    auto sign = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : x == y ? 0 : kUnordered; };
    if (a.is_number() && b.is_number())
        return a.is(kReal) || b.is(kReal) ? sign(a.number(), b.number())
                                          : sign(a.integer, b.integer);
    if (a.kind != b.kind) return kUnordered;
    if (a.is(kText)) {
        use_steps(a.str().size() / 64);
        return sign(a.str().compare(b.str()), 0);
    }
    if (is_sequence(a)) {
        const Values &left = a.items(), &right = b.items();
        for (size_t i = 0; i < left.size() && i < right.size(); i++)
            if (int found = order(left[i], right[i], depth + 1)) return found;
        return sign(left.size(), right.size());
    }
    if (!a.is(kDict)) return a.object == b.object || a.kind <= kNone ? 0 : kUnordered;
    for (const auto& [key, value] : a.members()) {
        const Value* other = b.dict_object().find(key);
        if (!other || order(value, *other, depth + 1)) return kUnordered;
    }
    return sign(a.members().size(), b.members().size()) ? kUnordered : 0;
}

bool equal(const Value& a, const Value& b)
{
    return order(a, b, 0) == 0;
}

bool less(const Value& a, const Value& b)
{
    int found = order(a, b, 0);
    bool ordered = a.is_number() || (a.kind == b.kind && (a.is(kText) || is_sequence(a)));
    if (!ordered || (found == kUnordered && !b.is_number()))
        refuse("%s and %s have no order", type_name(a), type_name(b));
    return found < 0;
}

bool contains(const Value& container, const Value& item)
{
    if (container.is(kText)) {
        if (!item.is(kText)) refuse("%s in a text", type_name(item));
        use_steps(container.str().size() / 64);
        return container.str().find(item.str()) != kAll;
    }
    if (container.is(kDict)) return container.dict_object().find(item);
    Values items = items_of(container);
    return std::any_of(items.begin(), items.end(), [&](auto& other) { return equal(other, item); });
}

bool compare(char op, const Value& left, const Value& right)
{
    if (op == kIn || op == kNotIn) return contains(right, left) == (op == kIn);
    if (op == kEqual || op == kNotEqual) return equal(left, right) == (op == kEqual);
    if (op == '>' || op == kAtLeast) return compare(op == '>' ? '<' : kAtMost, right, left);
    return less(left, right) || (op == kAtMost && equal(left, right));
}

// ---- Arithmetic

Value repeated(const Text& text, int64_t n)
{
    Text out;
    out.safe = text.safe;
    if (n > 0 && text.size()) check_text_bytes(min<uint64_t>(uint64_t(n), 1 << 30) * text.size());
    for (; n > 0 && text.size(); n--) out.append(text);
    return out;
}

static Value integers(char op, int64_t a, int64_t b)
{
    int64_t out = 1;
    bool overflow = false;
    if (op == '+') {
        overflow = __builtin_add_overflow(a, b, &out);
    } else if (op == '-') {
        overflow = __builtin_sub_overflow(a, b, &out);
    } else if (op == '*') {
        overflow = __builtin_mul_overflow(a, b, &out);
    } else if (op == kPower) {
        for (; b > 0 && !overflow; b--, use_steps(1))
            overflow = __builtin_mul_overflow(out, a, &out);
    } else { // kFloorDivide and '%', which have the sign of the divisor
        if (b == 0) refuse("division by zero");
        if (b == -1) return integers('*', op == '%' ? 0 : -1, a);
        out = op == '%' ? a % b : a / b;
        if (a % b != 0 && (a < 0) != (b < 0)) out += op == '%' ? b : -1;
    }
    if (overflow) refuse("a number of more than 64 bits");
    return out;
}

static Value reals(char op, double a, double b)
{
    if (op == '+') return a + b;
    if (op == '-') return a - b;
    if (op == '*') return a * b;
    if (op == kPower) return std::pow(a, b);
    if (b == 0) refuse("division by zero");
    if (op == '/') return a / b;
    if (op == kFloorDivide) return std::floor(a / b);
    double rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Text html_escaped(const Text& text)
{
    static const string kFrom = "&<>'\"";
    static const char* const kTo[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    Text out;
    for (size_t i = 0; i < text.size(); i++) {
        size_t found = kFrom.find(text.bytes[i]);
        if (found == kAll)
            out.append(text, i, 1);
        else
            out.add(kTo[found], text.authors[i]);
    }
    out.safe = true;
    return out;
}

Value binary(char op, const Value& left, const Value& right)
{
    bool whole = right.is(kInteger) || right.is(kBoolean), same = left.kind == right.kind;
    if (op == '~') {
        Text out = text_of(left);
        out.append(text_of(right));
        return out;
    }
    if (left.is_number() && right.is_number()) {
        if (whole && !left.is(kReal) && op != '/' && !(op == kPower && right.integer < 0))
            return integers(op, left.integer, right.integer);
        return reals(op, left.number(), right.number());
    }
    if (op == '*' && left.is_number()) return binary(op, right, left);
    if (op == '%' && left.is(kText)) return format_percent(left.text(), right);
    if (op == '*' && whole && left.is(kText)) return repeated(left.text(), right.integer);
    if (op == '+' && same && left.is(kText)) {
        const Text &a = left.text(), &b = right.text();
        bool safe = a.safe || b.safe;
        Text out = safe && !a.safe ? html_escaped(a) : a;
        out.append(safe && !b.safe ? html_escaped(b) : b);
        out.safe = safe;
        return out;
    }
    bool list = left.is(kList) || left.is(kTuple);
    if (!list || !(op == '*' ? whole : op == '+' && same))
        refuse("the operator %c between %s and %s", op, type_name(left), type_name(right));
    int64_t times = op == '+' ? 1 : max<int64_t>(right.integer, 0);
    const Values &items = left.items(), &more = op == '+' ? right.items() : items;
    check_items(min<uint64_t>(uint64_t(times), kMaxItems + 1) * more.size());
    Values out;
    if (op == '+') out = items;
    for (; times > 0 && !more.empty(); times--) out.insert(out.end(), more.begin(), more.end());
    return {move(out), left.kind};
}

// ---- Items

Value item_of(const Value& object, const Value& key)
{
    if (object.is(kUndefined)) refuse_undefined(object);
    if (object.is(kDict) || object.is(kNamespace)) {
        bool hashable = key.is(kTuple) || key.is(kText) || key.is(kNone) || key.is_number();
        const Value* found = hashable ? object.dict_object().find(key) : nullptr;
        return found ? *found : Value();
    }
    bool whole = key.is(kInteger) || key.is(kBoolean);
    if (!whole || !(is_sequence(object) || object.is(kText))) return {};
    int64_t n = length_of(object), at = key.integer < 0 ? key.integer + n : key.integer;
    if (at < 0 || at >= n) return {};
    return is_sequence(object) ? object.items()[size_t(at)] : slice_of(object, at, at + 1);
}

Value slice_of(const Value& object, const Value& first, const Value& last, const Value& stride)
{
    if (!is_sequence(object) && !object.is(kText)) refuse("a slice of %s", type_name(object));
    auto number = [](const Value& value, int64_t otherwise) {
        if (value.kind <= kNone) return otherwise;
        if (!value.is(kInteger) && !value.is(kBoolean))
            refuse("%s as a bound of a slice", type_name(value));
        return value.integer;
    };
    int64_t n = length_of(object), step = number(stride, 1);
    if (step == 0) refuse("the step of a slice is 0");
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    auto bound = [&](const Value& value, int64_t otherwise) {
        int64_t at = number(value, otherwise);
        return value.kind <= kNone ? at : std::clamp(at < 0 ? at + n : at, low, high);
    };
    int64_t begin = bound(first, step < 0 ? high : low), end = bound(last, step < 0 ? low : high);
    if (object.is(kText) && step == 1) {
        const string& bytes = object.str();
        size_t from = char_offset(bytes, size_t(begin));
        return object.text().part(from,
                                  char_offset(bytes, size_t(max(end - begin, low)), from) - from);
    }
    Values items, all = items_of(object);
    for (int64_t i = begin; step < 0 ? i > end : i < end;) {
        items.push_back(all[size_t(i)]);
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    if (!object.is(kText)) return {move(items), object.is(kRange) ? kList : object.kind};
    Text text;
    for (const Value& item : items) text.append(item.text());
    return text;
}

} // namespace ks::jinja
