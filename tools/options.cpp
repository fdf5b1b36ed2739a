#include "tools/options.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <random>

namespace ks
{

Status Value::wrong(const char* expected) const
{
    return fail(Code::usage, "%s: expected %s, found '%s'", option, expected,
                printable(text).c_str());
}

Status Value::number(int64_t low, int64_t high, int64_t* out) const
{
    errno = 0;
    char* end;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || isspace(uint8_t(*text)) || errno || value < low || value > high)
        return wrong(
            ("a whole number from " + std::to_string(low) + " to " + std::to_string(high)).c_str());
    *out = value;
    return {};
}

Status Value::real(float low, float high, float* out) const
{
    char* end;
    float value = strtof(text, &end);
    if (end == text || *end || isspace(uint8_t(*text)) || !(value >= low && value <= high)) {
        char expected[64];
        snprintf(expected, sizeof expected, "a number from %g to %g", double(low), double(high));
        return wrong(expected);
    }
    *out = value;
    return {};
}

Status Value::bytes(uint64_t* out) const
{
    errno = 0;
    char* end;
    unsigned long long value = strtoull(text, &end, 10);
    static const struct {
        const char *full, *brief;
        int shift;
    } kUnits[] = {{"", "B", 0}, {"KiB", "K", 10}, {"MiB", "M", 20}, {"GiB", "G", 30}};
    for (const auto& unit : kUnits) {
        if (strcmp(end, unit.full) && strcmp(end, unit.brief)) continue;
        if (!isdigit(uint8_t(*text)) || errno || value == 0 ||
            value > (UINT64_MAX >> 1) >> unit.shift)
            break;
        *out = uint64_t(value) << unit.shift;
        return {};
    }
    return wrong("a number of bytes above 0, or a whole number with KiB, MiB or GiB");
}

Status Value::seed(uint64_t* out) const
{
    int64_t value = 0;
    KS_TRY(number(-1, INT64_MAX, &value));
    *out = value < 0 ? std::random_device()() : uint64_t(value);
    return {};
}

Status Value::list(int64_t low, int64_t high, std::vector<uint32_t>* out) const
{
    out->clear();
    std::string rest = text;
    for (size_t begin = 0; begin <= rest.size();) {
        size_t end = std::min(rest.find(',', begin), rest.size());
        std::string item = rest.substr(begin, end - begin);
        uint32_t value = 0;
        KS_TRY((Value{option, item.c_str()}.number(low, high, &value)));
        out->push_back(value);
        begin = end + 1;
    }
    return {};
}

Status Value::bias(std::vector<std::pair<uint32_t, float>>* out) const
{
    char* sign;
    errno = 0;
    unsigned long long id = strtoull(text, &sign, 10);
    char* end = sign;
    float value = *sign == '+' || *sign == '-' ? strtof(sign, &end) : 0;
    if (!isdigit(uint8_t(*text)) || errno || id > UINT32_MAX || end == sign || *end ||
        std::isnan(value))
        return wrong("a token id and a bias, such as 15+0.5 or 15-inf");
    out->push_back({uint32_t(id), value});
    return {};
}

Status Value::names(std::vector<std::string>* out) const
{
    out->clear();
    std::string rest = text;
    for (size_t begin = 0; begin <= rest.size();) {
        size_t end = std::min(rest.find(',', begin), rest.size());
        if (end == begin) return wrong("names separated by commas");
        out->push_back(rest.substr(begin, end - begin));
        begin = end + 1;
    }
    return {};
}

Status Value::percents(std::vector<double>* out) const
{
    std::vector<std::string> items;
    KS_TRY(names(&items));
    out->clear();
    for (const std::string& item : items) {
        float value = 0;
        KS_TRY((Value{option, item.c_str()}.real(0.1f, 100, &value)));
        out->push_back(double(value));
    }
    return {};
}

Status Value::string(std::string* out) const
{
    *out = text;
    return {};
}
Status Value::filled(const char* expected, std::string* out) const
{
    return *text ? string(out) : wrong(expected);
}

const Option* OptionTable::find(const std::string& name) const
{
    for (const Option& option : m_options) {
        const std::string names = std::string(" ") + option.names + " ";
        if (!name.empty() && name.find(' ') == name.npos &&
            names.find(" " + name + " ") != names.npos)
            return &option;
    }
    return nullptr;
}

Status OptionTable::parse(const char* command, int n_args, char** args, const bool& stop) const
{
    for (const Option& option : m_options) {
        const char* text = option.environment ? getenv(option.environment) : nullptr;
        if (text && *text) KS_TRY(option.read({option.environment, text}));
    }
    for (int i = 0; i < n_args && !stop; i++) {
        std::string text = args[i], value;
        size_t equals = text.compare(0, 2, "--") == 0 ? text.find('=') : text.npos;
        bool joined = equals != text.npos;
        if (joined) value = text.substr(equals + 1);
        text = text.substr(0, equals);
        const Option* option = find(text);
        if (!option)
            return fail(Code::usage,
                        "%s: unknown option '%s'; `knapsack %s --help` lists the options", command,
                        printable(text).c_str(), command);
        if (!option->argument && joined)
            return fail(Code::usage, "%s: %s takes no value, found '%s'", command, text.c_str(),
                        printable(value).c_str());
        if (option->argument && !joined) {
            if (++i == n_args)
                return fail(Code::usage, "%s: %s needs a value: %s", command, text.c_str(),
                            option->argument);
            value = args[i];
        }
        KS_TRY(option->read({text.c_str(), option->argument ? value.c_str() : nullptr}));
    }
    return {};
}

constexpr size_t kWidth = 100; // of the text of --help

static std::string wrapped(const std::string& text, size_t width, size_t indent)
{
    std::string out;
    size_t column = indent;
    for (size_t begin = 0; begin < text.size();) {
        size_t end = std::min(text.find(' ', begin), text.size());
        if (column + (end - begin) >= width && column > indent) {
            out += "\n" + std::string(indent, ' ');
            column = indent;
        } else if (begin > 0) {
            out += ' ';
            column++;
        }
        out += text.substr(begin, end - begin);
        column += end - begin;
        begin = end + 1;
    }
    return out;
}

void OptionTable::print() const
{
    constexpr size_t kIndent = 34;
    for (const Option& option : m_options) {
        std::string names = option.names;
        for (size_t at = 0; (at = names.find(' ', at)) != names.npos; at += 2)
            names.replace(at, 1, ", ");
        if (option.argument) names += std::string(" ") + option.argument;
        std::string help = option.help;
        if (option.environment) help += std::string(" (") + option.environment + ")";
        printf("  %-*s", int(kIndent) - 2, names.c_str());
        if (names.size() >= kIndent - 3) printf("\n%*s", int(kIndent), "");
        printf("%s\n", wrapped(help, kWidth, kIndent).c_str());
    }
}

void print_help(const Command& command, const OptionTable& table)
{
    printf("knapsack %s: %s\n\nusage: knapsack %s %s\n\n", command.name, command.summary,
           command.name, command.usage);
    table.print();
    const std::string notes = command.notes;
    if (!notes.empty()) putchar('\n');
    for (size_t begin = 0; begin < notes.size();) {
        const size_t end = std::min(notes.find('\n', begin), notes.size());
        printf("%s\n", wrapped(notes.substr(begin, end - begin), kWidth, 0).c_str());
        begin = end + 1;
    }
}

} // namespace ks
