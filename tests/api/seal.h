// Modified session files with a valid checksum.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace ks
{

// Recomputes the checksum as state_file.h defines it, so the other checks have to find the fault.
inline void seal(std::string& bytes)
{
    uint64_t hash = 0;
    auto mix = [&](uint64_t word) {
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    };
    for (size_t i = 0; i + 16 <= bytes.size(); i += 8) {
        uint64_t word;
        memcpy(&word, &bytes[i], 8);
        mix(word);
    }
    mix(bytes.size() - 8);
    memcpy(&bytes[bytes.size() - 8], &hash, 8);
}

} // namespace ks
