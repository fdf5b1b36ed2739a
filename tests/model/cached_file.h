// A file and the pages of it that the system has in its cache.
#pragma once

#include "tests/model/gguf_builder.h"

#include <fcntl.h>
#include <sys/mman.h>

namespace ks
{

struct CachedFile {
    TempFile file;
    int fd;
    size_t bytes;

    // Writes it to the disk, so that the system may forget its pages.
    explicit CachedFile(const Bytes& content)
        : file("cached.gguf", content), fd(open(file.path().c_str(), O_RDONLY)),
          bytes(content.size())
    {
        REQUIRE(fsync(fd) == 0);
    }
    ~CachedFile() { close(fd); }
    size_t n_cached() const
    {
        std::vector<unsigned char> pages((bytes + 4095) / 4096);
        void* map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
        REQUIRE(mincore(map, bytes, pages.data()) == 0);
        munmap(map, bytes);
        size_t n = 0;
        for (unsigned char page : pages) n += page & 1;
        return n;
    }
    // False: this file system keeps its pages, so there is nothing to test.
    bool forget() const
    {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        if (n_cached() == 0) return true;
        MESSAGE("skipped: this file system keeps its pages");
        return false;
    }
};

} // namespace ks
