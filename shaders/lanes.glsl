// Eight neighbours that all threads of a subgroup want: each lane reads one and tells it. Where nothing is known of subgroups
// (lanes is 0) every thread reads all. Before it is included: the constant `lanes`. Subgroups come here with all their threads.
#ifdef LANES
#define TOLD(read, i) (lanes == 4u ? subgroupShuffle(read[(i) / 4u], (i) % 4u) : subgroupShuffle(read[0], i))
#define READ_EIGHT(read, array, at)                                           \
    if (lanes == 4u) {                                                        \
        read[0] = array[(at) + gl_SubgroupInvocationID];                      \
        read[1] = array[(at) + 4u + gl_SubgroupInvocationID];                 \
    } else {                                                                  \
        read[0] = array[(at) + (gl_SubgroupInvocationID & 7u)];               \
    }
#define EIGHTH(read, array, at, i) TOLD(read, i)
#else
#define READ_EIGHT(read, array, at)
#define EIGHTH(read, array, at, i) array[(at) + (i)]
#endif
