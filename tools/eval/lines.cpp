#include "tools/eval/lines.h"

#include "tools/program.h"

namespace ks
{

Result<std::vector<Json>> read_eval_lines(const std::string& path, size_t* whole_bytes)
{
    std::string all;
    KS_TRY(read_file(path, &all));
    std::vector<Json> lines;
    size_t begin = 0, end = 0;
    for (size_t nth = 1; (end = all.find('\n', begin)) != all.npos; nth++, begin = end + 1) {
        const std::string_view text = std::string_view(all).substr(begin, end - begin);
        Json line;
        if (!Json::parse(text, &line) || line.text("key").empty() || line.text("suite").empty())
            return fail(Code::usage, "%s: line %zu: expected a record of eval, found '%s'",
                        printable(path, 200).c_str(), nth, printable(text, 40).c_str());
        lines.push_back(std::move(line));
    }
    if (whole_bytes) *whole_bytes = begin;
    return lines;
}

} // namespace ks
