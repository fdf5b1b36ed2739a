#include "runtime/kv/recurrent.h"

#include "runtime/base/state_file.h"

#include <cstring>

namespace ks
{

static uint64_t bytes_of(const Tensor& t)
{
    return 4ull * t.rows * t.cols;
}

std::vector<RecurrentState::Layer> RecurrentState::place_layers(const RecurrentShape& shape,
                                                                Placer& device)
{
    std::vector<Layer> layers(shape.n_layers);
    for (Layer& layer : layers) {
        layer.conv = device.take(shape.conv_rows, shape.conv_cols);
        layer.matrix = device.take(shape.rows, shape.cols);
    }
    return layers;
}

uint64_t RecurrentState::bytes_needed(const RecurrentShape& shape, Placer device)
{
    const uint64_t begin = device.offset;
    (void)place_layers(shape, device);
    return device.offset - begin;
}

uint64_t RecurrentState::snapshot_bytes(const RecurrentShape& shape)
{
    return align_up(
        4ull * shape.n_layers *
            (uint64_t(shape.conv_rows) * shape.conv_cols + uint64_t(shape.rows) * shape.cols),
        kRegionAlign);
}

void RecurrentState::place(const RecurrentShape& shape, Backend& backend, const Placer& device,
                           void* snapshots, uint32_t n_snapshots)
{
    Placer placer = device;
    m_backend = &backend;
    m_layers = place_layers(shape, placer);
    m_snapshots.reserve(n_snapshots);
    for (uint32_t i = n_snapshots; i-- > 0;)
        m_unused.push_back(static_cast<uint8_t*>(snapshots) + i * snapshot_bytes(shape));
    clear();
}

void RecurrentState::clear()
{
    for (const Layer& layer : m_layers)
        for (const Tensor* t : {&layer.conv, &layer.matrix})
            if (*t) m_backend->fill(t->buffer, t->offset, bytes_of(*t), 0);
    for (const Snapshot& snapshot : m_snapshots) m_unused.push_back(snapshot.bytes);
    m_snapshots.clear();
}

// Calls copy(tensor, its offset in a snapshot).
template <class Copy>
void RecurrentState::each_tensor(const Copy& copy) const
{
    uint64_t offset = 0;
    for (const Layer& layer : m_layers)
        for (const Tensor* t : {&layer.conv, &layer.matrix}) {
            if (*t) copy(*t, offset);
            offset += bytes_of(*t);
        }
}

void RecurrentState::copy(const RecurrentState& from)
{
    clear();
    std::vector<uint8_t> bytes;
    for (size_t il = 0; il < m_layers.size(); il++) {
        for (Tensor Layer::*which : {&Layer::conv, &Layer::matrix}) {
            const Tensor &t = m_layers[il].*which, &f = from.m_layers[il].*which;
            if (!t) continue;
            bytes.resize(bytes_of(t));
            m_backend->download(bytes.data(), f.buffer, f.offset, bytes.size());
            m_backend->upload(t.buffer, t.offset, bytes.data(), bytes.size());
        }
    }
    uint64_t n = 0; // bytes of a snapshot
    each_tensor([&](const Tensor& t, uint64_t offset) { n = offset + bytes_of(t); });
    for (const Snapshot& snapshot : from.m_snapshots)
        memcpy(add_snapshot(snapshot.n_tokens), snapshot.bytes, n);
}

// The bytes of a new snapshot; null: there is no room for any.
uint8_t* RecurrentState::add_snapshot(uint32_t n_tokens)
{
    if (m_unused.empty()) {
        if (m_snapshots.empty()) return nullptr;
        const auto oldest = m_snapshots.begin() + (m_snapshots.size() > 1);
        m_unused.push_back(oldest->bytes);
        m_snapshots.erase(oldest);
    }
    m_snapshots.push_back({n_tokens, m_unused.back()});
    m_unused.pop_back();
    return m_snapshots.back().bytes;
}

void RecurrentState::take_snapshot(uint32_t n_tokens)
{
    if (!m_snapshots.empty() && m_snapshots.back().n_tokens == n_tokens) return;
    uint8_t* const to = add_snapshot(n_tokens);
    if (!to) return;
    each_tensor([&](const Tensor& t, uint64_t offset) {
        m_backend->download(to + offset, t.buffer, t.offset, bytes_of(t));
    });
}

uint32_t RecurrentState::newest_snapshot(uint32_t n_tokens) const
{
    uint32_t newest = 0;
    for (const Snapshot& snapshot : m_snapshots)
        if (snapshot.n_tokens <= n_tokens) newest = snapshot.n_tokens;
    return newest;
}

void RecurrentState::restore(uint32_t n_tokens)
{
    while (!m_snapshots.empty() && m_snapshots.back().n_tokens > n_tokens) {
        m_unused.push_back(m_snapshots.back().bytes);
        m_snapshots.pop_back();
    }
    if (m_snapshots.empty()) return clear();
    each_tensor([this](const Tensor& t, uint64_t offset) {
        m_backend->upload(t.buffer, t.offset, m_snapshots.back().bytes + offset, bytes_of(t));
    });
}

void RecurrentState::transfer(StateFile& file, uint32_t n_tokens)
{
    if (empty()) return;
    if (file.loads()) clear();
    each_tensor([&](const Tensor& t, uint64_t) {
        file.device(*m_backend, t.buffer, t.offset, bytes_of(t));
    });
    transfer_snapshots(file, n_tokens);
}

// Their number, then the tokens and bytes of each. A file without snapshots ends before them.
void RecurrentState::transfer_snapshots(StateFile& file, uint32_t n_tokens)
{
    uint32_t n = uint32_t(m_snapshots.size()), before = 0;
    if (file.saves() ? n == 0 : file.left() < 8) return;
    uint64_t bytes = 0; // of one
    each_tensor([&](const Tensor& t, uint64_t offset) { bytes = offset + bytes_of(t); });
    file.value(n);
    file.require(file.saves() || n <= file.left() / (bytes + 4), "a count that is too large");
    for (uint32_t i = 0; i < n && file.ok(); i++) {
        uint32_t tokens = file.saves() ? m_snapshots[i].n_tokens : 0;
        file.value(tokens);
        file.require(tokens > before && tokens <= n_tokens, "a snapshot of tokens it has not read");
        before = tokens;
        if (file.checks()) {
            file.device(*m_backend, {}, 0, bytes);
            continue;
        }
        uint8_t* const at = file.saves() ? m_snapshots[i].bytes : add_snapshot(tokens);
        file.require(at != nullptr, "snapshots, which this session has no memory for");
        if (file.ok()) file.bytes(at, bytes);
    }
}

} // namespace ks
