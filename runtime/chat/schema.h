// Translates a JSON schema into a grammar. A part of what the schema allows is enough: numbers have
// at most 15 digits, and no character has more than one way to be written.
#pragma once

#include "runtime/chat/pattern.h"
#include "runtime/chat/value.h"

#include <map>

namespace ks
{

// Types of values, one bit each. A number is an integer or a real.
enum Types : uint32_t {
    kNull = 1,
    kBoolean = 2,
    kInteger = 4,
    kReal = 8,
    kString = 16,
    kArray = 32,
    kObject = 64,
    kNumber = kInteger | kReal,
    kAllTypes = 127,
};

class SchemaReader : GrammarBuilder
{
public:
    static constexpr int kMaxDepth = 64;
    static constexpr size_t kMaxMerged = 100'000;
    explicit SchemaReader(const jinja::Value& root) : m_root(root) {}
    Grammar read(); // errors are Failures

private:
    using Value = jinja::Value;
    struct Schema {
        Value value;
        std::string path;

        const Value* find(std::string_view key) const { return value.find(key); }
        Schema at(const std::string& key) const; // of a keyword
    };
    struct Property {
        std::string name;
        Schema schema;
        bool required;
    };

    // schema.cpp: what holds for a value
    static std::string content_of(const Schema& schema);
    static Schema without(const Schema& schema, std::string_view key);
    static std::vector<Schema> parts_of(const Schema& schema, const std::string& key);
    static uint32_t types_of(const Schema& schema);
    Schema target(const Schema& schema) const;
    Schema resolved(const Schema& schema);
    Schema merged(const Schema& a, const Schema& b);
    Value merged_properties(const Value& a, const Value& b);
    Expr value(const Schema& schema);
    Expr limited_value(const Schema& schema);
    Expr branches(const Schema& schema, const std::string& key);
    Expr enumeration(const Schema& schema, const std::string& key);
    Expr any_of_types(const Schema& schema, uint32_t types);
    bool disjoint(const Schema& a, const Schema& b, int depth);
    uint32_t rule_of(const Schema& schema);

    // schema_types.cpp: values of one type
    Expr as_rule(const std::string& name, const Expr& body);
    Expr naturals(int64_t low, int64_t high);
    Expr number(const Schema& schema, bool is_real);
    Expr string(const Schema& schema);
    Expr array(const Schema& schema);
    Expr object(const Schema& schema);
    Expr members(const std::vector<Property>& list, const Schema* others, const std::string& path);
    Expr other_name(const std::vector<std::u32string>& names);

    const Value& m_root;
    std::map<const void*, uint32_t> m_rules; // of schemas that $ref names
    std::vector<Schema> m_waiting;           // of m_rules, in the order of definition
    uint32_t m_any = 0;                      // the rule of any value
    Expr m_space, m_comma;
    int m_depth = 0;
    size_t m_n_merged = 0; // keywords and items
};

} // namespace ks
