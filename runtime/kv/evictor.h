// Who leaves a layer when a staged chunk has been read, what becomes of them, and who takes their rows. Decisions are made on
// the host from what attention said and what the keys are; the device only moves rows.
#pragma once

#include "runtime/base/backend.h"
#include "runtime/base/placer.h"
#include "runtime/kv/recipe.h"
#include "runtime/kv/policies/subgen.h"

#include <vector>

namespace ks
{

struct CacheLayerSpec {
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t n_rows;       // slots per KV head
    uint32_t n_pinned = 0; // leading tokens that stay
    uint32_t window = 0;   // tokens visible beside the pinned; 0: all that are held
    bool table = false;
    bool bounded = false;   // what it forgets counts as evicted; a window layer only forgets what nobody sees
    bool local = false;     // the window is the model's: nothing is pinned
    uint32_t n_read = 0;    // slots that a step reads, where it does not read all
    uint32_t n_coded = 0;   // slots in the coded pool: of what is neither among the first nor the last tokens
    Format k = Format::f16; // of the coded pool; plain slots are f16, or f32 if it is
    Format v = Format::f16;
    uint32_t n_wave = 0; // keys are stored without the model's bias, whose waves have so many values; 0: with it
    uint32_t n_turn = 0; // keys are stored as before RoPE, which turns so many values; 0: after it
    uint32_t pairs = 0;  // rope_neighbours or rope_halves

    uint32_t n_plain() const { return n_rows - n_coded; }                  // rows of the plain pool
    bool rotates_keys() const { return n_coded && codec_info(k).rotated; } // all of the layer's, and its queries
    bool rotates_values() const { return n_coded && codec_info(v).rotated; }
    // Coded slots that are written and given up together: those of so many indexes in a row, which are rows of one group in order.
    uint32_t group() const { return n_coded ? codec_info(k).group : 1; }
    // Slots are coded but for the first tokens, the last ones, those to come and those that a group waits for.
    void code_slots(const Recipe& r, Format keys, Format values);
    // Slots, beside coded ones, that a decision leaves for the tokens after it. Of groups not all plain slots that wait are free.
    uint32_t plain_slack(const Recipe& r) const
    {
        return group() > 1 ? r.delta_of(n_rows) - 1 : n_plain() - r.sink_of(n_rows) - r.plain_recent_of(n_rows);
    }
};

struct CacheLayer {
    CacheLayerSpec spec;
    Recipe rules; // the recipe, or what it comes to in this layer
    KvSlots slots;
    Tensor signal; // (1, n_kv_heads * n_rows) f32, by row
    Selection selection;
    bool fresh = true; // indexes are not what they were at the last choice
    // The host's side of a table. A head's part begins at begin[head]; in it the first held[head] of capacity[head] are in use.
    uint32_t* begin = nullptr;     // (n_kv_heads)
    uint32_t* held = nullptr;      // (n_kv_heads)
    uint32_t* capacity = nullptr;  // (n_kv_heads)
    uint32_t* coded = nullptr;     // (n_kv_heads) of the held, those in the coded pool; they follow on the plain first ones
    uint32_t* rows = nullptr;      // (n_kv_heads * n_rows) slots: the held, then free ones, plain before coded
    uint32_t* positions = nullptr; // (n_kv_heads * n_rows), by index
    uint32_t* counts = nullptr;    // (n_kv_heads * n_rows), by row: tokens that it stands for; where victims merge
    float* weights = nullptr;      // (n_kv_heads * n_rows, 2), the host's copy of slots.weights
    uint8_t* estimators = nullptr; // a Subgen per head

    uint32_t first_coded() const { return spec.n_kv_heads * spec.n_plain(); } // the first slot of the coded pool
    bool in_coded_pool(uint32_t slot) const { return slot >= first_coded(); }
    // Tokens that head h can still take before a decision.
    uint32_t room(uint32_t h) const { return spec.n_coded ? spec.n_plain() - (held[h] - coded[h]) : capacity[h] - held[h]; }
};

constexpr uint32_t kFrameToken = 1u << 31; // beside an id: written by a chat template around somebody's words

// The text behind the slots, as far as it is known.
struct TextSeen {
    static constexpr uint32_t kBuckets = 4096; // ids are counted by remainder: a vocabulary's own counts would cost more than they say
    const uint32_t* ids = nullptr; // (size) a ring: the id at position p is in [p % size], the chunk's own included, some with kFrameToken
    uint32_t size = 0;
    uint16_t* counts = nullptr; // (kBuckets) how often ids were read
    uint32_t far = ~0u;         // tokens further back than the model was trained for; they have to go

    bool knows(uint32_t position, uint32_t n_seen) const { return position < n_seen && n_seen - position <= size; }
    uint32_t bucket(uint32_t position) const { return (ids[position % size] & ~kFrameToken) % kBuckets; }
    bool is_frame(uint32_t position, uint32_t n_seen) const { return knows(position, n_seen) && ids[position % size] & kFrameToken; }
};

// The chunk in flight.
struct Chunk {
    Tensor k, v;         // (n_kv_heads * n_rows, head_dim), where it is staged
    Tensor signal;       // (1, n_kv_heads * n_rows)
    uint32_t n_rows = 0; // per head: tokens of the largest chunk; 0: none is ever staged
    uint32_t n = 0;      // tokens
    uint32_t position = 0;
    bool staged = false;
};

// Rows that go from one pool to another, (n, 2) each: from and to. In this order nothing is written over that is still needed.
struct Moves {
    // mixed: where rows of the plain pool and of the chunk meet that are coded in one group, a group per head.
    enum Way { plain_to_coded, chunk_to_coded, plain_to_mixed, chunk_to_mixed, mixed_to_coded, chunk_to_plain, n_ways };
    uint32_t* list[n_ways] = {};
    uint32_t n[n_ways] = {};

    void add(Way way, uint32_t from, uint32_t to)
    {
        list[way][2 * n[way]] = from;
        list[way][2 * n[way]++ + 1] = to;
    }
    // A row that is encoded; by way of row `mixed` where its group comes from two places.
    void add_code(bool in_chunk, uint32_t from, uint32_t to, bool is_mixed, uint32_t mixed)
    {
        if (!is_mixed) return add(in_chunk ? chunk_to_coded : plain_to_coded, from, to);
        add(in_chunk ? chunk_to_mixed : plain_to_mixed, from, mixed);
        add(mixed_to_coded, mixed, to);
    }
};

class Evictor
{
public:
    static constexpr uint32_t kReadRows = 256; // at a time, at most

    struct Counts {
        uint32_t evicted = 0, merged = 0;
    };

    // Takes scratch for the largest of the layers.
    void place(const std::vector<CacheLayerSpec>& specs, const Recipe& recipe, uint32_t chunk, Placer& device, Placer& host);
    static uint64_t estimator_bytes(const CacheLayerSpec& spec, const Recipe& recipe); // of one head; 0: the policy has none
    // Whether head h's estimator is one that update() can go on from; *slots: how many it has, 0 before the first victim.
    static bool estimator_fits(const CacheLayer& layer, const Recipe& recipe, uint32_t h, uint32_t n_seen, uint32_t* slots);
    // The chunk of a table layer has been read and does not fit: afterwards it does, when the moves have been made.
    Counts evict(Backend& backend, CacheLayer& layer, uint32_t il, const Chunk& chunk, const TextSeen& text, Moves& moves);
    uint32_t first_changed(uint32_t head) const { return m_heads[head].first; } // by the last decision

private:
    // What is known of one head's indexes: the held ones, then the chunk's.
    struct Head {
        uint32_t n, first; // indexes before `first` stay where they are, and are not looked at
        uint32_t* positions;
        uint32_t* rows; // of the pool, or of the chunk
        float* signal;
        float* score;
        uint8_t* keep;
        uint32_t* order;
        uint32_t code_end;               // where there is a coded pool: what stays from here on is plain
        uint32_t mixed_begin, mixed_end; // which of those that become coded are gathered first
    };
    // A decision's circumstances: candidates are indexes [pinned, n - recent) of a head.
    struct Case {
        Backend& backend;
        CacheLayer& layer;
        uint32_t il;
        const Chunk& chunk;
        const TextSeen& text;
        uint32_t pinned, recent, target;  // target: indexes that stay, per head
        uint32_t plain_first, plain_last; // how many are not coded, where there is a coded pool
        bool evicts;                      // else there was no room among the plain slots only
        uint32_t estimated;               // slots of an estimator, from the pinned ones on
    };
    void look(const Case& c);
    void score(const Case& c, uint32_t head);
    void count_ids(const Case& c, uint32_t head);
    bool is_frame(const Case& c, uint32_t head, uint32_t index) const;
    void protect_frames(const Case& c, uint32_t head);
    void choose(const Case& c, uint32_t head);
    void choose_among_heads(const Case& c);
    void find_coded_range(const Case& c, uint32_t head);
    struct Range {
        uint32_t begin, end; // indexes
    };
    Range all_of(uint32_t head) const { return {0, m_heads[head].n}; }
    template <class Body> void for_runs(const Case& c, uint32_t head, Range range, bool values, uint8_t kept, const Body& body);
    // Who reads the keys of a head part by part.
    struct KeySource {
        Evictor* evictor;
        const Case* c;
        uint32_t head;
    };
    void read_rows(const Case& c, uint32_t head, Range range, bool values, uint8_t kept, float* out);
    void write_rows(const Case& c, const Tensor& to, const uint32_t* rows, uint32_t n, const float* values);
    void write_changed(const Case& c, uint32_t head, bool values, float* from);
    void write_slot(const Case& c, uint32_t slot, const float* key, const float* value);
    void count_tokens(const Case& c, uint32_t head);
    void merge_victims(const Case& c, uint32_t head, bool keys_are_read);
    void estimate_victims(const Case& c, uint32_t head);
    void write_estimator(const Case& c, uint32_t head);
    void free_rows(const Case& c);
    bool becomes_plain(const Case& c, uint32_t head, uint32_t index) const;
    void take_over(const Case& c, uint32_t head, Moves& moves);

    bool m_reads = false, m_writes = false;
    bool m_reads_all = false; // the keys of a head at once, not one part after the other
    std::vector<Head> m_heads;
    float* m_pool_signal = nullptr;  // (n_kv_heads * n_rows)
    float* m_chunk_signal = nullptr; // (n_kv_heads * chunk)
    float* m_scratch = nullptr;      // the policy's
    uint32_t* m_id_counts = nullptr; // (most)
    float* m_keys = nullptr;         // (most, head_dim), or (m_n_read, head_dim)
    float* m_values = nullptr;       // (most, head_dim)
    float* m_norms = nullptr;        // (2 * most), or an estimator's log-weights
    uint32_t* m_targets = nullptr;   // (most)
    uint32_t* m_sources = nullptr;   // (2 * most) of an estimator's slots: the index whose key and value they hold
    SubgenChanges m_changes{};
    struct Free {
        uint32_t* slots = nullptr; // that no head uses
        uint32_t n = 0, next = 0;
        uint32_t take()
        {
            KS_CHECK(next < n, "%u of %u slots", next, n);
            return slots[next++];
        }
    };
    Free m_free_plain, m_free_coded; // (n_kv_heads * n_rows) each
    Tensor m_read;                   // (n_read, head_dim)
    Tensor m_read_rows;              // (1, n_read) u32
    Tensor m_read_view;              // (1, view_words) u32
    uint32_t m_n_read = 0;           // rows at a time
    Counts m_counts;
};

constexpr uint32_t kLeastSlots = 2;   // per head: one that is recent and one that is chosen
constexpr uint32_t kNoPosition = ~0u; // of an estimator's slots

} // namespace ks
