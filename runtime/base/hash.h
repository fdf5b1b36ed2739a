// FNV-1a, 64 bits: a checksum of files, caches and logits. It is no protection against intent.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ks
{

constexpr uint64_t kFnvStart = 0xcbf29ce484222325u;

constexpr uint64_t fnv_step(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 0x100000001b3u;
}

inline uint64_t fnv_bytes(const void* bytes, uint64_t n, uint64_t hash = kFnvStart)
{
    for (uint64_t i = 0; i < n; i++) hash = fnv_step(hash, static_cast<const uint8_t*>(bytes)[i]);
    return hash;
}

} // namespace ks
