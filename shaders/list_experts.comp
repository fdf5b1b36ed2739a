// Lists the choices of each expert in blocks (ExpertsPart), in one workgroup. The order of the
// choices of an expert does not matter.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { ExpertsArgs a; uint max_blocks; } pushed;
DECLARE_ARGS(ExpertsArgs, a)
DECLARE_ARGS(uint, max_blocks)
layout(binding = 0) buffer List { uint list[]; };        // (3 * max_blocks + n_tokens * n_used)
layout(binding = 1) readonly buffer Ids { uint ids[]; }; // (n_tokens, n_used)

shared uint count[route_max_experts];       // choices of each expert
shared uint first[route_max_experts];       // then the next free place
shared uint first_block[route_max_experts]; // of each expert
shared uint n_blocks;

void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(max_blocks)
    uint n = a.n_tokens * a.n_used;
    for (uint e = THREAD; e < a.n_experts; e += n_threads) count[e] = 0u;
    barrier();
    for (uint i = THREAD; i < n; i += n_threads) atomicAdd(count[ids[i]], 1u);
    barrier();
    if (THREAD == 0u) {
        uint choices = 0u, blocks = 0u;
        for (uint e = 0u; e < a.n_experts; e++) {
            first[e] = choices;
            first_block[e] = blocks;
            choices += count[e];
            blocks += (count[e] + experts_block - 1u) / experts_block;
        }
        n_blocks = blocks;
    }
    barrier();
    for (uint e = THREAD; e < a.n_experts; e += n_threads)
        for (uint i = 0u; i < count[e]; i += experts_block) {
            uint at = 3u * (first_block[e] + i / experts_block);
            list[at] = e;
            list[at + 1u] = first[e] + i;
            list[at + 2u] = min(experts_block, count[e] - i);
        }
    for (uint b = n_blocks + THREAD; b < max_blocks; b += n_threads) list[3u * b + 2u] = 0u;
    barrier();
    for (uint i = THREAD; i < n; i += n_threads)
        list[3u * max_blocks + atomicAdd(first[ids[i]], 1u)] = i;
}
