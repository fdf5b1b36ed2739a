#include "tools/json.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace ks
{

using Tree = nlohmann::ordered_json;

Json::Json() : m_value(std::make_unique<Tree>()) {}
Json::Json(bool yes) : m_value(std::make_unique<Tree>(yes)) {}
Json::Json(double number) : m_value(std::make_unique<Tree>(number)) {}
Json::Json(int64_t number) : m_value(std::make_unique<Tree>(number)) {}
Json::Json(uint64_t number) : m_value(std::make_unique<Tree>(number)) {}
Json::Json(std::string_view text) : m_value(std::make_unique<Tree>(text)) {}
Json::Json(const std::vector<uint32_t>& numbers) : m_value(std::make_unique<Tree>(numbers)) {}
Json::Json(const std::vector<double>& numbers) : m_value(std::make_unique<Tree>(numbers)) {}
Json::Json(const std::vector<std::string>& texts) : m_value(std::make_unique<Tree>(texts)) {}
Json::Json(const Json& other) : m_value(std::make_unique<Tree>(*other.m_value)) {}
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(Json other) noexcept
{
    m_value = std::move(other.m_value);
    return *this;
}
Json::~Json() = default;

Json Json::array()
{
    Json json;
    *json.m_value = Tree::array();
    return json;
}

Json Json::object(std::initializer_list<Member> members)
{
    Json json;
    *json.m_value = Tree::object();
    return json.set(members);
}

Json& Json::push(const Json& item)
{
    m_value->push_back(*item.m_value);
    return *this;
}

// The container's own insertion would search all members each time.
Json& Json::set(std::string_view name, const Json& value)
{
    m_value->get_ref<Tree::object_t&>().emplace_back(std::string(name), *value.m_value);
    return *this;
}

Json& Json::set(std::initializer_list<Member> members)
{
    for (const Member& member : members) set(member.name, member.value);
    return *this;
}

bool Json::is_object() const
{
    return m_value->is_object();
}

bool Json::is_text() const
{
    return m_value->is_string();
}

const Tree* Json::find(const char* name) const
{
    if (!m_value->is_object()) return nullptr;
    const auto found = m_value->find(name);
    return found == m_value->end() ? nullptr : &*found;
}

bool Json::has(const char* name) const
{
    return find(name) != nullptr;
}

Json Json::member(const char* name) const
{
    Json json;
    if (const Tree* value = find(name)) *json.m_value = *value;
    return json;
}

double Json::number(const char* name) const
{
    const Tree* value = find(name);
    return value && value->is_number() ? value->get<double>() : 0;
}

std::string Json::text(const char* name) const
{
    const Tree* value = find(name);
    return value && value->is_string() ? value->get_ref<const std::string&>() : std::string();
}

std::vector<double> Json::numbers(const char* name) const
{
    std::vector<double> numbers;
    const Tree* value = find(name);
    if (!value || !value->is_array()) return numbers;
    for (const Tree& item : *value) {
        if (!item.is_number()) break;
        numbers.push_back(item.get<double>());
    }
    return numbers;
}

std::vector<Json::Member> Json::members() const
{
    std::vector<Member> members;
    for (const auto& item : m_value->items()) {
        members.push_back({item.key(), {}});
        *members.back().value.m_value = item.value();
    }
    return members;
}

std::string Json::text() const
{
    return m_value->dump(-1, ' ', false, Tree::error_handler_t::replace);
}

void Json::print() const
{
    const std::string line = text() + "\n";
    fwrite(line.data(), 1, line.size(), stdout);
}

// The position after the bracket that closes the one at `begin`. npos: no such bracket, or too
// deep. The depth is limited because copying and printing a value recurse.
static size_t value_end(std::string_view text, size_t begin)
{
    size_t depth = 0;
    bool quoted = false;
    for (size_t at = begin; at < text.size(); at++) {
        const char c = text[at];
        if (quoted) {
            if (c == '\\') at++;
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '[' || c == '{') {
            if (++depth > Json::kMostDepth) return text.npos;
        } else if ((c == ']' || c == '}') && --depth == 0) {
            return at + 1;
        }
    }
    return text.npos;
}

bool Json::parse(std::string_view text, Json* out)
{
    const size_t begin = text.find_first_of("[{");
    if (begin != text.npos && value_end(text, begin) == text.npos) return false;
    *out->m_value = Tree::parse(text, nullptr, false);
    return !out->m_value->is_discarded();
}

std::vector<Json> Json::find_objects(std::string_view text)
{
    std::vector<Json> objects;
    for (size_t at = 0; (at = text.find_first_of("[{", at)) != text.npos;) {
        const size_t end = value_end(text, at);
        Json json;
        if (end != text.npos && parse(text.substr(at, end - at), &json)) {
            json.take_objects(objects);
            at = end;
        } else {
            at++;
        }
    }
    return objects;
}

void Json::take_objects(std::vector<Json>& out)
{
    if (is_object()) return out.push_back(std::move(*this));
    for (Tree& item : *m_value) {
        if (!item.is_structured()) continue;
        Json inner;
        *inner.m_value = std::move(item);
        inner.take_objects(out);
    }
}

} // namespace ks
