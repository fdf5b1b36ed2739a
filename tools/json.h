// JSON values, by nlohmann-json. Its header takes seconds to compile, so json.cpp alone includes
// it.
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
    Json(double number); // written as null where it is not finite
    Json(int64_t number);
    Json(uint64_t number);
    Json(int number) : Json(int64_t(number)) {}
    Json(uint32_t number) : Json(uint64_t(number)) {}
    Json(std::string_view text); // any bytes: what is not UTF-8 is written as U+FFFD
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

    Json& push(const Json& item); // of an array
    Json& set(std::string_view name,
              const Json& value); // a new member of an object; members keep their order
    Json& set(std::initializer_list<Member> members);

    bool is_object() const;
    bool is_text() const;
    bool has(const char* name) const;
    Json member(const char* name) const;      // null where it is not there
    double number(const char* name) const;    // 0 where it is not there or no number
    std::string text(const char* name) const; // empty where it is not there or no text
    std::vector<double>
    numbers(const char* name) const;     // of an array, up to the first item that is no number
    std::vector<Member> members() const; // of an object

    std::string text() const; // one line
    void print() const;       // on standard output, with a newline

    static constexpr size_t kMostDepth = 64; // what is nested deeper is not read
    static bool parse(std::string_view text, Json* out);
    // The outermost objects of all JSON values in a text, alone or in arrays; what is no JSON is
    // passed over.
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
