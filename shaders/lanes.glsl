// Reads eight consecutive values that all threads of a subgroup need. Each lane reads one, and shuffles pass it to the others.
// If the subgroup size is unknown (lanes is 0), every thread reads all eight.
// The includer declares the constant `lanes`. All threads of a subgroup must be active.
#ifdef LANES
#define SHUFFLE(read, i) (lanes == 4u ? subgroupShuffle(read[(i) / 4u], (i) % 4u) : subgroupShuffle(read[0], i))
#define READ_OCTET(read, array, at)                                           \
    if (lanes == 4u) {                                                        \
        read[0] = array[(at) + gl_SubgroupInvocationID];                      \
        read[1] = array[(at) + 4u + gl_SubgroupInvocationID];                 \
    } else {                                                                  \
        read[0] = array[(at) + (gl_SubgroupInvocationID & 7u)];               \
    }
#define OCTET_AT(read, array, at, i) SHUFFLE(read, i)
#else
#define READ_OCTET(read, array, at)
#define OCTET_AT(read, array, at, i) array[(at) + (i)]
#endif
