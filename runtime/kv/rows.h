// Rows of keys and values on the host: read from the device as f32, and written back.
#pragma once

#include "runtime/kv/decide.h"

namespace ks
{

// The head whose rows are read or written.
struct HeadRows {
    Backend& backend;
    const CacheLayer& layer;
    const Chunk& chunk;
    const HeadCandidates& candidates;
    uint32_t head;

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

    // Buffers for n rows at a time; none where n is 0.
    void place(uint32_t n, uint32_t head_dim, Placer& device);
    uint32_t n_at_once() const { return m_n; }
    // The rows of indexes [begin, end), to out (end - begin, head_dim). wanted (end): which of
    // them; null: all. Rows in between are overwritten.
    void read(const HeadRows& from, KeyOrValue what, uint32_t begin, uint32_t end,
              const uint8_t* wanted, float* out);
    // Writes rows (end, head_dim), by index, of the indexes that are wanted. Uses up `rows`.
    void write(const HeadRows& to, KeyOrValue what, uint32_t end, const uint8_t* wanted,
               float* rows);
    void write_slot(Backend& backend, const CacheLayer& layer, uint32_t slot, const float* key,
                    const float* value);

private:
    template <class Body>
    void for_runs(const HeadRows& of, KeyOrValue what, uint32_t begin, uint32_t end,
                  const uint8_t* wanted, const Body& body);
    void write_rows(Backend& backend, const Tensor& to, const uint32_t* rows, uint32_t n,
                    const float* values);

    Tensor m_values;  // (n, head_dim)
    Tensor m_rows;    // (1, n) u32
    Tensor m_view;    // (1, layout_words) u32
    uint32_t m_n = 0; // rows at a time
};

} // namespace ks
