// Values of one type: numbers, texts, arrays and objects.
#include "runtime/chat/schema.h"

#include "runtime/chat/json.h"
#include "runtime/text/unicode.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ks
{

using jinja::Kind;
using jinja::refuse;
using jinja::Value;
using Expr = GrammarBuilder::Expr;

namespace
{

constexpr uint32_t kMaxCount = 4096; // of characters or items that have an upper limit
constexpr double kInfinity = std::numeric_limits<double>::infinity();

#define KS_DATE                                                                                    \
    "[12]\\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"         \
    "02-(0[1-9]|1\\d|2[0-8]))"
#define KS_HOUR "([01]\\d|2[0-3]):[0-5]\\d"
#define KS_TIME KS_HOUR ":[0-5]\\d(\\.\\d{1,6})?(Z|[+-]" KS_HOUR ")"
#define KS_OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
constexpr std::pair<const char*, const char*> kFormats[] = {
    {"date", "^" KS_DATE "$"},
    {"time", "^" KS_TIME "$"},
    {"date-time", "^" KS_DATE "T" KS_TIME "$"},
    {"uuid", "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
    {"ipv4", "^(" KS_OCTET "\\.){3}" KS_OCTET "$"},
};

// A limit; `otherwise` if there is none.
double limit(const Value& schema, const std::string& path, const char* key, double otherwise)
{
    const Value* value = schema.find(key);
    if (!value) return otherwise;
    if (!value->is_number() || value->is(Kind::boolean))
        refuse("%s/%s: a number was expected", path.c_str(), key);
    return value->number();
}

// How many characters or items there may be.
std::pair<uint32_t, uint32_t> counts(const Value& schema, const std::string& path,
                                     const char* least_key, const char* most_key)
{
    const double least = std::max(0.0, std::ceil(limit(schema, path, least_key, 0))),
                 most = std::floor(limit(schema, path, most_key, kInfinity));
    if (least > most || least > kMaxCount)
        refuse("%s: %s is %g, at most %g were expected", path.c_str(), least_key, least,
               std::min(most, double(kMaxCount)));
    return {uint32_t(least), most == kInfinity ? GrammarBuilder::kUnlimited
                                               : uint32_t(std::min(most, double(kMaxCount)))};
}

} // namespace

Expr SchemaReader::as_rule(const std::string& name, const Expr& body)
{
    const uint32_t rule = add_rule(name);
    define(rule, body);
    return call(rule);
}

// Whole numbers from low to high >= low. Those with the same digits but the last are one way.
Expr SchemaReader::naturals(int64_t low, int64_t high)
{
    const auto digit = [&](int64_t from, int64_t to) {
        return chars({{uint32_t('0' + from), uint32_t('0' + to)}});
    };
    std::vector<Expr> ways;
    if (low < 10) ways.push_back(digit(low, std::min<int64_t>(high, 9)));
    low = std::max<int64_t>(low, 10);
    for (int side = 0; side < 2 && low <= high; side++) {
        const int64_t tens = (side ? high : low) / 10, from = std::max(low, tens * 10),
                      to = std::min(high, tens * 10 + 9);
        if (to - from == 9) continue;
        ways.push_back(seq({text(std::to_string(tens)), digit(from % 10, to % 10)}));
        low = side ? low : to + 1;
        high = side ? from - 1 : high;
    }
    if (low <= high) ways.push_back(seq({naturals(low / 10, high / 10), digit(0, 9)}));
    return alt(std::move(ways));
}

// The whole numbers between the limits, and for reals also what follows them by a fraction.
Expr SchemaReader::number(const Schema& schema, bool is_real)
{
    constexpr double kMost = 999'999'999'999'999;
    const auto bound = [&](const char* key, double otherwise) {
        return limit(schema.value, schema.path, key, otherwise);
    };
    const double low = std::max(std::ceil(bound("minimum", -kInfinity)),
                                std::floor(bound("exclusiveMinimum", -kInfinity)) + 1),
                 high = std::min(std::floor(bound("maximum", kInfinity)),
                                 std::ceil(bound("exclusiveMaximum", kInfinity)) - 1);
    if (is_real && low == -kInfinity && high == kInfinity)
        return parse_regex(*this, "^-?(0|[1-9]\\d{0,14})(\\.\\d{1,15})?([eE][-+]?\\d{1,2})?$");
    if (low > high || low > kMost || high < -kMost)
        refuse("%s: no whole number of 15 digits lies within the limits", schema.path.c_str());
    const auto from = int64_t(std::max(low, -kMost)), to = int64_t(std::min(high, kMost));
    std::vector<Expr> ways;
    const auto add = [&](const char* sign, int64_t least, int64_t most, const char* end) {
        if (least <= most)
            ways.push_back(seq({text(sign), naturals(least, most), parse_regex(*this, end)}));
    };
    add("", std::max<int64_t>(from, 0), to, "^$");
    add("-", std::max<int64_t>(-to, 1), -from, "^$");
    if (is_real) { // a fraction leads away from 0, so not from a limit
        add("", std::max<int64_t>(from, 0), to - 1, "^\\.\\d{1,15}$");
        add("-", std::max<int64_t>(-to, 0), -from - 1, "^\\.\\d{1,15}$");
    }
    return alt(std::move(ways));
}

Expr SchemaReader::string(const Schema& schema)
{
    const auto [least, most] = counts(schema.value, schema.path, "minLength", "maxLength");
    Expr inside = repeat(json_chars(*this, {{0, kMaxCode}}), least, most);
    bool limited = least > 0 || most != kUnlimited;
    for (const char* key : {"pattern", "format"}) {
        if (!schema.find(key)) continue;
        const Schema limit = schema.at(key);
        if (limited) refuse("%s: beside another limit of a text", limit.path.c_str());
        if (!limit.value.is(Kind::text)) refuse("%s: a text was expected", limit.path.c_str());
        std::string pattern = limit.value.text().bytes;
        if (key == std::string_view("format")) {
            const auto row =
                std::find_if(std::begin(kFormats), std::end(kFormats),
                             [&](const auto& format) { return pattern == format.first; });
            if (row == std::end(kFormats))
                refuse("%s: '%s' is not supported", limit.path.c_str(), printable(pattern).c_str());
            pattern = row->second;
        }
        inside = parse_regex(*this, pattern);
        limited = true;
    }
    return seq({text("\""), inside, text("\"")});
}

Expr SchemaReader::array(const Schema& schema)
{
    auto [least, most] = counts(schema.value, schema.path, "minItems", "maxItems");
    std::vector<Schema> prefix;
    if (schema.find("prefixItems")) prefix = parts_of(schema, "prefixItems");
    prefix.resize(std::min<size_t>(prefix.size(), most));
    const auto n = uint32_t(prefix.size());
    least = std::max(least, n) - n;
    most = most == kUnlimited ? most : most - n;
    Schema rest = {true, "any item"};
    if (schema.find("items")) rest = schema.at("items");
    if (schema.find("items") ? rest.value.is(Kind::boolean) && !rest.value.integer : n > 0)
        most = 0;
    if (most < least) refuse("%s: minItems is more than prefixItems has", schema.path.c_str());
    std::vector<Expr> parts = {text("[")};
    for (const Schema& item : prefix) {
        if (parts.size() > 1) parts.push_back(m_comma);
        parts.push_back(value(item));
    }
    if (most > 0) {
        const Expr item = as_rule(rest.path, value(rest)), next = seq({m_comma, item});
        const uint32_t first = n > 0 ? 0 : 1; // items without a comma
        const Expr more =
            repeat(next, std::max(least, first) - first, most == kUnlimited ? most : most - first);
        parts.push_back(n > 0 ? more : repeat(seq({item, more}), least > 0, 1));
    }
    parts.push_back(text("]"));
    return seq(std::move(parts));
}

Expr SchemaReader::object(const Schema& schema)
{
    const Value *properties = schema.find("properties"), *required = schema.find("required"),
                *extra = schema.find("additionalProperties");
    const bool closed = extra ? extra->is(Kind::boolean) && !extra->integer : properties != nullptr;
    const Schema others = extra ? schema.at("additionalProperties") : Schema{true, "any property"};
    if (properties && !properties->is(Kind::dict))
        refuse("%s/properties: an object was expected", schema.path.c_str());
    if (required && !required->is(Kind::list))
        refuse("%s/required: a list was expected", schema.path.c_str());
    std::vector<Property> list;
    for (const auto& [name, value] :
         properties ? properties->dict_object().items : decltype(jinja::Dict::items)()) {
        const std::string& key = name.text().bytes;
        list.push_back({key, {value, schema.path + "/properties/" + printable(key)}, false});
    }
    for (const Value& name : required ? required->list().items : std::vector<Value>()) {
        const std::string key = name.is(Kind::text) ? name.text().bytes : "";
        auto at = std::find_if(list.begin(), list.end(),
                               [&](const Property& property) { return property.name == key; });
        if (at == list.end() && (!name.is(Kind::text) || (extra && closed)))
            refuse("%s/required: '%s' is no property", schema.path.c_str(), printable(key).c_str());
        if (at == list.end())
            at = list.insert(at, {key, extra ? others : Schema{true, key}, false});
        at->required = true;
    }
    return seq({text("{"), members(list, closed ? nullptr : &others, schema.path), text("}")});
}

// The properties in their order, with commas between those that are written.
Expr SchemaReader::members(const std::vector<Property>& list, const Schema* others,
                           const std::string& path)
{
    // What may follow a member, and what may come first.
    Expr rest = text(""), first = rest;
    if (others) {
        std::vector<std::u32string> names;
        for (const Property& property : list) {
            names.emplace_back();
            const std::string& name = property.name;
            int32_t code = 0;
            for (size_t at = 0; at < name.size(); names.back() += char32_t(code))
                at += std::max<size_t>(1, utf8_char(&name[at], &name[0] + name.size(), &code));
            if (names.back().size() > 100)
                refuse("%s: a name of more than 100 characters beside additionalProperties",
                       path.c_str());
        }
        const Expr member =
            as_rule(others->path,
                    seq({text("\""), other_name(names), text("\":"), m_space, value(*others)}));
        rest = repeat(seq({m_comma, member}), 0, kUnlimited);
        first = optional(seq({member, rest}));
    }
    for (size_t i = list.size(); i-- > 0;) {
        const Property& property = list[i];
        const Expr member = as_rule(
            property.schema.path,
            seq({text(jinja::write(Value(property.name)) + ":"), m_space, value(property.schema)}));
        Expr alone = seq({member, rest}), next = seq({m_comma, member, rest});
        if (!property.required) next = alt({next, rest});
        if (!property.required) alone = alt({alone, first});
        rest = as_rule(property.schema.path, next);
        first = as_rule(property.schema.path, alone);
    }
    return first;
}

// The name of a property that is none of the names, without escapes.
Expr SchemaReader::other_name(const std::vector<std::u32string>& names)
{
    std::map<uint32_t, std::vector<std::u32string>> tails; // by first character
    bool ends = false;                                     // one of the names ends here
    for (const std::u32string& name : names)
        if (name.empty())
            ends = true;
        else
            tails[name[0]].push_back(name.substr(1));
    Ranges taken = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
    const Ranges any = complement(taken);
    std::vector<Expr> ways;
    for (const auto& [code, rest] : tails) {
        if (!intersection(any, {{code, code}}).empty())
            ways.push_back(seq({chars({{code, code}}), other_name(rest)}));
        taken.push_back({code, code});
    }
    ways.push_back(seq({chars(complement(taken)), repeat(chars(any), 0, kUnlimited)}));
    if (!ends) ways.push_back(text(""));
    return alt(std::move(ways));
}

} // namespace ks
