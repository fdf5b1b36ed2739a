#include "tools/json_reader.h"

#include <cctype>
#include <cstdint>

namespace ks
{
namespace
{

struct JsonReader {
    const std::string& text;
    size_t at = 0;
    std::vector<JsonMembers> objects;
    static constexpr int kMostDepth = 32;

    void skip_space()
    {
        while (at < text.size() && isspace(uint8_t(text[at]))) at++;
    }
    bool take(char c)
    {
        skip_space();
        if (at == text.size() || text[at] != c) return false;
        at++;
        return true;
    }

    bool string(std::string* out)
    {
        if (!take('"')) return false;
        for (; at < text.size() && text[at] != '"'; at++) {
            *out += text[at];
            if (text[at] == '\\' && at + 1 < text.size()) *out += text[++at];
        }
        return take('"');
    }

    bool scalar(std::string* out)
    {
        skip_space();
        if (at < text.size() && text[at] == '"') return string(out);
        const size_t begin = at;
        while (at < text.size() && (isalnum(uint8_t(text[at])) || text[at] == '-' || text[at] == '+' || text[at] == '.')) at++;
        *out = text.substr(begin, at - begin);
        return at > begin;
    }

    bool array(JsonMembers* members, int depth)
    {
        if (take(']')) return true;
        JsonMembers unnamed;
        do {
            if (!value(members ? &unnamed : nullptr, "", depth + 1)) return false;
        } while (take(','));
        return take(']');
    }

    bool object(JsonMembers& members, const std::string& prefix, int depth)
    {
        if (take('}')) return true;
        do {
            std::string name;
            if (!string(&name) || !take(':') || !value(&members, prefix + name, depth + 1)) return false;
        } while (take(','));
        return take('}');
    }

    // members: of the object around it; null: it is in none.
    bool value(JsonMembers* members, const std::string& name, int depth)
    {
        if (depth > kMostDepth) return false;
        if (take('[')) return array(members, depth);
        if (take('{')) {
            if (members) return object(*members, name + ".", depth);
            JsonMembers outermost;
            if (!object(outermost, "", depth)) return false;
            objects.push_back(std::move(outermost));
            return true;
        }
        std::string scalar_text;
        if (!scalar(&scalar_text)) return false;
        if (members) (*members)[name] = scalar_text;
        return true;
    }
};

} // namespace

std::vector<JsonMembers> find_json_objects(const std::string& text)
{
    JsonReader reader{text, 0, {}};
    while ((reader.at = text.find_first_of("[{", reader.at)) != text.npos) {
        const size_t begin = reader.at, n_objects = reader.objects.size();
        if (reader.value(nullptr, "", 0)) continue;
        reader.objects.resize(n_objects);
        reader.at = begin + 1;
    }
    return std::move(reader.objects);
}

} // namespace ks
