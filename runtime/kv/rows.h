// Rows of keys and values on the host: read from the device as f32, and written back. Callers name
// rows by index; HeadRows says which row of which pool an index has.
#pragma once

#include "runtime/kv/decide.h"

namespace ks
{

// The head whose rows are read or written: its held tokens, then the staged chunk's.
struct HeadRows {
    Backend& backend;
    const CacheLayer& layer;
    const Chunk& chunk;
    const HeadCandidates& candidates;
    uint32_t head;

    // The row of an index in the staged chunk.
    uint32_t chunk_row(uint32_t index) const
    {
        return head * chunk.n_rows + index - candidates.n_held;
    }
};

enum class KeyOrValue : uint8_t { key, value };

class RowTransfer
{
public:
    static constexpr uint32_t kMostAtOnce = 256;

    // Places buffers for n rows at a time; none if n is 0.
    void place(uint32_t n, uint32_t head_dim, Placer& device);
    uint32_t n_at_once() const { return m_n; }
    // Reads the rows of indexes [begin, end) to out (end - begin, head_dim). wanted (end): 1 for
    // those to read; null: all. Rows of `out` that are not wanted are overwritten.
    void read(const HeadRows& from, KeyOrValue what, uint32_t begin, uint32_t end,
              const uint8_t* wanted, float* out);
    // Writes the wanted rows of values (end, head_dim), which are by index. Destroys `values`.
    void write(const HeadRows& to, KeyOrValue what, uint32_t end, const uint8_t* wanted,
               float* values);
    // Writes a key and a value into a slot of any pool.
    void write_slot(Backend& backend, const CacheLayer& layer, uint32_t slot, const float* key,
                    const float* value);

private:
    template <class Body>
    void for_runs(const HeadRows& of, KeyOrValue what, uint32_t begin, uint32_t end,
                  const uint8_t* wanted, const Body& body);
    void write_rows(Backend& backend, const Tensor& to, const uint32_t* rows, uint32_t n,
                    const float* values);

    Tensor m_values;      // (n, head_dim)
    Tensor m_rows;        // (1, n) u32
    Tensor m_head_layout; // (1, layout_words) u32
    uint32_t m_n = 0;     // rows at a time
};

} // namespace ks
