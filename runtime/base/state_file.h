// State in a file, described once: the same calls save it, check it and load it. Who loads goes over the file twice: what is
// checked touches nothing that lives, and the second time everything is checked again, should the file have changed.
//
// The file: the word "knapsack" and a version, what the calls say, zeros up to a multiple of 8 bytes, and a hash of all before
// it and of how much that is. Little-endian. Any change within 8 bytes changes the hash. A new file takes the old one's place
// only when it is whole and on the disk: killed at any moment, the one or the other is there.
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
    ~StateFile(); // what was saved and did not finish() is gone
    StateFile(const StateFile&) = delete;
    StateFile& operator=(const StateFile&) = delete;

    bool saves() const { return m_mode == Mode::save; }
    bool checks() const { return m_mode == Mode::check; }
    bool loads() const { return m_mode == Mode::load; }
    bool ok() const { return m_status.ok(); }
    uint64_t left() const { return m_end - m_offset + m_filled - m_at; } // bytes of a file that is read

    // After the first failure nothing is written, and what is read is zeros.
    void bytes(void* data, uint64_t n);
    template <class T> void value(T& v) { bytes(&v, sizeof v); }
    // The length, then the elements of a string or a vector. A length that the file has no bytes for is a failure.
    template <class List> void list(List& c, uint32_t most)
    {
        uint32_t n = uint32_t(c.size());
        value(n);
        require(n <= most && (saves() || n <= left() / sizeof c[0]), "a count that is too large");
        c.resize(ok() ? n : 0);
        bytes(c.data(), c.size() * sizeof c[0]);
    }
    void device(Backend& backend, const Buffer& buffer, uint64_t offset, uint64_t n); // checks: only passes over it
    void require(bool fine, const char* what);                                        // what: "a token that is not in the vocabulary"
    void refuse(Code code, const std::string& why); // another state than the one wanted: "was saved with ..."
    // The hash, and where it is a new file: onto the disk and into the old one's place.
    Status finish();

private:
    explicit StateFile(Mode mode) : m_mode(mode) {} // from here on the destructor runs
    void create();
    uint64_t room(uint64_t n);
    void flush();
    void refill();
    const Status& fail_errno(const char* what);
    Status replace();

    Mode m_mode;
    std::string m_path, m_folder; // m_folder: of a new file
    std::string m_temporary;      // its name until it is whole; empty: it has none
    MappedFile m_file;
    int m_fd = -1;
    uint64_t m_offset = 0, m_end = 0; // in the file: where the buffer ends, where the hash begins
    uint64_t m_hash = 0;
    std::string m_buffer;
    uint64_t m_at = 0, m_filled = 0; // in the buffer
    bool m_foreign = false;
    Status m_status;
};

} // namespace ks
