#include "runtime/base/status.h"

namespace ks
{

static std::string vformat(const char* format, va_list args)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    return text;
}

Status fail(Code code, const char* format, ...)
{
    va_list args;
    va_start(args, format);
    std::string message = vformat(format, args);
    va_end(args);
    return Status(code, std::move(message));
}

std::string printable(std::string_view text, size_t max_bytes)
{
    std::string out;
    for (unsigned char c : text) {
        if (out.size() >= max_bytes) {
            out += "...";
            break;
        }
        if (c >= 0x20 && c < 0x7f) {
            out += char(c);
        } else {
            char escaped[8];
            snprintf(escaped, sizeof escaped, "\\x%02x", c);
            out += escaped;
        }
    }
    return out;
}

std::string human_bytes(uint64_t bytes)
{
    static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = double(bytes);
    int unit = 0;
    while (value >= 1024.0 && unit < 4) {
        value /= 1024.0;
        unit++;
    }
    char text[32];
    snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

void check_failed(const char* file, int line, const char* condition, const char* format, ...)
{
    va_list args;
    va_start(args, format);
    std::string message = vformat(format, args);
    va_end(args);
    fprintf(stderr, "knapsack: bug at %s:%d: %s is false: %s\n", file, line, condition,
            message.c_str());
    abort();
}

} // namespace ks
