// JSON values, a wrapper of nlohmann-json. Its header takes seconds to compile, so only json.cpp
// includes it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ks
{

class Json
{
public:
    struct Member;

    Json(); // null
    Json(bool yes);
    Json(double number); // not finite: written as null
    Json(int64_t number);
    Json(uint64_t number);
    Json(int number) : Json(int64_t(number)) {}
    Json(uint32_t number) : Json(uint64_t(number)) {}
    Json(std::string_view text); // any bytes; invalid UTF-8 is written as U+FFFD
    Json(const std::string& text) : Json(std::string_view(text)) {}
    Json(const char* text) : Json(std::string_view(text)) {}
    Json(const std::vector<uint32_t>& numbers);
    Json(const std::vector<double>& numbers);
    Json(const std::vector<std::string>& texts);
    static Json array();
    static Json object(std::initializer_list<Member> members = {});
    Json(const Json& other);
    Json(Json&& other) noexcept;
    Json& operator=(Json other) noexcept;
    ~Json();

    Json& push(const Json& item); // appends to an array
    // Appends a member to an object. Members keep their order.
    Json& set(std::string_view name, const Json& value);
    Json& set(std::initializer_list<Member> members);

    bool is_object() const;
    bool is_text() const;
    bool has(const char* name) const;
    Json member(const char* name) const;      // null if missing
    double number(const char* name) const;    // 0 if missing or no number
    std::string text(const char* name) const; // empty if missing or no text
    // The numbers of an array, up to the first item that is no number.
    std::vector<double> numbers(const char* name) const;
    std::vector<Member> members() const; // of an object

    std::string text() const; // one line
    void print() const;       // on standard output, with a newline

    static constexpr size_t kMostDepth = 64; // deeper nesting is refused
    static bool parse(std::string_view text, Json* out);
    // All outermost objects in a text, alone or in arrays. Skips everything that is no JSON.
    static std::vector<Json> find_objects(std::string_view text);

private:
    const nlohmann::ordered_json* find(const char* name) const;
    void take_objects(std::vector<Json>& out);

    std::unique_ptr<nlohmann::ordered_json> m_value;
};

struct Json::Member {
    std::string name;
    Json value;
};

} // namespace ks
