// What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput(): libFuzzer's main drives it (scripts/fuzz.sh), or
// replay.cpp's, which every run of the tests does. What must hold is KS_CHECK: it ends the program with the values.
#pragma once

#include "runtime/base/status.h"
#include "tests/files.h"

#include <cstdint>
#include <ctime>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

// Each target's own.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
std::vector<std::string> fuzz_seeds(); // inputs that reach far; the corpus in the tree is written from them

namespace ks
{

// How many inputs were taken for what they claim to be. A corpus of which none is tests nothing any more.
inline uint64_t g_accepted = 0;

// At the beginning of a target: no input may take a second of the processor. libFuzzer's own clock is the wall's, which on a busy machine
// goes on while nothing runs.
class Deadline
{
public:
    ~Deadline() { KS_CHECK(seconds() - m_begin < 1, "%g seconds", seconds() - m_begin); }

private:
    static double seconds()
    {
        timespec now;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
    }
    double m_begin = seconds();
};

// A file that is only in memory, with a name that can be opened.
class MemoryFile
{
public:
    MemoryFile() : m_fd(memfd_create("fuzz", MFD_CLOEXEC)), m_path("/proc/self/fd/" + std::to_string(m_fd))
    {
        KS_CHECK(m_fd >= 0, "memfd_create");
    }
    void set(std::string_view bytes)
    {
        KS_CHECK(ftruncate(m_fd, 0) == 0, "ftruncate");
        KS_CHECK(pwrite(m_fd, bytes.data(), bytes.size(), 0) == ssize_t(bytes.size()), "pwrite");
    }
    const std::string& path() const { return m_path; }

private:
    int m_fd;
    std::string m_path;
};

// What every error says, whatever the input: one sentence of printable ASCII, not too long to read.
inline void check_sentence(const Status& status)
{
    KS_CHECK(!status.ok() && is_readable(status.message(), 600), "code %d: '%s'", int(status.code()), status.message().c_str());
}

// Takes an input apart, from its beginning.
struct Input {
    std::string_view rest;

    uint8_t byte()
    {
        const uint8_t value = rest.empty() ? 0 : uint8_t(rest[0]);
        rest.remove_prefix(rest.empty() ? 0 : 1);
        return value;
    }
    std::string_view text() // up to a zero byte
    {
        const size_t n = rest.find('\0');
        const std::string_view found = rest.substr(0, n);
        rest.remove_prefix(n == rest.npos ? rest.size() : n + 1);
        return found;
    }
};

inline Input input_of(const uint8_t* data, size_t size)
{
    return {{reinterpret_cast<const char*>(data), size}};
}

} // namespace ks
