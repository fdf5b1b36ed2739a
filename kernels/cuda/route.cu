// Chooses the experts of a token (RouteArgs). One block per token.
#include "kernels/cuda/cuda_util.cuh"
#include "kernels/cuda/ops.h"

namespace ks
{

constexpr float lowest = -3e38f; // of an expert that cannot be chosen any more

struct Best {
    float value[n_threads];
    uint at[n_threads];
};

// The largest score of all threads and its lowest index, in value[0] and at[0].
DEVICE void find_best(const float* score, uint n, Best& best)
{
    uint t = threadIdx.x, mine = min(t, n - 1u);
    for (uint i = t; i < n; i += n_threads) mine = score[i] > score[mine] ? i : mine;
    best.at[t] = mine;
    best.value[t] = score[mine];
    __syncthreads();
    for (uint s = n_threads / 2u; s > 0u; s >>= 1) {
        if (t < s && (best.value[t + s] > best.value[t] ||
                      (best.value[t + s] == best.value[t] && best.at[t + s] < best.at[t]))) {
            best.value[t] = best.value[t + s];
            best.at[t] = best.at[t + s];
        }
        __syncthreads();
    }
}

// Probabilities over all experts or of each, from logits in score.
DEVICE void find_probabilities(const RouteArgs& a, const float* score, float* p, Best& best)
{
    find_best(score, a.n_experts, best);
    const float top = best.value[0];
    float sum = 0.f;
    __syncthreads();
    for (uint i = threadIdx.x; i < a.n_experts; i += n_threads) {
        p[i] = a.kind == route_softmax   ? expf(score[i] - top)
               : a.kind == route_sigmoid ? sigmoid(score[i])
                                         : score[i];
        sum += p[i];
    }
    sum = block_sum(sum, best.value);
    if (a.kind == route_softmax)
        for (uint i = threadIdx.x; i < a.n_experts; i += n_threads) p[i] /= sum;
    __syncthreads();
}

// The sum of a group's two best scores.
DEVICE float group_score(const float* score, uint group, uint size)
{
    float first = lowest, second = lowest;
    for (uint i = group * size; i < (group + 1u) * size; i++) {
        second = fmaxf(second, fminf(first, score[i]));
        first = fmaxf(first, score[i]);
    }
    return size > 1u ? first + second : first;
}

// Keeps the scores of the best groups. A group's rank is the number of groups before it.
DEVICE void keep_groups(const RouteArgs& a, float* score)
{
    const uint size = a.n_experts / a.n_groups;
    bool keeps[route_max_experts / n_threads];
    for (uint g = threadIdx.x, n = 0u; g < a.n_groups; g += n_threads, n++) {
        const float mine = group_score(score, g, size);
        uint rank = 0u;
        for (uint i = 0u; i < a.n_groups; i++) {
            const float other = group_score(score, i, size);
            rank += other > mine || (other == mine && i < g) ? 1u : 0u;
        }
        keeps[n] = rank < a.n_groups_used;
    }
    __syncthreads();
    for (uint g = threadIdx.x, n = 0u; g < a.n_groups; g += n_threads, n++)
        for (uint i = g * size; i < (g + 1u) * size; i++)
            if (!keeps[n]) score[i] = lowest;
    __syncthreads();
}

DEVICE void put_weights(const RouteArgs& a, const uint* chosen, float* p, uint* ids, float* weights)
{
    const float top = p[chosen[0]];
    float sum = 0.f, scale = a.scale;
    for (uint j = 0u; j < a.n_used; j++) {
        if (a.kind == route_softmax_chosen) p[chosen[j]] = expf(p[chosen[j]] - top);
        sum += p[chosen[j]];
    }
    if (a.kind == route_softmax_chosen)
        scale /= sum;
    else if (a.normalise != 0u)
        scale /= fmaxf(sum, route_least_sum);
    for (uint j = 0u; j < a.n_used; j++) {
        ids[j] = chosen[j];
        weights[j] = p[chosen[j]] * scale;
    }
}

__global__ void route_kernel(RouteArgs a, uint* ids, // (n_tokens, n_used)
                             float* weights,         // (n_tokens, n_used)
                             const float* logits,    // (n_tokens, n_experts)
                             const float* bias)      // (n_experts), or null
{
    begin_kernel();
    KS_SHARED(float, p, [route_max_experts]);
    KS_SHARED(float, score, [route_max_experts]);
    KS_SHARED(uint, chosen, [route_max_used]);
    KS_SHARED(Best, best, [1]);
    const uint token = blockIdx.x;
    for (uint i = threadIdx.x; i < a.n_experts; i += n_threads)
        score[i] = logits[uint64_t(token) * a.n_experts + i];
    __syncthreads();
    find_probabilities(a, score, p, best[0]);
    const bool by_logits = a.kind == route_softmax_chosen || (bias == nullptr && a.n_groups == 1u);
    for (uint i = threadIdx.x; i < a.n_experts; i += n_threads) {
        if (!by_logits) score[i] = p[i];
        if (bias != nullptr) score[i] += bias[i];
    }
    __syncthreads();
    if (a.n_groups > 1u) keep_groups(a, score);
    for (uint j = 0u; j < a.n_used; j++) {
        find_best(score, a.n_experts, best[0]);
        if (threadIdx.x == 0u) {
            chosen[j] = best[0].at[0];
            score[best[0].at[0]] = lowest;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0u)
        put_weights(a, chosen, p, ids + uint64_t(token) * a.n_used,
                    weights + uint64_t(token) * a.n_used);
}

void route_launch(const RouteArgs& a, uint* ids, float* weights, const float* logits,
                  const float* bias, cudaStream_t stream)
{
    KS_LAUNCH(route_kernel, a.n_tokens, n_threads, stream, a, ids, weights, logits, bias);
}

} // namespace ks
