// Chooses the experts of a token (RouteArgs). One workgroup per token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "shaders/util.glsl"

layout(push_constant) uniform Block { RouteArgs a; uint has_bias; } pushed;
DECLARE_ARGS(RouteArgs, a)
DECLARE_ARGS(uint, has_bias)
layout(binding = 0) writeonly buffer Ids { uint ids[]; };          // (n_tokens, n_used)
layout(binding = 1) writeonly buffer Weights { float weights[]; }; // (n_tokens, n_used)
layout(binding = 2) readonly buffer Logits { float logits[]; };    // (n_tokens, n_experts)
layout(binding = 3) readonly buffer Bias { float bias[]; };        // (n_experts), if has_bias

const float lowest = -3e38f; // of an expert that cannot be chosen any more
shared float p[route_max_experts], score[route_max_experts], best[n_threads];
shared uint best_at[n_threads], chosen[route_max_used];

// The largest score of all threads and its lowest index, in best[0] and best_at[0].
void find_best(uint n)
{
    uint t = THREAD, mine = min(t, n - 1u);
    for (uint i = t; i < n; i += n_threads) mine = score[i] > score[mine] ? i : mine;
    best_at[t] = mine;
    best[t] = score[mine];
    barrier();
    for (uint s = n_threads / 2u; s > 0u; s >>= 1) {
        if (t < s &&
            (best[t + s] > best[t] || (best[t + s] == best[t] && best_at[t + s] < best_at[t]))) {
            best[t] = best[t + s];
            best_at[t] = best_at[t + s];
        }
        barrier();
    }
}

// Probabilities over all experts or of each, from logits in score.
void find_probabilities()
{
    find_best(a.n_experts);
    float top = best[0], sum = 0.f;
    barrier();
    for (uint i = THREAD; i < a.n_experts; i += n_threads) {
        p[i] = a.kind == route_softmax   ? exponential(score[i] - top)
               : a.kind == route_sigmoid ? sigmoid(score[i])
                                         : score[i];
        sum += p[i];
    }
    best[THREAD] = sum;
    barrier();
    for (uint s = n_threads / 2u; s > 0u; s >>= 1) {
        if (THREAD < s) best[THREAD] += best[THREAD + s];
        barrier();
    }
    float total = best[0];
    if (a.kind == route_softmax)
        for (uint i = THREAD; i < a.n_experts; i += n_threads) p[i] /= total;
    barrier();
}

// The sum of a group's two best scores.
float group_score(uint group, uint size)
{
    float first = lowest, second = lowest;
    for (uint i = group * size; i < (group + 1u) * size; i++) {
        second = max(second, min(first, score[i]));
        first = max(first, score[i]);
    }
    return size > 1u ? first + second : first;
}

// Keeps the scores of the best groups. A group's rank is the number of groups before it.
void keep_groups()
{
    uint size = a.n_experts / a.n_groups;
    bool keeps[route_max_experts / n_threads];
    for (uint g = THREAD, n = 0u; g < a.n_groups; g += n_threads, n++) {
        float mine = group_score(g, size);
        uint rank = 0u;
        for (uint i = 0u; i < a.n_groups; i++) {
            float other = group_score(i, size);
            rank += other > mine || (other == mine && i < g) ? 1u : 0u;
        }
        keeps[n] = rank < a.n_groups_used;
    }
    barrier();
    for (uint g = THREAD, n = 0u; g < a.n_groups; g += n_threads, n++)
        for (uint i = g * size; i < (g + 1u) * size; i++)
            if (!keeps[n]) score[i] = lowest;
    barrier();
}

void put_weights(uint token)
{
    float sum = 0.f, top = p[chosen[0]];
    for (uint j = 0u; j < a.n_used; j++) {
        if (a.kind == route_softmax_chosen) p[chosen[j]] = exponential(p[chosen[j]] - top);
        sum += p[chosen[j]];
    }
    float scale = a.scale;
    if (a.kind == route_softmax_chosen)
        scale /= sum;
    else if (a.normalise != 0u)
        scale /= max(sum, route_least_sum);
    for (uint j = 0u; j < a.n_used; j++) {
        ids[token * a.n_used + j] = chosen[j];
        weights[token * a.n_used + j] = p[chosen[j]] * scale;
    }
}

void main()
{
    LOAD_ARGS(a)
    LOAD_ARGS(has_bias)
    uint token = gl_WorkGroupID.x;
    for (uint i = THREAD; i < a.n_experts; i += n_threads)
        score[i] = logits[token * a.n_experts + i];
    barrier();
    find_probabilities();
    bool by_logits =
        a.kind == route_softmax_chosen || (has_bias == 0u && a.n_groups == 1u);
    for (uint i = THREAD; i < a.n_experts; i += n_threads) {
        if (!by_logits) score[i] = p[i];
        if (has_bias != 0u) score[i] += bias[i];
    }
    barrier();
    if (a.n_groups > 1u) keep_groups();
    for (uint j = 0u; j < a.n_used; j++) {
        find_best(a.n_experts);
        if (THREAD == 0u) {
            chosen[j] = best_at[0];
            score[best_at[0]] = lowest;
        }
        barrier();
    }
    if (THREAD == 0u) put_weights(token);
}
