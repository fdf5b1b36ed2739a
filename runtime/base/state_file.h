// State in a file, described once: the same calls save, check and load it. Loading reads the file
// twice. The first pass checks it and changes no live state. The second pass loads it and checks
// everything again, in case the file changed.
//
// File layout: "knapsack", a version, the values in call order, zeros up to a multiple of 8 bytes,
// a hash. The hash covers all bytes before it and their number. Everything is little-endian. Any
// change within 8 bytes changes the hash. A new file replaces the old one only when it is complete
// and on disk. A kill at any moment leaves one of the two.
#pragma once

#include "runtime/base/backend.h"
#include "runtime/base/mapped_file.h"

#include <cstdint>
#include <string>

namespace ks
{

class StateFile
{
public:
    enum class Mode { save, check, load };

    StateFile(Mode mode, const std::string& path);
    ~StateFile(); // discards a file that was not finish()ed
    StateFile(const StateFile&) = delete;
    StateFile& operator=(const StateFile&) = delete;

    bool saves() const { return m_mode == Mode::save; }
    bool checks() const { return m_mode == Mode::check; }
    bool loads() const { return m_mode == Mode::load; }
    bool ok() const { return m_status.ok(); }
    uint64_t left() const { return m_end - m_offset + m_filled - m_at; } // bytes not yet read

    // After the first failure nothing is written, and reads give zeros.
    void bytes(void* data, uint64_t n);
    template <class T>
    void value(T& v)
    {
        bytes(&v, sizeof v);
    }
    // A string or a vector: its length, then its elements. A length beyond the end of the file is a
    // failure.
    template <class List>
    void list(List& c, uint32_t most)
    {
        uint32_t n = uint32_t(c.size());
        value(n);
        require(n <= most && (saves() || n <= left() / sizeof c[0]), "a count that is too large");
        c.resize(ok() ? n : 0);
        bytes(c.data(), c.size() * sizeof c[0]);
    }
    // Like bytes(), in device memory. Mode::check skips the bytes.
    void device(Backend& backend, const Buffer& buffer, uint64_t offset, uint64_t n);
    void skip(); // what is left
    // Fails if not `fine`. `what` names the fault: "a token that is not in the vocabulary".
    void require(bool fine, const char* what);
    // Refuses a valid file of another state. `why`: "was saved with ...".
    void refuse(Code code, const std::string& why);
    // Writes or checks the hash. A new file is then synced to disk and replaces the old one.
    // Without `sync` a power failure may damage it, which its hash shows.
    Status finish(bool sync = true);

private:
    // The public constructor delegates to it, so the destructor runs if that constructor throws.
    explicit StateFile(Mode mode) : m_mode(mode) {}
    void create();
    uint64_t available(uint64_t n);
    void flush();
    void refill();
    const Status& fail_errno(const char* what);
    Status replace(bool sync);

    Mode m_mode;
    std::string m_path, m_folder; // m_folder: of the new file
    std::string m_temporary;      // name of the incomplete file; empty: it has none
    MappedFile m_file;
    int m_fd = -1;
    uint64_t m_offset = 0, m_end = 0; // file offsets: end of the buffer, start of the hash
    uint64_t m_hash = 0;
    std::string m_buffer;
    uint64_t m_at = 0, m_filled = 0; // buffer offsets
    bool m_not_ours = false;
    Status m_status;
};

} // namespace ks
