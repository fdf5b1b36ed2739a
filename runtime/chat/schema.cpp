#include "runtime/chat/schema.h"

#include "runtime/chat/json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace ks
{

using jinja::Kind;
using jinja::refuse;
using jinja::Value;
using Expr = GrammarBuilder::Expr;

namespace
{

constexpr std::pair<const char*, uint32_t> kTypes[] = {
    {"null", kNull},     {"boolean", kBoolean}, {"integer", kInteger}, {"number", kNumber},
    {"string", kString}, {"array", kArray},     {"object", kObject}};

// Keywords that are understood, and the types that they are about. 0: they change no answer.
constexpr std::pair<const char*, uint32_t> kKeywords[] = {
    {"title description default examples $schema $id $comment $defs definitions readOnly writeOnly "
     "deprecated",
     0},
    {"$ref allOf anyOf oneOf type enum const", kAllTypes},
    {"properties required additionalProperties", kObject},
    {"items prefixItems minItems maxItems", kArray},
    {"minLength maxLength pattern format", kString},
    {"minimum maximum exclusiveMinimum exclusiveMaximum", kNumber}};

// The bits of the row that names a text.
template <class Table>
uint32_t find_row(const Table& table, const Value& name)
{
    const std::string word = name.is(Kind::text) ? " " + name.text().bytes + " " : "";
    for (const auto& [words, bits] : table)
        if (word.find(' ', 1) + 1 == word.size() &&
            (" " + std::string(words) + " ").find(word) != std::string::npos)
            return bits;
    return kAllTypes + 1;
}

bool same(const Value& a, const Value& b)
{
    if (a.is_number() && b.is_number())
        return a.is(Kind::boolean) == b.is(Kind::boolean) && a.number() == b.number();
    jinja::WriteStyle style;
    style.sorted = true;
    return jinja::write(a, style) == jinja::write(b, style);
}

bool contains(const std::vector<Value>& values, const Value& value)
{
    return std::any_of(values.begin(), values.end(),
                       [&](const Value& other) { return same(value, other); });
}

std::vector<Value> items_of(const Value* list)
{
    return list && list->is(Kind::list) ? list->list().items : std::vector<Value>();
}

uint32_t type_of(const Value& value)
{
    constexpr std::pair<Kind, uint32_t> kKinds[] = {
        {Kind::none, kNull},   {Kind::boolean, kBoolean}, {Kind::integer, kInteger},
        {Kind::text, kString}, {Kind::dict, kObject},     {Kind::list, kArray}};
    for (auto [kind, bits] : kKinds)
        if (value.is(kind)) return bits;
    return value.number() == std::floor(value.number()) ? kInteger : kReal;
}

// The values of const or enum; none if there is neither.
std::vector<Value> fixed_values(const Value& schema)
{
    const Value* one = schema.find("const");
    return one ? std::vector<Value>{*one} : items_of(schema.find("enum"));
}

} // namespace

SchemaReader::Schema SchemaReader::Schema::at(const std::string& key) const
{
    return {*find(key), path + "/" + key};
}

Grammar SchemaReader::read()
{
    m_space = optional(text(" ")); // a model must not write spaces for ever
    m_comma = seq({text(","), m_space});
    m_any = add_rule("any value");
    define(m_any, any_of_types({Value::dict(), "any value"}, kAllTypes));
    const uint32_t root = rule_of({m_root, "#"});
    for (size_t i = 0; i < m_waiting.size(); i++) { // grows meanwhile
        const Schema schema = m_waiting[i];
        define(m_rules[schema.value.object.get()], value(schema));
    }
    const std::string endless = find_endless();
    if (!endless.empty()) refuse("%s: no finite value is allowed", endless.c_str());
    return build(root);
}

// The rule of a schema that others name. It is defined later: schemas may contain themselves.
uint32_t SchemaReader::rule_of(const Schema& schema)
{
    const auto [at, is_new] = m_rules.insert({schema.value.object.get(), 0});
    if (is_new) {
        at->second = add_rule(schema.path);
        m_waiting.push_back(schema);
    }
    return at->second;
}

Expr SchemaReader::value(const Schema& schema)
{
    const std::string content = content_of(schema);
    if (content.empty()) return call(m_any);
    if (content == "$ref") return call(rule_of(target(schema)));
    if (++m_depth > kMaxDepth) refuse("%s: nested too deeply", schema.path.c_str());
    Expr out = limited_value(schema);
    m_depth--;
    return out;
}

Expr SchemaReader::limited_value(const Schema& schema)
{
    if (schema.find("$ref")) return value(resolved(schema));
    if (schema.find("allOf")) {
        Schema all = without(schema, "allOf");
        for (const Schema& part : parts_of(schema, "allOf")) all = merged(all, part);
        return value(all);
    }
    for (const char* key : {"anyOf", "oneOf"})
        if (schema.find(key)) return branches(schema, key);
    for (const char* key : {"const", "enum"})
        if (schema.find(key)) return enumeration(schema, key);
    return any_of_types(schema, types_of(schema));
}

Expr SchemaReader::any_of_types(const Schema& schema, uint32_t types)
{
    std::vector<Expr> ways;
    if (types & kNull) ways.push_back(text("null"));
    if (types & kBoolean) ways.push_back(alt({text("true"), text("false")}));
    if (types & kNumber) ways.push_back(number(schema, types & kReal));
    if (types & kString) ways.push_back(string(schema));
    if (types & kArray) ways.push_back(array(schema));
    if (types & kObject) ways.push_back(object(schema));
    return alt(std::move(ways));
}

// The only keyword that limits the value, "" if there is none, or "...". Refuses unknown keywords.
std::string SchemaReader::content_of(const Schema& schema)
{
    const Value& value = schema.value;
    if (value.is(Kind::boolean) && value.integer) return "";
    if (!value.is(Kind::dict))
        refuse("%s: %s", schema.path.c_str(),
               value.is(Kind::boolean) ? "false allows no value" : "a schema was expected");
    std::string content;
    for (const auto& [name, unused] : value.dict_object().items) {
        const uint32_t bits = find_row(kKeywords, name);
        if (bits > kAllTypes)
            refuse("%s: the keyword '%s' is not supported", schema.path.c_str(),
                   printable(name.text().bytes).c_str());
        if (bits) content = content.empty() ? name.text().bytes : "...";
    }
    return content;
}

SchemaReader::Schema SchemaReader::without(const Schema& schema, std::string_view key)
{
    Schema out = {Value::dict(), schema.path};
    for (const auto& [name, value] : schema.value.dict_object().items)
        if (name.text().bytes != key) out.value.dict_object().set(name, value);
    return out;
}

std::vector<SchemaReader::Schema> SchemaReader::parts_of(const Schema& schema,
                                                         const std::string& key)
{
    const Schema list = schema.at(key);
    std::vector<Schema> parts;
    for (const Value& part : items_of(&list.value))
        parts.push_back({part, list.path + "/" + std::to_string(parts.size())});
    if (parts.empty()) refuse("%s: a list that is not empty was expected", list.path.c_str());
    return parts;
}

// What a $ref names: '#' and the keys and indexes that lead to it.
SchemaReader::Schema SchemaReader::target(const Schema& schema) const
{
    const Value& ref = *schema.find("$ref");
    const std::string path = ref.is(Kind::text) ? ref.text().bytes : "";
    const Value* at = path[0] == '#' && (path.size() == 1 || path[1] == '/') ? &m_root : nullptr;
    for (size_t begin = 2, end = 0; at && begin <= path.size(); begin = end + 1) {
        end = std::min(path.find('/', begin), path.size());
        std::string key = path.substr(begin, end - begin);
        for (size_t i = key.find('~'); i < key.size(); i = key.find('~', i + 1))
            key.replace(i, 2, key[i + 1] == '1' ? "/" : "~");
        const size_t index = strtoul(key.c_str(), nullptr, 10);
        if (!at->is(Kind::list))
            at = at->find(key);
        else
            at = index < at->list().items.size() ? &at->list().items[index] : nullptr;
    }
    if (!at || !at->is(Kind::dict))
        refuse("%s: $ref '%s' names no schema in this file", schema.path.c_str(),
               printable(path).c_str());
    return {*at, printable(path)};
}

// With what $ref names in its place.
SchemaReader::Schema SchemaReader::resolved(const Schema& schema)
{
    if (!schema.find("$ref")) return schema;
    if (++m_depth > kMaxDepth) refuse("%s: $ref leads to itself", schema.path.c_str());
    Schema out = resolved(merged(without(schema, "$ref"), target(schema)));
    m_depth--;
    return out;
}

// A property of both has both schemas.
Value SchemaReader::merged_properties(const Value& a, const Value& b)
{
    Value all = without({a, ""}, "").value;
    for (const auto& [name, schema] : b.dict_object().items) {
        Value pair = Value::dict();
        const Value* other = a.find(name.text().bytes);
        if (other) pair.dict_object().set("allOf", std::vector<Value>{*other, schema});
        all.dict_object().set(name, other ? pair : schema);
    }
    return all;
}

// A schema that holds if both do.
SchemaReader::Schema SchemaReader::merged(const Schema& a, const Schema& b)
{
    if (content_of(b).empty()) return a;
    if (content_of(a).empty()) return b;
    m_n_merged += a.value.dict_object().items.size() + b.value.dict_object().items.size();
    if (m_n_merged > kMaxMerged) refuse("%s: too many schemas to merge", b.path.c_str());
    Schema out = without(resolved(a), "");
    const auto merge = [&](const std::string& key, const Value& old, const Value& value) -> Value {
        const bool upper = key.find("ax") != key.npos;
        std::vector<Value> both = items_of(&old);
        for (const Value& item : items_of(&value)) both.push_back(item);
        m_n_merged += both.size();
        if (key == "required" || key == "allOf") return both;
        if (key == "type") {
            const uint32_t types = types_of(out) & types_of(b);
            both.clear();
            for (const auto& [name, bits] : kTypes)
                if ((types & bits) == bits) both.push_back(name);
            return both;
        }
        if (key == "properties" && old.is(Kind::dict) && value.is(Kind::dict))
            return merged_properties(old, value);
        if (!old.is_number() || !value.is_number())
            refuse("%s: '%s' is given twice", b.path.c_str(), key.c_str());
        return (old.number() < value.number()) == upper ? old : value;
    };
    const char *const names = "properties", *const others = "additionalProperties";
    if ((out.find(others) && b.find(names)) || (b.find(others) && out.find(names)))
        refuse("%s: additionalProperties beside other properties", b.path.c_str());
    for (const auto& [name, value] : resolved(b).value.dict_object().items) {
        const std::string& key = name.text().bytes;
        const Value* old = find_row(kKeywords, name) ? out.find(key) : nullptr;
        out.value.dict_object().set(name,
                                    old && !same(*old, value) ? merge(key, *old, value) : value);
    }
    return out;
}

Expr SchemaReader::branches(const Schema& schema, const std::string& key)
{
    const std::vector<Schema> parts = parts_of(schema, key);
    const Schema rest = without(schema, key);
    std::vector<Expr> ways;
    for (const Schema& part : parts) {
        for (const Schema* other = parts.data(); key == "oneOf" && other != &part; other++)
            if (!disjoint(*other, part, 0))
                refuse("%s: a value may match %s too; use anyOf", part.path.c_str(),
                       other->path.c_str());
        ways.push_back(value(merged(rest, part)));
    }
    return alt(std::move(ways));
}

// Whether no value matches both: types or values differ, or those of a property that both require.
bool SchemaReader::disjoint(const Schema& a, const Schema& b, int depth)
{
    if (content_of(a).empty() || content_of(b).empty() || depth > 8) return false;
    if (a.find("$ref")) return disjoint(resolved(a), b, depth + 1);
    if (b.find("$ref")) return disjoint(b, a, depth + 1);
    const auto types = [](const Schema& schema) {
        uint32_t of_values = 0;
        for (const Value& value : fixed_values(schema.value)) of_values |= type_of(value);
        const uint32_t named = schema.find("type") ? types_of(schema) : uint32_t(kAllTypes);
        return of_values ? named & of_values : named;
    };
    const uint32_t common = types(a) & types(b);
    const std::vector<Value> of_a = fixed_values(a.value), of_b = fixed_values(b.value);
    if (common == 0) return true;
    if (!of_a.empty() && !of_b.empty())
        return std::none_of(of_a.begin(), of_a.end(),
                            [&](const Value& value) { return contains(of_b, value); });
    const Value *names = a.find("properties"), *others = b.find("properties");
    if (common != kObject || !names || !others) return false;
    for (const Value& name : items_of(a.find("required"))) {
        if (!name.is(Kind::text) || !contains(items_of(b.find("required")), name)) continue;
        const Value *one = names->find(name.text().bytes), *other = others->find(name.text().bytes);
        if (one && other && disjoint({*one, a.path}, {*other, b.path}, depth + 1)) return true;
    }
    return false;
}

Expr SchemaReader::enumeration(const Schema& schema, const std::string& key)
{
    if (key == "enum") (void)parts_of(schema, key); // it is a list
    for (const auto& [name, unused] : schema.value.dict_object().items)
        if (find_row(kKeywords, name) % kAllTypes)
            refuse("%s: '%s' beside '%s' is not supported", schema.path.c_str(),
                   name.text().bytes.c_str(), key.c_str());
    const Value* list = schema.find("enum");
    std::vector<Expr> ways;
    for (const Value& value : fixed_values(schema.value))
        if (type_of(value) & types_of(schema) && (!list || contains(items_of(list), value)))
            ways.push_back(text(jinja::write(value)));
    if (ways.empty()) refuse("%s/%s: no value fits", schema.path.c_str(), key.c_str());
    return alt(std::move(ways));
}

// The types that the schema names, or those that its keywords are about.
uint32_t SchemaReader::types_of(const Schema& schema)
{
    uint32_t types = 0, about = 0;
    const Value* type = schema.find("type");
    for (const Value& name : type && !type->is(Kind::list) ? std::vector{*type} : items_of(type)) {
        types |= find_row(kTypes, name);
        if (types > kAllTypes)
            refuse("%s/type: the name of a type was expected", schema.path.c_str());
    }
    if (type && types == 0) refuse("%s: no type is left", schema.path.c_str());
    for (const auto& [name, unused] : schema.value.dict_object().items)
        about |= find_row(kKeywords, name) % kAllTypes;
    return types ? types : about ? about : uint32_t(kAllTypes);
}

Result<Grammar> parse_json_schema(std::string_view text)
{
    try {
        const jinja::JsonLimits limits = {Grammar::kMaxBytes, 100'000, SchemaReader::kMaxDepth};
        Result<Value> schema = jinja::parse_json(text, limits);
        if (!schema.ok()) return schema.status();
        return SchemaReader(schema.value()).read();
    } catch (const jinja::Failure& failure) {
        return Status(Code::invalid, "JSON schema: " + failure.message);
    }
}

} // namespace ks
