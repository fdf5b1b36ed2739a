#include "backends/vulkan/spirv.h"

#include "runtime/base/status.h"

#include <algorithm>

namespace ks
{

// Opcodes and numbers of the SPIR-V specification, sections 3.6 to 3.42.
constexpr uint32_t kOpExecutionMode = 16, kOpCapability = 17, kOpTypeStruct = 30,
                   kOpTypePointer = 32, kOpVariable = 59, kOpDecorate = 71, kOpMemberDecorate = 72;
constexpr uint32_t kLocalSize = 17, kStorageBuffer = 12, kPushConstant = 9, kUniformConstant = 0,
                   kBinding = 33, kNonWritable = 24, kOffset = 35, kGroupNonUniform = 61,
                   kNone = ~0u;
constexpr size_t kHeader = 5; // words

// A shader's instructions, without an index. A pipeline may be created during decode, which must
// not allocate.
struct Instructions {
    const uint32_t* words;
    size_t n_words;

    // The first instruction from `at` on with this opcode and these operands, or the end. kNone
    // matches any operand.
    size_t find(size_t at, uint32_t code, uint32_t first, uint32_t second = kNone,
                uint32_t third = kNone) const
    {
        const uint32_t wanted[] = {first, second, third};
        for (; at < n_words; at += words[at] >> 16) {
            KS_CHECK(words[at] >> 16, "SPIR-V ends at word %zu", at);
            if ((words[at] & 0xffffu) != code) continue;
            bool same = true;
            for (uint32_t i = 0; i < 3; i++)
                same = same && (wanted[i] == kNone || words[at + 1 + i] == wanted[i]);
            if (same) break;
        }
        return at;
    }
    bool has(uint32_t code, uint32_t first, uint32_t second, uint32_t third = kNone) const
    {
        return find(kHeader, code, first, second, third) < n_words;
    }
};

// Bytes of a type of push constants: a word, or a struct of such types.
static uint32_t bytes_of_type(const Instructions& code, uint32_t type)
{
    const size_t at = code.find(kHeader, kOpTypeStruct, type);
    if (at == code.n_words) return 4;
    const uint32_t last = (code.words[at] >> 16) - 3;
    const size_t offset = code.find(kHeader, kOpMemberDecorate, type, last, kOffset);
    KS_CHECK(offset < code.n_words, "SPIR-V: member %u of type %u has no offset", last, type);
    return code.words[offset + 4] + bytes_of_type(code, code.words[at + 2 + last]);
}

SpirvInfo read_spirv(const uint32_t* words, size_t n_words)
{
    KS_CHECK(n_words > kHeader && words[0] == 0x07230203u, "%zu words of SPIR-V", n_words);
    const Instructions code{words, n_words};
    SpirvInfo info;
    info.subgroups = code.find(kHeader, kOpCapability, kGroupNonUniform) < n_words;
    const size_t size = code.find(kHeader, kOpExecutionMode, kNone, kLocalSize);
    if (size < n_words) info.local_size = words[size + 3] * words[size + 4] * words[size + 5];
    for (size_t at = kHeader; (at = code.find(at, kOpVariable, kNone)) < n_words;
         at += words[at] >> 16) {
        const uint32_t pointer = words[at + 1], id = words[at + 2], storage = words[at + 3];
        if (storage == kPushConstant)
            info.push_bytes =
                bytes_of_type(code, words[code.find(kHeader, kOpTypePointer, pointer) + 3]);
        const size_t decoration = code.find(kHeader, kOpDecorate, id, kBinding);
        if (decoration == n_words) continue;
        const uint32_t binding = words[decoration + 3];
        if (storage == kUniformConstant) info.texels |= 1u << (binding - kFirstTexels);
        if (storage != kStorageBuffer) continue;
        const uint32_t type = words[code.find(kHeader, kOpTypePointer, pointer) + 3];
        info.n_bindings = std::max(info.n_bindings, binding + 1);
        const bool read_only = code.has(kOpDecorate, id, kNonWritable) ||
                               code.has(kOpMemberDecorate, type, kNone, kNonWritable);
        if (!read_only) info.written |= 1u << binding;
    }
    return info;
}

} // namespace ks
