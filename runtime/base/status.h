// Failures of the environment (file, device, budget) are values: one sentence that names the thing,
// what was expected and what was found. A bug fails KS_CHECK, which prints the values and aborts.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace ks
{

// The numbers are the exit codes of the program and the return values of the C API.
enum class Code {
    ok = 0,
    usage = 1,       // an invalid call or command line
    invalid = 2,     // a file that is unreadable or malformed
    unsupported = 3, // an architecture, format or recipe that this build cannot run
    no_fit = 4,      // more memory needed than the budget has
    device = 5,
    io = 6,
    interrupted = 130,
};

class [[nodiscard]] Status
{
public:
    Status() = default;
    Status(Code code, std::string message) : m_code(code), m_message(std::move(message)) {}
    bool ok() const { return m_code == Code::ok; }
    Code code() const { return m_code; }
    // One sentence, no newline, no full stop.
    const std::string& message() const { return m_message; }

private:
    Code m_code = Code::ok;
    std::string m_message;
};

// printf-style. Pass text from files or users through printable() first.
[[gnu::format(printf, 2, 3)]] Status fail(Code code, const char* format, ...);

// Untrusted text as printable ASCII: other bytes become \xNN, text beyond max_bytes becomes "...".
std::string printable(std::string_view text, size_t max_bytes = 60);

// "512 B", "1.5 KiB", "86.2 MiB"
std::string human_bytes(uint64_t bytes);

template <class T>
class [[nodiscard]] Result
{
public:
    Result(T value) : m_value(std::move(value)) {}
    Result(Status status) : m_status(std::move(status)) {}
    bool ok() const { return m_status.ok(); }
    const Status& status() const { return m_status; }
    T& value() { return m_value; }
    const T& value() const { return m_value; }

private:
    Status m_status;
    T m_value{};
};

[[noreturn, gnu::format(printf, 4, 5)]] void
check_failed(const char* file, int line, const char* condition, const char* format, ...);

} // namespace ks

#define KS_CHECK(condition, ...)                                                                   \
    do {                                                                                           \
        if (!(condition)) ::ks::check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__);         \
    } while (0)

// Returns the failed Status from a function that returns Status or Result.
#define KS_TRY(expression)                                                                         \
    do {                                                                                           \
        ::ks::Status ks_try_status = (expression);                                                 \
        if (!ks_try_status.ok()) return ks_try_status;                                             \
    } while (0)
