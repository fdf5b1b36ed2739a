#include "runtime/kv/recipe.h"

#include "runtime/kv/rules.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ks
{

// Names of recipes, each with the options that it stands for. The name of a codec is one as well:
// it stands for k= and v= of that codec.
struct RecipeName {
    const char* name;
    const char* options;
};
static const RecipeName kNames[] = {
    {"exact", "retain=all"},
    {"window", "retain=window,sink=0"},
    {"sink", "retain=sink"},
    {"h2o", "retain=h2o"},
    {"scissorhands", "retain=scissorhands,observe=400"},
    {"tova", "retain=tova,observe=8"},
    {"snapkv", "retain=snapkv"},
    {"pyramid", "retain=snapkv,split=pyramid"},
    {"ada", "retain=snapkv,split=ada"},
    {"keydiff", "retain=keydiff"},
    {"kcenter", "retain=kcenter"},
    {"subgen", "retain=subgen"},
    {"mix", "retain=mix"},
    {"kivi2", "retain=all,k=kivi2,v=turbo3"},
    {"tokenselect", "retain=all,select=tokenselect"},
    {"quest", "retain=all,select=quest"},
    {"infllm", "retain=all,select=infllm"},
    {"auto", "retain=all"},
};

// Whether k= and v= may name a format. They do not name the layouts that only values have:
// codec_of_values() chooses these.
static bool has_name(Format format)
{
    for (int i = int(Format::n_weights); i < int(Format::count); i++)
        if (Format(i) != format && codec_of_values(Format(i)) == format) return false;
    return format <= Format::f16 || is_coded(format);
}

static const char* const kVictims[] = {"drop", "merge"};
static const char* const kSplits[] = {"uniform", "pyramid", "ada"};
static const char* const kPositions[] = {"absolute", "offset", "compact"};
static const char* const kRopes[] = {"file", "linear", "ntk", "yarn"};

static std::string_view take_until_comma(std::string_view& text)
{
    size_t comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    text = comma == text.npos ? std::string_view() : text.substr(comma + 1);
    return part;
}

static Status refuse(std::string_view key, std::string_view value, const std::string& possible)
{
    return fail(Code::unsupported, "recipe: %s=%s is not something this build can do; possible: %s",
                std::string(key).c_str(), printable(value).c_str(), possible.c_str());
}

template <size_t n>
static Status parse_word(std::string_view key, std::string_view value,
                         const char* const (&words)[n], uint8_t* out)
{
    std::string possible;
    for (size_t i = 0; i < n; i++) {
        if (value == words[i]) {
            *out = uint8_t(i);
            return {};
        }
        possible += (i ? " " : "") + std::string(words[i]);
    }
    return refuse(key, value, possible);
}

static Status parse_codec(std::string_view key, std::string_view value, Format* out)
{
    std::string possible;
    for (int i = 0; i < int(Format::count); i++) {
        const Format codec = Format(i);
        if (!has_name(codec) || (key == "v" && codec == Format::kivi2))
            continue; // kivi2 codes keys only
        if (value == codec_info(codec).name) {
            *out = codec;
            return {};
        }
        possible += (possible.empty() ? "" : " ") + std::string(codec_info(codec).name);
    }
    return refuse(key, value, possible);
}

// Numbers are decimals of billionths. They are read and written without the C library, whose
// decimal point depends on the locale.
static constexpr uint64_t kBillion = 1000000000;

static std::string decimal(double value)
{
    const uint64_t billionths = uint64_t(llround(value * double(kBillion)));
    std::string part = std::to_string(kBillion + billionths % kBillion).replace(0, 1, ".");
    part.erase(part.find_last_not_of(".0") + 1);
    return std::to_string(billionths / kBillion) + part;
}

static Status parse_number(std::string_view key, std::string_view value, double low, double high,
                           bool whole, double* out)
{
    uint64_t units = 0, billionths = 0, worth = kBillion;
    size_t at = 0;
    auto digit = [&] { return at < value.size() && value[at] >= '0' && value[at] <= '9'; };
    for (; digit() && at < 16; at++) units = 10 * units + uint64_t(value[at] - '0');
    const bool begun = at > 0;
    if (begun && at < value.size() && value[at] == '.')
        for (at++; digit() && worth > 1; at++)
            billionths += uint64_t(value[at] - '0') * (worth /= 10);
    *out = billionths ? (double(units) * double(kBillion) + double(billionths)) / double(kBillion)
                      : double(units);
    if (begun && at == value.size() && *out >= low && *out <= high && !(whole && billionths))
        return {};
    if (whole)
        return refuse(key, value,
                      "a whole number from " + std::to_string(uint64_t(low)) + " to " +
                          std::to_string(uint64_t(high)));
    return refuse(key, value,
                  "a number from " + decimal(low) + " to " + decimal(high) +
                      " with at most nine decimals");
}

// Options with a number, in the order of the full text.
struct NumberOption {
    const char* key;
    double low, high;
    bool whole;
    double (*get)(const Recipe& r);
    void (*set)(Recipe& r, double value);
};
#define KS_NUMBER(key, low, high, field)                                                           \
    {                                                                                              \
        key, low, high, true, [](const Recipe& r) { return double(r.field); },                     \
            [](Recipe& r, double x) { r.field = decltype(r.field)(x); }                            \
    }
static const NumberOption kNumbers[] = {
    KS_NUMBER("sink", 0, 4096, sink),
    KS_NUMBER("recent", 0, 1 << 24, recent),
    KS_NUMBER("slots", 0, 1 << 24, slots),
    KS_NUMBER("read", 0, 1 << 24, read),
    {"reuse", 0, 1, false, [](const Recipe& r) { return r.reuse; },
     [](Recipe& r, double x) { r.reuse = x; }},
    KS_NUMBER("chunk", 0, 512, chunk),
    KS_NUMBER("delta", 0, 65536, delta),
    KS_NUMBER("boundary", 0, 64, boundary),
    KS_NUMBER("observe", 1, 4096, options.observe),
    KS_NUMBER("pool", 1, 63, options.pool),
    KS_NUMBER("lifetime", 0, 1, options.lifetime),
    {"stretch", 1, 1024, false, [](const Recipe& r) { return r.stretch; },
     [](Recipe& r, double x) { r.stretch = x; }},
    {"decay", 0.5, 1, false, [](const Recipe& r) { return r.options.decay; },
     [](Recipe& r, double x) { r.options.decay = x; }},
    KS_NUMBER("seed", 0, double(1ull << 53), seed),
};
#undef KS_NUMBER

static Status parse_option(std::string_view item, Recipe& recipe)
{
    size_t equals = item.find('=');
    std::string_view key = item.substr(0, equals);
    std::string_view value = equals == item.npos ? std::string_view() : item.substr(equals + 1);
    KS_TRY(check_missing(key, value));
    if (key == "k") return parse_codec(key, value, &recipe.k);
    if (key == "v") return parse_codec(key, value, &recipe.v);
    if (key == "victims")
        return parse_word(key, value, kVictims, reinterpret_cast<uint8_t*>(&recipe.victims));
    if (key == "split")
        return parse_word(key, value, kSplits, reinterpret_cast<uint8_t*>(&recipe.split));
    if (key == "positions")
        return parse_word(key, value, kPositions, reinterpret_cast<uint8_t*>(&recipe.positions));
    if (key == "rope")
        return parse_word(key, value, kRopes, reinterpret_cast<uint8_t*>(&recipe.rope));
    if (key == "retain") {
        recipe.retain = find_retain(value);
        return recipe.retain ? Status() : refuse(key, value, retain_names());
    }
    if (key == "select") {
        recipe.select = find_selector(value);
        return recipe.select ? Status() : refuse(key, value, selector_names());
    }
    std::string possible = "retain= k= v= victims= split= positions= rope= select=";
    for (const NumberOption& option : kNumbers) {
        if (key == option.key) {
            double number = 0;
            KS_TRY(parse_number(key, value, option.low, option.high, option.whole, &number));
            option.set(recipe, number);
            return {};
        }
        possible += std::string(" ") + option.key + "=";
    }
    return fail(Code::unsupported, "recipe: '%s' is not an option of this build; possible: %s",
                printable(item).c_str(), possible.c_str());
}

const char* positions_name(Positions positions)
{
    return kPositions[int(positions)];
}

const char* split_name(Split split)
{
    return kSplits[int(split)];
}

Result<Recipe> parse_recipe(std::string_view text)
{
    Recipe recipe;
    recipe.retain = find_retain("all");
    std::string_view name = text.substr(0, text.find(','));
    std::string possible;
    bool known = false;
    KS_TRY(check_missing("", name));
    for (const RecipeName& row : kNames) {
        possible += (possible.empty() ? "" : " ") + std::string(row.name);
        if (name != row.name) continue;
        known = true;
        recipe.automatic = name == "auto";
        for (std::string_view rest = row.options; !rest.empty();)
            KS_TRY(parse_option(take_until_comma(rest), recipe));
        take_until_comma(text);
    }
    for (int i = int(Format::n_weights); i < int(Format::count); i++) {
        const Format codec = Format(i);
        if (!has_name(codec) || codec == Format::kivi2) continue;
        possible += std::string(" ") + codec_info(codec).name;
        if (known || name != codec_info(codec).name) continue;
        known = true;
        recipe.k = recipe.v = codec;
        take_until_comma(text);
    }
    if (!known && name.substr(0, 7) != "retain=")
        return fail(Code::unsupported, "recipe '%s' is not one of this build; possible: %s",
                    printable(name).c_str(), possible.c_str());
    while (!text.empty()) KS_TRY(parse_option(take_until_comma(text), recipe));
    KS_TRY(check_recipe(recipe));
    return recipe;
}

std::string recipe_text(const Recipe& r)
{
    const bool chooses = r.automatic && r.exact(), is_plain_exact = !chooses && r.exact() &&
                                                                    !r.codes() && !r.selects() &&
                                                                    !r.ropes_on_read();
    std::string text = chooses          ? "auto"
                       : is_plain_exact ? "exact"
                                        : std::string("retain=") + r.retain->name;
    if (r.victims != Victims::drop) text += std::string(",victims=") + kVictims[int(r.victims)];
    if (r.split != Split::uniform) text += std::string(",split=") + split_name(r.split);
    if (r.positions != Positions::absolute)
        text += std::string(",positions=") + positions_name(r.positions);
    if (r.rope != RopeScaling::file) text += std::string(",rope=") + kRopes[int(r.rope)];
    if (r.selects()) text += std::string(",select=") + r.select->name;
    text += std::string(",k=") + codec_info(r.k).name + ",v=" + codec_info(r.v).name;
    const Recipe defaults;
    for (const NumberOption& option : kNumbers) {
        double value = option.get(r);
        if ((is_plain_exact && strcmp(option.key, "stretch") != 0) ||
            (value == option.get(defaults) && strcmp(option.key, "sink") != 0))
            continue;
        text += std::string(",") + option.key + "=" +
                (option.whole ? std::to_string(uint64_t(value)) : decimal(value));
    }
    return text;
}

bool Recipe::is_ring() const
{
    return victims == Victims::drop && !codes() && !selects() && !ropes_on_read() &&
           retain->keeps_last;
}

Recipe Recipe::for_window_layer() const
{
    Recipe r = *this;
    r.retain = find_retain("window");
    r.select = find_selector("all");
    r.victims = Victims::drop;
    r.split = Split::uniform;
    r.sink = 0;
    return r;
}

uint32_t Recipe::sink_of(uint32_t n_slots) const
{
    return std::min(sink, n_slots / 4);
}

uint32_t Recipe::read_first() const
{
    return std::max(sink, std::min(select->first, read_slots() / 16));
}

uint32_t Recipe::read_last() const
{
    return recent ? std::min(recent, read_slots() / 2) : std::min(512u, read_slots() / 4);
}

uint32_t Recipe::recent_of(uint32_t n_slots) const
{
    const uint32_t share = std::max(8u, retain->estimates ? n_slots / 2 : n_slots / 8);
    return std::min(recent ? recent : share, n_slots / 2);
}

uint32_t Recipe::plain_recent_of(uint32_t n_slots) const
{
    return std::min(
        {recent ? recent : std::clamp(n_slots / 32, 16u, 64u), recent_of(n_slots), n_slots / 4});
}

uint32_t Recipe::delta_of(uint32_t n_slots) const
{
    // An eviction has a fixed cost, so it is done rarely. Coded caches do it more often, because
    // tokens wait for it in f16. Merging compares every victim with every token that stays, and
    // kcenter compares all keys with each other, so both do it more rarely.
    const bool merges = victims == Victims::merge && !codes();
    const uint32_t part = codes() ? 32 : merges ? 8 : 16, most = merges ? 128 : 64;
    const uint32_t own = retain->waits ? n_slots : std::max(1u, std::min(most, n_slots / part));
    return std::min(delta ? delta : own, std::max(1u, n_slots / 4));
}

} // namespace ks
