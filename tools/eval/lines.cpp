#include "tools/eval/lines.h"

#include "tools/program.h"

#include <cstdlib>

namespace ks
{

const char* EvalLine::find(const char* name) const
{
    const std::string key = std::string("\"") + name + "\":";
    const size_t at = m_line.find(key);
    return at == m_line.npos ? nullptr : m_line.c_str() + m_line.find_first_not_of(' ', at + key.size());
}

double EvalLine::number(const char* name) const
{
    const char* at = find(name);
    return at ? strtod(at, nullptr) : 0;
}

std::string EvalLine::text(const char* name) const
{
    const char* at = find(name);
    std::string text;
    if (!at || *at++ != '"') return text;
    for (; *at && *at != '"'; at++) {
        if (*at == '\\' && at[1]) at++;
        text += *at;
    }
    return text;
}

std::vector<double> EvalLine::numbers(const char* name) const
{
    std::vector<double> numbers;
    const char* at = find(name);
    if (!at || *at != '[') return numbers;
    for (at++; *at && *at != ']'; at += *at == ',') {
        char* end;
        numbers.push_back(strtod(at, &end));
        if (end == at) break;
        at = end;
    }
    return numbers;
}

Result<std::vector<EvalLine>> read_eval_lines(const std::string& path, size_t* whole_bytes)
{
    std::string all;
    KS_TRY(read_file(path, &all));
    std::vector<EvalLine> lines;
    size_t begin = 0, end = 0;
    for (size_t nth = 1; (end = all.find('\n', begin)) != all.npos; nth++, begin = end + 1) { // what follows the last newline was cut off
        EvalLine line(all.substr(begin, end - begin));
        if (!line.has("key") || !line.has("suite") || line.line().back() != '}')
            return fail(Code::usage, "%s: line %zu is not one that eval records, found '%s'", printable(path, 200).c_str(), nth,
                        printable(line.line(), 40).c_str());
        lines.push_back(std::move(line));
    }
    if (whole_bytes) *whole_bytes = begin;
    return lines;
}

} // namespace ks
