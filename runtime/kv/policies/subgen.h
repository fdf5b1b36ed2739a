// SubGen / ClusterGen, Algorithm 1 (Zandieh et al., 2024), for the tokens that one KV head evicts.
// Attention over them is estimated from samples, in slots numbered from 0:
//   [0, m * t)           t sampled keys of each of m clusters: the denominator
//   [m * t, m * t + s)   tokens sampled by |value|^2: the numerator
// The caller owns the slots. This class has the log-weights, and decides which token goes into
// which slot. Its state is plain bytes, so it can be saved and loaded. Random numbers are functions
// of (seed, layer, head, position, slot).
#pragma once

#include <cstdint>

namespace ks
{

struct SubgenShape {
    uint32_t n_clusters; // at most; if more are needed, the radius doubles and clusters merge
    uint32_t t;          // keys sampled of each cluster
    uint32_t s;          // tokens sampled by |value|^2
    uint32_t head_dim;
    // true: s distinct tokens by priority sampling; false: s independent samples with replacement,
    // as in the paper.
    bool priority;
    uint64_t seed;
    uint32_t layer;
    uint32_t head;
};

// What an update does to the slots: first the copies, in any order, then the token goes into its
// slots.
struct SubgenChanges {
    struct Copy {
        uint32_t from, to;
    };
    Copy* copies;    // (n_clusters * t)
    uint32_t* slots; // (t + s) the slots that get the token
    uint32_t n_copies;
    uint32_t n_slots;
};

class Subgen
{
public:
    static uint64_t bytes_needed(const SubgenShape& shape);
    // state: bytes_needed() bytes, aligned for double. New state needs clear().
    Subgen(const SubgenShape& shape, void* state);

    void clear();
    void set_radius(float radius); // before the first update
    // Sets the radius to 1.5 times the median distance to the nearest neighbour, among the first
    // 256 of these keys.
    void choose_radius(const float* keys, uint32_t n); // keys: (n, head_dim)
    void update(uint32_t position, const float* key, const float* value, SubgenChanges* changes);
    // The log-weight of each slot (n_clusters * t + s) in numerator and denominator; -infinity: the
    // slot is not part of it.
    void weights(float* numerator, float* denominator) const;

    bool fits(uint32_t n_seen) const; // whether at most n_seen updates can have made the state

    float radius() const { return float(m_head->radius); }
    uint32_t n_clusters() const { return m_head->n_clusters; }

private:
    struct Head {
        double mass;      // sum of |value|^2
        double threshold; // the largest priority that was rejected
        double radius;    // of a cluster, around its first key
        uint32_t n_clusters;
        uint32_t reserved;
    };
    float* centre(uint32_t cluster) const
    {
        return m_centres + uint64_t(cluster) * m_shape.head_dim;
    }
    double coin(uint32_t position, uint32_t slot, uint32_t from) const;
    uint32_t nearest(const float* key, uint32_t end, double* distance) const;
    void merge_clusters(uint32_t position, SubgenChanges* changes);
    void sample_key(uint32_t position, const float* key, SubgenChanges* changes);
    void sample_value(uint32_t position, double weight, SubgenChanges* changes);
    void sample_by_priority(uint32_t position, double weight, SubgenChanges* changes);

    SubgenShape m_shape;
    Head* m_head;
    double* m_weights;    // (s) |value|^2 of a sampled token; 0: the slot is empty
    double* m_priorities; // (s)
    uint32_t* m_counts;   // (n_clusters) tokens of the cluster; 0: free
    float* m_centres;     // (n_clusters, head_dim) the first key of each cluster
};

} // namespace ks
