// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", 2011). The output is a function of (seed, counter) alone. It is stateless and the same
// on every machine and in any order.
#pragma once

#include <array>
#include <cstdint>

namespace ks
{

// Four random words for one 128-bit counter, lowest word first. The key is the seed, low word
// first.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, uint64_t seed)
{
    uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = uint64_t(0xD2511F53u) * counter[0];
        uint64_t b = uint64_t(0xCD9E8D57u) * counter[2];
        counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b),
                   uint32_t(a >> 32) ^ counter[3] ^ key[1], uint32_t(a)};
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return counter;
}

// Uniform in [0, 1), from the first word and the upper 21 bits of the second.
inline double random_uniform(uint64_t seed, uint64_t counter)
{
    std::array<uint32_t, 4> word = philox({uint32_t(counter), uint32_t(counter >> 32), 0, 0}, seed);
    return double((uint64_t(word[0]) << 21) | (word[1] >> 11)) * 0x1p-53;
}

} // namespace ks
