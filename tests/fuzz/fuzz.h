// Shared by the fuzz targets. A target is one file with LLVMFuzzerTestOneInput(). Either
// libFuzzer's main drives it (scripts/fuzz.sh), or replay.cpp, which every test run does.
// Invariants are KS_CHECKs, which print the values and abort.
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

// Defined by each target.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Inputs that reach deep code. The corpus in the tree is written from them.
std::vector<std::string> fuzz_seeds();

namespace ks
{

// The number of inputs that were accepted as valid. A corpus without any valid input tests nothing.
inline uint64_t g_accepted = 0;

// Created at the beginning of a target: no input may take a second of CPU time. libFuzzer measures
// wall time, which also passes while a busy machine runs other processes.
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

// A file in memory with a path that can be opened.
class MemoryFile
{
public:
    MemoryFile()
        : m_fd(memfd_create("fuzz", MFD_CLOEXEC)), m_path("/proc/self/fd/" + std::to_string(m_fd))
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

// Every error message is one sentence of printable ASCII with a bounded length.
inline void check_sentence(const Status& status)
{
    KS_CHECK(!status.ok() && is_readable(status.message(), 600), "code %d: '%s'",
             int(status.code()), status.message().c_str());
}

// Splits an input, from its beginning.
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
