// Helpers of op cases: inputs that closures share, and formatted names.
#pragma once

#include "tests/backends/op_harness.h"

#include <cstdarg>
#include <cstdio>

namespace ks
{

template <class T>
std::shared_ptr<T> share(T value)
{
    return std::make_shared<T>(std::move(value));
}

[[gnu::format(printf, 1, 2)]] inline std::string text(const char* format, ...)
{
    char line[160];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return line;
}

} // namespace ks
