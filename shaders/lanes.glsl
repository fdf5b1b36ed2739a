// The LANES variants of shaders, for devices that are programs on the CPU (lavapipe). On the host
// backends/vulkan/vulkan_texels.h decides whether they run.
// Such a device runs the threads of a subgroup as SIMD lanes. It loads words of a storage buffer
// lane by lane, but fetches texels for all lanes at once. So LANES variants read buffers as texels,
// and the lanes of a subgroup exchange values by shuffles.
// Without LANES, the macros below are plain reads.
#ifdef LANES
layout(constant_id = 5) const uint lanes = 8u; // subgroup size: 4, 8 or 16
// Declares the buffer of binding i a second time, as a texel buffer of words.
#define AS_TEXELS(i, array) layout(binding = 16 + i) uniform usamplerBuffer array##_texels;
#define FETCH(array, i) texelFetch(array##_texels, int(i)).x
#define FETCH_FLOAT(array, i) uintBitsToFloat(FETCH(array, i))
#else
const uint lanes = 0u; // the subgroup size is unknown
#define AS_TEXELS(i, array)
#define FETCH(array, i) array[i]
#define FETCH_FLOAT(array, i) array[i]
#endif

// Reads eight consecutive values that all threads of a subgroup need. Each lane reads one, and
// shuffles pass it to the others. Without LANES, every thread reads all eight.
// All threads of a subgroup must be active.
#ifdef LANES
#define SHUFFLE(read, i) \
    (lanes == 4u ? subgroupShuffle(read[(i) / 4u], (i) % 4u) : subgroupShuffle(read[0], i))
#define READ_OCTET(read, array, at)                             \
    if (lanes == 4u) {                                          \
        read[0] = array[(at) + gl_SubgroupInvocationID];        \
        read[1] = array[(at) + 4u + gl_SubgroupInvocationID];   \
    } else {                                                    \
        read[0] = array[(at) + (gl_SubgroupInvocationID & 7u)]; \
    }
#define OCTET_AT(read, array, at, i) SHUFFLE(read, i)
#else
#define READ_OCTET(read, array, at)
#define OCTET_AT(read, array, at, i) array[(at) + (i)]
#endif
