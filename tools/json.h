// Writes one JSON value into a string. Strings may hold any bytes: what is not UTF-8 becomes U+FFFD.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ks
{

class Json
{
public:
    Json& open(char bracket); // '{' or '['
    Json& close(char bracket);
    Json& key(std::string_view name);
    Json& value(std::string_view text);
    Json& value(const char* text) { return value(std::string_view(text)); }
    Json& value(bool yes) { return raw(yes ? "true" : "false"); }
    Json& value(double number); // null where it is not finite
    Json& value(uint64_t number) { return raw(std::to_string(number)); }
    Json& value(int number) { return raw(std::to_string(number)); }
    Json& value(uint32_t number) { return raw(std::to_string(number)); }
    Json& null() { return raw("null"); }
    template <class T> Json& member(std::string_view name, const T& v) { return key(name).value(v); }
    template <class Container> Json& array(std::string_view name, const Container& items)
    {
        key(name).open('[');
        for (const auto& item : items) value(item);
        return close(']');
    }

    Json& raw(std::string_view text);
    const std::string& text() const { return m_text; }
    void print() const; // on standard output, with a newline

private:
    void separate();

    std::string m_text;
    bool m_first = true; // nothing stands before in this bracket, or a key does
};

} // namespace ks
