#include "runtime/chat/value.h"

#include "runtime/text/unicode.h"

#include <algorithm>
#include <cmath>

namespace ks::jinja
{

thread_local Budget* Budget::current = nullptr;

void refuse(const char* format, ...)
{
    char message[1100];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    throw Failure{message};
}

void use_steps(uint64_t n)
{
    Budget* budget = Budget::current;
    if (!budget) return;
    if (uint64_t(budget->steps) < n) refuse("the chat template does not end: too many steps");
    budget->steps -= int64_t(n);
}

void check_text_bytes(uint64_t bytes)
{
    if (bytes > kMaxTextBytes)
        refuse("a text of %llu bytes, at most %llu", (unsigned long long)bytes,
               (unsigned long long)kMaxTextBytes);
}

void check_items(uint64_t items)
{
    if (items > kMaxItems)
        refuse("a list of %llu items, at most %llu", (unsigned long long)items,
               (unsigned long long)kMaxItems);
}

// Refuses if the budget has fewer bytes.
static void check_budget(const Budget* budget, uint64_t n_bytes)
{
    if (budget && budget->bytes < int64_t(n_bytes))
        throw Failure{"the chat template needs too much memory", false, Code::no_fit};
}

void Text::add(string_view more, char author)
{
    check_text_bytes(bytes.size() + more.size());
    check_budget(Budget::current, 2 * more.size());
    bytes += more;
    authors.append(more.size(), author);
}

void Text::append(const Text& other, size_t begin, size_t n)
{
    n = min(n, other.size() - begin);
    check_text_bytes(bytes.size() + n);
    check_budget(Budget::current, 2 * n);
    bytes.append(other.bytes, begin, n);
    authors.append(other.authors, begin, n);
}

Text Text::part(size_t begin, size_t n) const
{
    Text out;
    out.append(*this, begin, n);
    out.safe = safe;
    return out;
}

Object::~Object()
{
    if (budget) budget->bytes += int64_t(bytes);
}

void Object::count(uint64_t n_bytes)
{
    if (!budget) budget = Budget::current;
    if (!budget) return;
    check_budget(budget, n_bytes);
    bytes += n_bytes;
    budget->bytes -= int64_t(n_bytes);
}

Value::Value(Text text) : kind(kText)
{
    auto made = make_shared<TextObject>();
    made->count(sizeof(TextObject) + 2 * text.size());
    use_steps(text.size() / 64);
    for (char c : text.bytes) made->n_chars += (c & 0xc0) != 0x80;
    made->text = move(text);
    object = move(made);
}

Value::Value(vector<Value> items, Kind list_kind) : kind(list_kind)
{
    auto made = make_shared<List>();
    check_items(items.size());
    made->count(sizeof(List) + items.size() * sizeof(Value));
    use_steps(items.size());
    for (const Value& item : items) made->depth = max(made->depth, depth_of(item) + 1);
    if (made->depth > kMaxDepth) refuse("a value is nested deeper than %d", kMaxDepth);
    made->items = move(items);
    object = move(made);
}

Value Value::dict()
{
    auto made = make_shared<Dict>();
    made->count(sizeof(Dict));
    return {kDict, move(made)};
}

const Text& Value::text() const
{
    return static_cast<TextObject&>(*object).text;
}

List& Value::list() const
{
    return static_cast<List&>(*object);
}

vector<Value>& Value::items() const
{
    return list().items;
}

vector<std::pair<Value, Value>>& Value::members() const
{
    return dict_object().items;
}

Dict& Value::dict_object() const
{
    return static_cast<Dict&>(*object);
}

const Value* Value::find(string_view key) const
{
    return is(kDict) ? dict_object().find(key) : nullptr;
}

Value* Dict::find(const Value& key)
{
    auto found = index.find(key_of(key));
    return found == index.end() ? nullptr : &items[found->second].second;
}

void Dict::set(const Value& key, Value value)
{
    if (depth_of(value) >= kMaxDepth) refuse("a value is nested deeper than %d", kMaxDepth);
    depth = max(depth, depth_of(value) + 1);
    auto [found, is_new] = index.emplace(key_of(key), items.size());
    if (!is_new) {
        items[found->second].second = move(value);
        return;
    }
    check_items(items.size());
    items.emplace_back(key, move(value));
    count(2 * sizeof(Value) + 64 + found->first.size());
    use_steps(1);
}

string key_of(const Value& key)
{
    if (key.is(kText)) return "s" + key.str();
    if (key.is(kNone)) return "z";
    if (key.is_number()) {
        double x = key.number();
        if (!key.is(kReal)) return std::to_string(key.integer);
        return x == std::floor(x) && std::fabs(x) < 9e18 ? std::to_string(int64_t(x))
                                                         : "r" + std::to_string(x);
    }
    if (!key.is(kTuple)) refuse("a list or dict cannot be a key");
    string out = "t";
    for (const Value& item : key.items()) {
        string one = key_of(item);
        check_text_bytes(out.size() + one.size());
        out += std::to_string(one.size()) + ":" + one;
    }
    return out;
}

int depth_of(const Value& value)
{
    if (value.has_items()) return value.list().depth;
    return value.is(kDict) ? value.dict_object().depth : 0;
}

char author_in(const Value& value, int depth)
{
    if (depth > kMaxDepth) return kByTemplate;
    use_steps(1);
    if (value.is(kText)) {
        size_t at = value.text().authors.find_first_not_of(kByTemplate);
        return at == string::npos ? kByTemplate : value.text().authors[at];
    }
    vector<Value> parts;
    if (value.has_items()) parts = value.items();
    if (value.is(kDict) || value.is(kNamespace))
        for (const auto& [key, item] : value.members()) parts.insert(parts.end(), {key, item});
    for (const Value& part : parts)
        if (char found = author_in(part, depth + 1); found != kByTemplate) return found;
    return kByTemplate;
}

Value by_author(const Value& value, char author)
{
    if (value.is(kText)) return Text(value.str(), author);
    if (value.has_items()) {
        vector<Value> items;
        for (const Value& item : value.items()) items.push_back(by_author(item, author));
        Value copy(move(items), value.kind);
        copy.list().fixed = true;
        return copy;
    }
    if (!value.is(kDict)) return value;
    Value copy = Value::dict();
    for (const auto& [key, item] : value.members())
        copy.dict_object().set(by_author(key, author), by_author(item, author));
    copy.dict_object().fixed = true;
    return copy;
}

} // namespace ks::jinja
