// A file opened for reading. Headers are read through a mapping and weights with read(), so no byte
// is resident twice.
#pragma once

#include "runtime/base/status.h"

#include <cstdint>
#include <string>

namespace ks
{

class MappedFile
{
public:
    MappedFile() = default;
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    static Result<MappedFile> open(const std::string& path);
    const std::string& path() const { return m_path; }
    uint64_t size() const { return m_size; }
    const uint8_t* data() const { return m_data; } // the whole file, until unmap()
    void unmap();                                  // drops the mapping; read() still works
    Status read(uint64_t offset, void* out, uint64_t bytes) const;
    // Hints for the system's cache: these bytes are read soon; bytes before `end` are read no more.
    void prefetch(uint64_t offset, uint64_t bytes) const;
    void uncache(uint64_t end) const;

private:
    std::string m_path;
    int m_fd = -1;
    uint64_t m_size = 0;
    const uint8_t* m_data = nullptr;
};

} // namespace ks
