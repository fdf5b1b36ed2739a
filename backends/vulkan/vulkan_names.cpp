// Names of pipelines, for the times of kernels, profilers and validation layers.
#include "backends/vulkan/vulkan_backend.h"

#include <cstdio>
#include <cstring>

namespace ks
{

// The kinds of a shader's constants, one letter each. c: the format of a cache, n: a number, s: a
// step of select.
struct ShaderConstants {
    const char *op, *kinds, *title;
};
static const ShaderConstants kConstants[] = {
    {"attention", "ccnn", ""},
    {"attention_lanes", "ccnn", ""},
    {"attention_sums", "ccnn", ""},
    {"attention_decode", "ccnn", "attention_decode"},
    {"attention_dequantize", "cnn", "attention_dequantize"},
    {"kv_score", "cnnn", ""},
    {"kv_score_lanes", "cnnn", ""},
    {"kv_write", "cnn", ""},
    {"kv_read", "cn", ""},
    {"kv_move", "cnc", ""},
    {"select", "scnn", ""},
};

void name_pipeline(const char* op, const char* variant, const VulkanSpecial& special, char* name,
                   size_t size)
{
    const ShaderConstants *end = kConstants + sizeof kConstants / sizeof *kConstants,
                          *found = kConstants;
    while (found < end && strcmp(found->op, op) != 0) found++;
    const char *kinds = found < end ? found->kinds : "nnnn",
               *title = found < end && *found->title ? found->title : op;
    size_t at = 0;
    auto add = [&](const char* text) {
        if (*text && at < size)
            at += size_t(snprintf(name + at, size - at, at ? " %s" : "%s", text));
    };
    add(title);
    add(variant);
    uint32_t n = kMaxSpecial - 2;
    while (n > 0 && special.value[n - 1] == 0 && (n > strlen(kinds) || kinds[n - 1] == 'n')) n--;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t value = special.value[i];
        char number[16];
        snprintf(number, sizeof number, "%u", value);
        const char kind = i < strlen(kinds) ? kinds[i] : 'n';
        add(kind == 'c'   ? codec_info(codec_of_number(value)).name
            : kind == 's' ? vulkan_select_step(value)
                          : number);
    }
}

} // namespace ks
