#include "backends/vulkan/spirv.h"

#include "runtime/base/status.h"

#include <algorithm>
#include <vector>

namespace ks
{

// Opcodes and numbers of the SPIR-V specification, sections 3.6 to 3.42.
constexpr uint32_t kOpExecutionMode = 16, kOpTypePointer = 32, kOpVariable = 59, kOpDecorate = 71, kOpMemberDecorate = 72;
constexpr uint32_t kLocalSize = 17, kStorageBuffer = 12, kUniformConstant = 0, kBinding = 33, kNonWritable = 24, kNone = ~0u;

// What is known of an id.
struct Id {
    uint32_t binding = kNone;
    uint32_t type = kNone;   // of a variable: its pointer type; of a pointer: what it points to
    bool read_only = false;  // a struct, one of whose members is
    bool is_storage = false; // a variable
    bool is_texels = false;  // a variable
};

SpirvInfo read_spirv(const uint32_t* words, size_t n_words)
{
    KS_CHECK(n_words > 5 && words[0] == 0x07230203u, "%zu words of SPIR-V", n_words);
    std::vector<Id> ids(words[3]);
    SpirvInfo info;
    for (size_t at = 5; at < n_words; at += words[at] >> 16) {
        const uint32_t *op = words + at, code = op[0] & 0xffffu;
        KS_CHECK(op[0] >> 16, "SPIR-V ends at word %zu", at);
        if (code == kOpExecutionMode && op[2] == kLocalSize) info.local_size = op[3] * op[4] * op[5];
        if (code == kOpDecorate && op[2] == kBinding) ids[op[1]].binding = op[3];
        if (code == kOpDecorate && op[2] == kNonWritable) ids[op[1]].read_only = true;
        if (code == kOpMemberDecorate && op[3] == kNonWritable) ids[op[1]].read_only = true;
        if (code == kOpTypePointer) ids[op[1]].type = op[3];
        if (code != kOpVariable) continue;
        ids[op[2]].type = op[1];
        ids[op[2]].is_storage = op[3] == kStorageBuffer;
        ids[op[2]].is_texels = op[3] == kUniformConstant;
    }
    for (const Id& id : ids) {
        if (id.is_texels && id.binding != kNone) info.texels |= 1u << (id.binding - kFirstTexels);
        if (!id.is_storage || id.binding == kNone) continue;
        info.n_bindings = std::max(info.n_bindings, id.binding + 1);
        const bool read_only = id.read_only || ids[ids[id.type].type].read_only;
        if (!read_only) info.written |= 1u << id.binding;
    }
    return info;
}

} // namespace ks
