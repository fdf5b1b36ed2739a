// Facts about a shader that the host needs, read from its SPIR-V.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ks
{

constexpr uint32_t kFirstTexels = 16; // binding of the texel buffer of storage buffer 0

struct SpirvInfo {
    uint32_t n_bindings = 0; // 0 .. n_bindings - 1, all storage buffers
    uint32_t texels = 0;     // bit per binding that the shader also has as a texel buffer
    uint32_t written = 0;    // bit per binding that the shader may write
    uint32_t local_size = 0; // threads of a workgroup
    uint32_t push_bytes = 0; // of its push constants
    bool subgroups = false;  // the shader uses subgroup operations
};

SpirvInfo read_spirv(const uint32_t* words, size_t n_words);

} // namespace ks
