#include "runtime/base/state_file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ks
{

static constexpr uint64_t kBufferBytes = 1 << 18, kHashBytes = 8;
static constexpr char kMagic[8] = {'k', 'n', 'a', 'p', 's', 'a', 'c', 'k'};
static constexpr uint32_t kVersion = 3;
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is the memory's bytes");

// Bijective in `hash` for every fixed word, and in `word` for every fixed hash.
static uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

static uint64_t hash_words(uint64_t hash, const char* data, uint64_t n) // n is a multiple of 8
{
    for (uint64_t i = 0; i < n; i += 8) {
        uint64_t word;
        memcpy(&word, data + i, 8);
        hash = mixed(hash, word);
    }
    return hash;
}

StateFile::StateFile(Mode mode, const std::string& path) : StateFile(mode)
{
    m_path = path;
    if (saves()) {
        create();
    } else {
        Result<MappedFile> file = MappedFile::open(path);
        m_status = file.status();
        m_file = std::move(file.value());
        m_file.unmap(); // the file is read() instead: truncating a mapped file would raise SIGBUS
        m_not_ours = ok() && m_file.size() < sizeof kMagic + kHashBytes;
        m_end = m_file.size() < kHashBytes ? 0 : m_file.size() - kHashBytes;
    }
    m_buffer.resize(saves() ? kBufferBytes : std::min(m_end, kBufferBytes));
    char magic[8];
    uint32_t version = kVersion;
    memcpy(magic, kMagic, 8);
    value(magic);
    if (memcmp(magic, kMagic, 8) != 0) m_not_ours = true;
    value(version);
    if (version != kVersion)
        refuse(Code::unsupported, "is of version " + std::to_string(version) +
                                      ", this build reads " + std::to_string(kVersion));
}

StateFile::~StateFile()
{
    if (m_fd >= 0) close(m_fd);
    if (!m_temporary.empty()) unlink(m_temporary.c_str());
}

const Status& StateFile::fail_errno(const char* what)
{
    if (ok())
        m_status = fail(Code::io, "%s: cannot be %s: %s", printable(m_path, 200).c_str(), what,
                        strerror(errno));
    return m_status;
}

// A new name in the folder of `path`.
static std::string temporary_name(const std::string& folder)
{
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    return folder + ".knapsack-" + std::to_string(getpid()) + "-" + std::to_string(now);
}

// Creates a file without a name if the system supports it: it disappears if the program is killed.
void StateFile::create()
{
    // Replaces the target of a link, not the link.
    if (char* real = realpath(m_path.c_str(), nullptr)) {
        m_path = real;
        free(real);
    }
    struct stat old;
    const bool replaces = stat(m_path.c_str(), &old) == 0;
    if (replaces && !S_ISREG(old.st_mode))
        return refuse(Code::io, "is not a regular file, so it is not replaced");
    m_folder = m_path.find('/') == m_path.npos ? "./" : m_path.substr(0, m_path.rfind('/') + 1);
#ifdef O_TMPFILE
    if (access("/proc/self/fd", X_OK) == 0)
        m_fd = open(m_folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
#endif
    if (m_fd < 0) {
        std::string name = temporary_name(m_folder);
        m_fd = open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        if (m_fd >= 0) m_temporary = std::move(name);
    }
    if (m_fd < 0 || (replaces && fchmod(m_fd, old.st_mode & 0777) != 0)) fail_errno("written");
}

void StateFile::flush()
{
    m_hash = hash_words(m_hash, m_buffer.data(), m_at);
    for (uint64_t done = 0; ok() && done < m_at;) {
        const ssize_t n = write(m_fd, m_buffer.data() + done, m_at - done);
        if (n < 0 && errno != EINTR) fail_errno("written");
        if (n > 0) done += uint64_t(n);
    }
    m_offset += m_at;
    m_at = 0;
}

void StateFile::refill()
{
    m_at = 0;
    m_filled = std::min(m_end - m_offset, kBufferBytes);
    const Status read = m_file.read(m_offset, &m_buffer[0], m_filled);
    if (!read.ok()) m_status = read, m_end = m_offset, m_filled = 0;
    m_offset += m_filled;
    m_hash = hash_words(m_hash, m_buffer.data(), m_filled / 8 * 8);
}

// Number of bytes, at most n, available in the buffer at m_at; 0 after a failure.
uint64_t StateFile::available(uint64_t n)
{
    require(saves() || n <= left(), "an end before everything was there");
    if (!ok()) return 0;
    if (saves() && m_at == kBufferBytes) flush();
    if (!saves() && m_at == m_filled) refill();
    return ok() ? std::min(n, (saves() ? kBufferBytes : m_filled) - m_at) : 0;
}

void StateFile::bytes(void* data, uint64_t n)
{
    char* at = static_cast<char*>(data);
    while (n > 0) {
        const uint64_t part = available(n);
        if (part == 0 && !saves()) memset(at, 0, n);
        if (part == 0) return;
        memcpy(saves() ? &m_buffer[m_at] : at, saves() ? at : &m_buffer[m_at], part);
        m_at += part, at += part, n -= part;
    }
}

void StateFile::device(Backend& backend, const Buffer& buffer, uint64_t offset, uint64_t n)
{
    while (n > 0) {
        const uint64_t part = available(n);
        if (part == 0) return;
        if (m_mode == Mode::save) backend.download(&m_buffer[m_at], buffer, offset, part);
        if (m_mode == Mode::load) backend.upload(buffer, offset, &m_buffer[m_at], part);
        m_at += part, offset += part, n -= part;
    }
}

void StateFile::skip()
{
    while (ok() && m_offset < m_end) refill();
    m_at = m_filled;
}

void StateFile::require(bool fine, const char* what)
{
    if (!fine)
        refuse(Code::invalid,
               std::string(saves() ? "is not written: the session has " : "is damaged: it has ") +
                   what);
}

void StateFile::refuse(Code code, const std::string& why)
{
    if (ok()) m_status = Status(code, printable(m_path, 200) + " " + why);
}

Status StateFile::finish(bool sync)
{
    if (saves()) {
        uint64_t zero = 0;
        bytes(&zero, -m_at % 8);
        flush();
        m_hash = mixed(m_hash, m_offset);
        bytes(&m_hash, kHashBytes);
        flush();
        return ok() ? replace(sync) : m_status;
    }
    if (m_not_ours)
        return fail(Code::invalid, "%s is not a saved session", printable(m_path, 200).c_str());
    require(left() < 8, "more than it should");
    uint64_t hash = 0;
    while (m_offset < m_end) refill();
    m_hash = mixed(m_hash, m_end);
    const Status read = m_file.read(m_end, &hash, kHashBytes);
    if (m_end + kHashBytes != m_file.size()) return m_status; // the file could not be read
    // A damaged file is reported as such, whatever failed before.
    if (read.ok() && (m_end % 8 || hash != m_hash))
        return fail(Code::invalid,
                    "%s is damaged: the checksum at offset %llu is %016llx, the bytes before it "
                    "have %016llx",
                    printable(m_path, 200).c_str(), (unsigned long long)m_end,
                    (unsigned long long)hash, (unsigned long long)m_hash);
    return read.ok() ? m_status : read;
}

Status StateFile::replace(bool sync)
{
    if (sync && fsync(m_fd) != 0) return fail_errno("written");
    if (m_temporary.empty()) {
        const std::string nameless = "/proc/self/fd/" + std::to_string(m_fd);
        std::string name = temporary_name(m_folder);
        if (linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0)
            return fail_errno("written");
        m_temporary = std::move(name);
    }
    if (rename(m_temporary.c_str(), m_path.c_str()) != 0) return fail_errno("replaced");
    m_temporary.clear();
    if (!sync) return m_status;
    const int fd = open(m_folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // EINVAL: the file system does not support syncing a folder.
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) fail_errno("synced");
    if (fd >= 0) close(fd);
    return m_status;
}

} // namespace ks
