// Sits between the library and the system. operator new is replaced. The linker redirects the calls
// named here to __wrap_NAME (--wrap, cmake/tests.cmake). Calls that release something cannot fail,
// so they are only counted.
#include "tests/faults/inject.h"
#include "tests/sanitized.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ks
{

static std::atomic<Fault> g_fault{Fault::none};
static std::atomic<uint64_t> g_seen{0}, g_nth{0}, g_failed{0};
static std::atomic<bool> g_all{false}, g_on{false};
static std::atomic<int64_t> g_allocations{0}, g_blocks{0}, g_files{0}, g_objects{0};

void arm(Fault fault, uint64_t n, bool all_that_follow)
{
    g_seen = g_failed = 0;
    g_nth = n;
    g_all = all_that_follow;
    g_fault = fault;
}

bool disarm()
{
    g_fault = Fault::none;
    return g_failed != 0;
}

uint64_t fault_step(Fault fault)
{
    return kSanitized && fault == Fault::heap && !getenv("KS_TEST_ALL") ? 4 : 1;
}

Injecting::Injecting()
{
    g_on = true;
}

Injecting::~Injecting()
{
    g_on = false;
}

Held held()
{
    return {g_allocations, g_blocks, g_files, g_objects};
}

bool fails(Fault fault)
{
    if (!g_on || g_fault != fault) return false;
    const uint64_t seen = ++g_seen;
    if (seen < g_nth || (seen > g_nth && !g_all)) return false;
    g_failed++;
    return true;
}

void made_object(int n)
{
    g_objects += n;
}

// Also sets errno: EIO, or `limit` for Fault::refused.
static bool file_fails(int limit)
{
    if (fails(Fault::file)) return errno = EIO, true;
    if (fails(Fault::refused)) return errno = limit, true;
    return false;
}

} // namespace ks

using namespace ks;

void* operator new(size_t bytes)
{
    void* memory = fails(Fault::heap) ? nullptr : malloc(bytes ? bytes : 1);
    if (!memory) throw std::bad_alloc();
    g_allocations++;
    return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept
{
    void* memory = fails(Fault::heap) ? nullptr : malloc(bytes ? bytes : 1);
    g_allocations += memory != nullptr;
    return memory;
}
void* operator new(size_t bytes, std::align_val_t align)
{
    void* memory = nullptr;
    if (fails(Fault::heap) || posix_memalign(&memory, size_t(align), bytes) != 0)
        throw std::bad_alloc();
    g_allocations++;
    return memory;
}
void operator delete(void* memory) noexcept
{
    g_allocations -= memory != nullptr;
    free(memory);
}
void operator delete(void* memory, size_t) noexcept
{
    operator delete(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept
{
    operator delete(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept
{
    operator delete(memory);
}

#define WRAPPED(type, name, ...)                                                                   \
    extern "C" type __real_##name(__VA_ARGS__);                                                    \
    extern "C" type __wrap_##name(__VA_ARGS__)

extern "C" int __real_open(const char* path, int flags, ...);
extern "C" int __wrap_open(const char* path, int flags, unsigned mode)
{
    if (file_fails(EMFILE)) return -1;
    const int fd = __real_open(path, flags, mode);
    g_files += fd >= 0;
    return fd;
}
WRAPPED(int, close, int fd)
{
    g_files--;
    return __real_close(fd);
}
WRAPPED(void*, mmap, void* at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (fd >= 0 ? file_fails(ENOMEM) : fails(Fault::block)) {
        if (fd < 0) errno = ENOMEM;
        return MAP_FAILED;
    }
    void* memory = __real_mmap(at, bytes, protection, flags, fd, offset);
    g_blocks += memory != MAP_FAILED;
    return memory;
}
WRAPPED(int, munmap, void* memory, size_t bytes)
{
    g_blocks--;
    return __real_munmap(memory, bytes);
}
WRAPPED(ssize_t, pread, int fd, void* to, size_t bytes, off_t offset)
{
    if (file_fails(ENOMEM)) return -1;
    if (fails(Fault::again)) return errno = EINTR, -1;
    return __real_pread(fd, to, fails(Fault::partly) ? (bytes + 1) / 2 : bytes, offset);
}
WRAPPED(ssize_t, write, int fd, const void* from, size_t bytes)
{
    if (file_fails(ENOSPC)) return -1;
    if (fails(Fault::again)) return errno = EINTR, -1;
    return __real_write(fd, from, fails(Fault::partly) ? (bytes + 1) / 2 : bytes);
}
WRAPPED(int, fsync, int fd)
{
    return file_fails(ENOSPC) ? -1 : __real_fsync(fd);
}
WRAPPED(int, fstat, int fd, struct stat* info)
{
    return file_fails(ENOMEM) ? -1 : __real_fstat(fd, info);
}
WRAPPED(int, stat, const char* path, struct stat* info)
{
    return file_fails(ENOMEM) ? -1 : __real_stat(path, info);
}
WRAPPED(int, fchmod, int fd, mode_t mode)
{
    return file_fails(EPERM) ? -1 : __real_fchmod(fd, mode);
}
WRAPPED(int, access, const char* path, int mode)
{
    return file_fails(ENOMEM) ? -1 : __real_access(path, mode);
}
WRAPPED(char*, realpath, const char* path, char* to)
{
    return file_fails(ENOMEM) ? nullptr : __real_realpath(path, to);
}
WRAPPED(int, linkat, int from_fd, const char* from, int to_fd, const char* to, int flags)
{
    return file_fails(ENOSPC) ? -1 : __real_linkat(from_fd, from, to_fd, to, flags);
}
WRAPPED(int, rename, const char* from, const char* to)
{
    return file_fails(ENOSPC) ? -1 : __real_rename(from, to);
}
