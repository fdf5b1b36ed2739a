#include "tools/serve/fields.h"

#include "runtime/chat/json.h"
#include "runtime/text/unicode.h"

#include <cmath>

namespace ks::serve
{

using jinja::Value;

std::string describe(const Value& value)
{
    switch (value.kind) {
    case jinja::kNone:
        return "null";
    case jinja::kBoolean:
        return value.integer ? "true" : "false";
    case jinja::kInteger:
    case jinja::kReal:
        return jinja::write(value);
    case jinja::kText:
        return "the string '" + printable(value.str(), 40) + "'";
    case jinja::kList:
        return "an array";
    case jinja::kDict:
        return "an object";
    default:
        return "something else";
    }
}

Fields::Fields(const Value& object, std::string where) : m_object(object), m_where(std::move(where))
{
}

std::string Fields::path(const std::string& name) const
{
    return m_where.empty() ? name : m_where + "." + name;
}

const Value* Fields::find(const char* name)
{
    m_known.insert(name);
    const Value* value = m_object.find(name);
    return value && !value->is(jinja::kNone) ? value : nullptr;
}

static HttpError expected(const std::string& path, const std::string& what, const Value& value)
{
    return bad_field(path, path + ": expected " + what + ", found " + describe(value));
}

bool Fields::boolean(const char* name, bool* out)
{
    const Value* value = of_kind(name, jinja::kBoolean, "true or false");
    if (value) *out = value->integer != 0;
    return value;
}

bool Fields::integer(const char* name, int64_t low, int64_t high, int64_t* out)
{
    const Value* value = find(name);
    if (!value) return false;
    double number = 0;
    const bool is_number = value->is(jinja::kInteger) || value->is(jinja::kReal);
    if (is_number) number = value->number();
    if (!is_number || number != std::floor(number) || number < double(low) ||
        number > double(high)) {
        fail(expected(path(name),
                      "an integer from " + std::to_string(low) + " to " + std::to_string(high),
                      *value));
        return false;
    }
    *out = value->is(jinja::kInteger) ? value->integer : int64_t(number);
    return true;
}

bool Fields::number(const char* name, double low, double high, double* out)
{
    const Value* value = find(name);
    if (!value) return false;
    if ((!value->is(jinja::kInteger) && !value->is(jinja::kReal)) || value->number() < low ||
        value->number() > high) {
        char range[80];
        snprintf(range, sizeof range, "a number from %g to %g", low, high);
        fail(expected(path(name), range, *value));
        return false;
    }
    *out = value->number();
    return true;
}

const Value* Fields::of_kind(const char* name, jinja::Kind kind, const char* what)
{
    const Value* value = find(name);
    if (!value || value->is(kind)) return value;
    fail(expected(path(name), what, *value));
    return nullptr;
}

bool Fields::text(const char* name, std::string* out)
{
    const Value* value = of_kind(name, jinja::kText, "a string");
    if (value) *out = value->str();
    return value;
}

const Value* Fields::list(const char* name)
{
    return of_kind(name, jinja::kList, "an array");
}

const Value* Fields::object(const char* name)
{
    return of_kind(name, jinja::kDict, "an object");
}

void Fields::ignore(std::initializer_list<const char*> names)
{
    for (const char* name : names) m_known.insert(name);
}

void Fields::refuse_on(std::initializer_list<std::pair<const char*, double>> names)
{
    for (const auto& [name, off] : names) {
        const Value* value = find(name);
        if (!value || (value->is_number() && (value->number() == off || value->number() == 0)) ||
            (value->has_items() && value->items().empty()))
            continue;
        fail(unsupported_field(path(name), path(name) + ": this server does not have it; leave it "
                                                        "out"));
    }
}

void Fields::refuse(const char* name, const char* why)
{
    if (find(name)) fail(unsupported_field(path(name), path(name) + ": " + why));
}

std::string Fields::unknown() const
{
    std::string names;
    for (const auto& member : m_object.members())
        if (!m_known.count(member.first.str()))
            names += (names.empty() ? "" : ",") + printable(member.first.str(), 40);
    for (const std::string& part : m_skipped) names += (names.empty() ? "" : ",") + part;
    return names.substr(0, 400);
}

bool is_utf8(std::string_view text)
{
    const char *at = text.data(), *const end = at + text.size();
    for (int32_t code = 0; at < end;) {
        at += utf8_char(at, end, &code);
        if (code < 0) return false;
    }
    return true;
}

HttpError parse_body(std::string_view body, Value* out)
{
    const auto bad_json = [](const std::string& message) {
        return HttpError{400, "invalid_request_error", "bad_json", message, ""};
    };
    if (body.substr(0, 3) == "\xef\xbb\xbf") body.remove_prefix(3);
    if (!is_utf8(body)) return bad_json("the body is not valid UTF-8");
    jinja::JsonLimits limits;
    limits.bytes = (512 << 10) + 3 * body.size(); // a text has an author for each byte
    limits.depth = 64;
    Result<Value> parsed = jinja::parse_json(body, limits);
    if (!parsed.ok()) return bad_json(parsed.status().message());
    if (!parsed.value().is(jinja::kDict))
        return bad_json("the body: expected a JSON object, found " + describe(parsed.value()));
    *out = std::move(parsed.value());
    return {};
}

} // namespace ks::serve
