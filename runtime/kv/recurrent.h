// The state of a session's recurrent layers: a fixed number of bytes, whatever the length of the
// text. It cannot be cut, so going back needs a snapshot, a copy in host memory.
#pragma once

#include "runtime/base/backend.h"
#include "runtime/base/placer.h"

#include <cstdint>
#include <vector>

namespace ks
{

class StateFile;

struct RecurrentShape {
    uint32_t n_layers = 0;                 // 0: the model has no recurrent layers
    uint32_t conv_rows = 0, conv_cols = 0; // inputs that the convolution keeps
    uint32_t rows = 0, cols = 0;           // of the matrix; 0: there is none
};

class RecurrentState
{
public:
    struct Layer {
        Tensor conv;   // (conv_rows, conv_cols)
        Tensor matrix; // (rows, cols)
    };
    // On the device.
    static uint64_t bytes_needed(const RecurrentShape& shape, Placer device = {});
    static uint64_t snapshot_bytes(const RecurrentShape& shape);
    // Places everything in exactly bytes_needed() and n_snapshots * snapshot_bytes(), and clears
    // it.
    void place(const RecurrentShape& shape, Backend& backend, const Placer& device, void* snapshots,
               uint32_t n_snapshots);

    bool empty() const { return m_layers.empty(); }
    const Layer& layer(uint32_t il) const { return m_layers[il]; }
    void clear();                          // also forgets the snapshots
    void copy(const RecurrentState& from); // of the same shape, with the snapshots; allocates
    // Copies the state after n_tokens. If there is no room, it replaces the oldest snapshot except
    // the first, which is the end of the system prompt.
    void take_snapshot(uint32_t n_tokens);
    // The tokens of the newest snapshot of at most n_tokens; 0: there is none.
    uint32_t newest_snapshot(uint32_t n_tokens) const;
    // Restores that snapshot and forgets newer ones. Without one, the state is clear.
    void restore(uint32_t n_tokens);
    // Saves, checks or loads the state after n_tokens, then the snapshots, of which loading keeps
    // those that have room. A failure while loading leaves it unusable until clear().
    void transfer(StateFile& file, uint32_t n_tokens);

private:
    struct Snapshot {
        uint32_t n_tokens;
        uint8_t* bytes;
    };
    static std::vector<Layer> place_layers(const RecurrentShape& shape, Placer& device);
    uint8_t* add_snapshot(uint32_t n_tokens);
    void transfer_snapshots(StateFile& file, uint32_t n_tokens);
    template <class Copy>
    void each_tensor(const Copy& copy) const;

    Backend* m_backend = nullptr;
    std::vector<Layer> m_layers;
    std::vector<Snapshot> m_snapshots; // by tokens
    std::vector<uint8_t*> m_unused;    // snapshots
};

} // namespace ks
