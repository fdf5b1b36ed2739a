#include "tools/json.h"

#include <cmath>
#include <cstdio>
#include <utf8proc.h>

namespace ks
{

void Json::separate()
{
    if (!m_first) m_text += ',';
    m_first = false;
}

Json& Json::open(char bracket)
{
    separate();
    m_text += bracket;
    m_first = true;
    return *this;
}

Json& Json::close(char bracket)
{
    m_text += bracket;
    m_first = false;
    return *this;
}

Json& Json::key(std::string_view name)
{
    value(name);
    m_text += ':';
    m_first = true;
    return *this;
}

Json& Json::raw(std::string_view text)
{
    separate();
    m_text += text;
    return *this;
}

Json& Json::value(double number)
{
    if (!std::isfinite(number)) return null();
    char text[32];
    snprintf(text, sizeof text, "%.10g", number);
    return raw(text);
}

Json& Json::value(std::string_view text)
{
    separate();
    m_text += '"';
    for (size_t at = 0; at < text.size();) {
        utf8proc_int32_t c;
        auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
        utf8proc_ssize_t length = utf8proc_iterate(bytes + at, utf8proc_ssize_t(text.size() - at), &c);
        if (length <= 0) {
            m_text += "\xef\xbf\xbd";
            at++;
            continue;
        }
        if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f) {
            char escaped[8];
            snprintf(escaped, sizeof escaped, "\\u%04x", unsigned(c));
            if (c == '"' || c == '\\') snprintf(escaped, sizeof escaped, "\\%c", char(c));
            if (c == '\n') snprintf(escaped, sizeof escaped, "\\n");
            m_text += escaped;
        } else {
            m_text += text.substr(at, size_t(length));
        }
        at += size_t(length);
    }
    m_text += '"';
    return *this;
}

void Json::print() const
{
    printf("%s\n", m_text.c_str());
}

} // namespace ks
