// The lines that `eval --record` writes, read again: what `report` and a second `eval` need of them.
#pragma once

#include "runtime/base/status.h"

#include <string>
#include <vector>

namespace ks
{

// One line of JSON: an object whose values are numbers, strings or arrays of numbers.
class EvalLine
{
public:
    EvalLine() = default;
    explicit EvalLine(std::string line) : m_line(std::move(line)) {}
    const std::string& line() const { return m_line; }
    bool has(const char* name) const { return find(name) != nullptr; }
    double number(const char* name) const; // 0 where it is not there
    std::string text(const char* name) const;
    std::vector<double> numbers(const char* name) const;

private:
    const char* find(const char* name) const; // where its value begins

    std::string m_line;
};

// whole_bytes, which may be null: of the lines that are whole; who was killed while writing leaves a part of one behind them.
Result<std::vector<EvalLine>> read_eval_lines(const std::string& path, size_t* whole_bytes = nullptr);

} // namespace ks
