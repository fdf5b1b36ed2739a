#include "runtime/kv/recipe.h"

namespace ks
{

struct RecipeName {
    const char* name;
    bool automatic;
};
static const RecipeName kNames[] = {{"exact", false}, {"auto", true}};

struct CodecName {
    const char* name;
    Format format;
};
static const CodecName kCodecs[] = {{"f16", Format::f16}, {"f32", Format::f32}};

static std::string_view take_until_comma(std::string_view& text)
{
    size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    text = comma == text.npos ? std::string_view() : text.substr(comma + 1);
    return part;
}

static Status parse_codec(std::string_view key, std::string_view value, Format* out)
{
    std::string possible;
    for (const CodecName& codec : kCodecs) {
        if (value == codec.name) {
            *out = codec.format;
            return {};
        }
        possible += possible.empty() ? codec.name : std::string(" ") + codec.name;
    }
    return fail(Code::unsupported, "recipe: %s=%s is not a cache codec of this build; possible: %s", std::string(key).c_str(),
                printable(value).c_str(), possible.c_str());
}

Result<Recipe> parse_recipe(std::string_view text)
{
    Recipe recipe;
    std::string_view name = take_until_comma(text);
    bool known = false;
    std::string possible;
    for (const RecipeName& row : kNames) {
        if (name == row.name) {
            known = true;
            recipe.automatic = row.automatic;
        }
        possible += possible.empty() ? row.name : std::string(" ") + row.name;
    }
    if (!known)
        return fail(Code::unsupported, "recipe '%s' is not one of this build; possible: %s", printable(name).c_str(), possible.c_str());
    while (!text.empty()) {
        std::string_view item = take_until_comma(text);
        size_t equals = item.find('=');
        std::string_view key = item.substr(0, equals);
        std::string_view value = equals == item.npos ? std::string_view() : item.substr(equals + 1);
        if (key == "k") {
            KS_TRY(parse_codec(key, value, &recipe.k));
        } else if (key == "v") {
            KS_TRY(parse_codec(key, value, &recipe.v));
        } else {
            return fail(Code::unsupported, "recipe: '%s' is not an option of this build; possible: k=f16|f32 v=f16|f32",
                        printable(item).c_str());
        }
    }
    return recipe;
}

static const char* codec_name(Format format)
{
    for (const CodecName& codec : kCodecs)
        if (codec.format == format) return codec.name;
    return "?";
}

std::string recipe_text(const Recipe& recipe)
{
    return std::string("exact,k=") + codec_name(recipe.k) + ",v=" + codec_name(recipe.v);
}

} // namespace ks
