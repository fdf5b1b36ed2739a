// Reads the fields of a request in JSON. The first error stays.
#pragma once

#include "tools/serve/exchange.h"

#include "runtime/chat/value.h"

#include <set>

namespace ks::serve
{

class Fields
{
public:
    // where: the path of the object, for errors; "" at the top.
    explicit Fields(const jinja::Value& object, std::string where = "");

    // The value; null: it is missing or null.
    const jinja::Value* find(const char* name);
    // These return false, and leave *out, if the field is missing.
    bool boolean(const char* name, bool* out);
    bool integer(const char* name, int64_t low, int64_t high, int64_t* out);
    bool number(const char* name, double low, double high, double* out);
    bool text(const char* name, std::string* out);
    const jinja::Value* list(const char* name);
    const jinja::Value* object(const char* name);

    void ignore(std::initializer_list<const char*> names);            // harmless whatever they say
    void skip(const std::string& part) { m_skipped.push_back(part); } // of a field; it is named
    // Refuses fields that are on; they are off at false, at 0, or at a value of their own.
    void refuse_on(std::initializer_list<std::pair<const char*, double>> names);
    void refuse(const char* name, const char* why); // if it is given
    void fail(const HttpError& error)
    {
        if (!m_error) m_error = error;
    }
    std::string path(const std::string& name) const;
    const HttpError& error() const { return m_error; }
    // Fields that were not asked for and parts that were skipped, separated by commas.
    std::string unknown() const;

private:
    const jinja::Value* of_kind(const char* name, jinja::Kind kind, const char* what);

    const jinja::Value m_object;
    const std::string m_where;
    std::set<std::string> m_known;
    std::vector<std::string> m_skipped;
    HttpError m_error;
};

// The body of a request: an object in UTF-8.
HttpError parse_body(std::string_view body, jinja::Value* out);
bool is_utf8(std::string_view text);
// A description of a value for errors: "a string", "5".
std::string describe(const jinja::Value& value);

} // namespace ks::serve
