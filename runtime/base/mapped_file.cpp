#include "runtime/base/mapped_file.h"

#include "runtime/base/arena.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ks
{

MappedFile::~MappedFile()
{
    unmap();
    if (m_fd >= 0) close(m_fd);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
{
    *this = std::move(other);
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept
{
    std::swap(m_path, other.m_path);
    std::swap(m_fd, other.m_fd);
    std::swap(m_size, other.m_size);
    std::swap(m_data, other.m_data);
    return *this;
}

Result<MappedFile> MappedFile::open(const std::string& path)
{
    MappedFile file;
    file.m_path = path;
    // O_NONBLOCK: opening a pipe without a writer returns at once, and the check below refuses it.
    file.m_fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file.m_fd < 0)
        return fail(Code::invalid, "cannot open %s: %s", printable(path, 200).c_str(),
                    strerror(errno));
    struct stat info;
    if (fstat(file.m_fd, &info) != 0)
        return fail(Code::io, "cannot stat %s: %s", printable(path, 200).c_str(), strerror(errno));
    if (!S_ISREG(info.st_mode))
        return fail(Code::invalid, "%s is not a regular file", printable(path, 200).c_str());
    file.m_size = uint64_t(info.st_size);
    if (file.m_size == 0) return file;
    void* data = mmap(nullptr, file.m_size, PROT_READ, MAP_PRIVATE, file.m_fd, 0);
    if (data == MAP_FAILED)
        return fail(Code::io, "cannot map %s: %s", printable(path, 200).c_str(), strerror(errno));
    file.m_data = static_cast<const uint8_t*>(data);
    return file;
}

void MappedFile::unmap()
{
    if (m_data) munmap(const_cast<uint8_t*>(m_data), m_size);
    m_data = nullptr;
}

Status MappedFile::read(uint64_t offset, void* out, uint64_t bytes) const
{
    uint8_t* to = static_cast<uint8_t*>(out);
    while (bytes > 0) {
        ssize_t got = pread(m_fd, to, bytes, off_t(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return fail(Code::io, "cannot read %s at offset %llu: %s",
                        printable(m_path, 200).c_str(), (unsigned long long)offset,
                        strerror(errno));
        if (got == 0)
            return fail(Code::invalid, "%s ends at offset %llu, %llu more bytes were expected",
                        printable(m_path, 200).c_str(), (unsigned long long)offset,
                        (unsigned long long)bytes);
        to += got;
        offset += uint64_t(got);
        bytes -= uint64_t(got);
    }
    return {};
}

void MappedFile::prefetch(uint64_t offset, uint64_t bytes) const
{
    (void)posix_fadvise(m_fd, off_t(offset), off_t(bytes), POSIX_FADV_WILLNEED);
}

void MappedFile::uncache(uint64_t end) const
{
    // 0 bytes would be the whole file. The last page is included, whole.
    if (end) (void)posix_fadvise(m_fd, 0, off_t(align_up(end, 4096)), POSIX_FADV_DONTNEED);
}

} // namespace ks
