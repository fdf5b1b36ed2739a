// Climbs of a cache between layouts of the same bytes: every row is the code of what was there.
#include "tests/backends/coded_rows.h"
#include "tests/kv/coded_bed.h"

#include <doctest/doctest.h>

using namespace ks;

namespace
{

constexpr uint32_t kChunk = 24, kContext = 3000;

struct ClimbShape {
    ModelShape model;
    std::vector<uint32_t> slots; // by rung
    std::vector<const char*> recipes;
};

// Whole and window layers; window layers are shorter than the first rung or longer.
ClimbShape shape_of(uint32_t head_dim, uint32_t window, bool latent)
{
    ClimbShape s;
    for (uint32_t il = 0; il < 5; il++) {
        LayerShape layer;
        layer.n_kv_heads = latent ? 1 : 1 + il % 2;
        layer.n_heads = 2 * layer.n_kv_heads;
        layer.head_dim = head_dim;
        layer.window = window && il % 2 == 0;
        s.model.layers.push_back(layer);
    }
    s.model.window = window;
    s.model.values_in_keys = latent;
    s.slots = {150, 280, 400, 700};
    s.recipes = {"exact", "retain=all,k=q8,v=q8", "retain=all,k=q8,v=turbo4",
                 "mix,k=turbo4,v=turbo3"};
    if (latent) s.slots = {150, 280}, s.recipes = {"exact", "mix,k=q8,v=q8"};
    return s;
}

// What a row holds: the values before any code, or the code of the rung before.
using Values = std::vector<float>;

struct Ladder {
    ClimbShape shape;
    std::unique_ptr<Backend> backend;
    Buffer buffer;
    std::vector<uint8_t> tables, staging;
    std::vector<Cache> rungs;
    Tensor k, v, values, codes, rows;
    uint64_t cache_bytes = 0;
    uint32_t rung = 0, n_seen = 0;

    Ladder(const ClimbShape& s, const std::string& device)
        : shape(s), backend(std::move(open_backend({device, 2, nullptr}).value())),
          rungs(s.slots.size())
    {
        CacheBytes most;
        for (size_t i = 0; i < rungs.size(); i++) {
            const Recipe recipe = parse_recipe(s.recipes[i]).value();
            const CacheBytes bytes =
                Cache::bytes_needed(cache_specs(s.model, recipe, s.slots[i]), recipe, kChunk,
                                    recipe.exact() ? s.slots[i] : 0, {{}, 0, backend->align()});
            most.device = std::max(most.device, bytes.device);
            most.host = std::max(most.host, bytes.host);
            most.plane = std::max(most.plane, bytes.plane);
        }
        cache_bytes = most.device;
        uint32_t cols = 0;
        for (const LayerShape& layer : s.model.layers)
            cols = std::max(cols, layer.n_kv_heads * layer.head_dim);
        for (int pass = 0; pass < 2; pass++) {
            Placer placer{buffer, most.device, backend->align()};
            for (Tensor* t : {&k, &v, &values, &codes}) *t = placer.take(kChunk, cols);
            rows = placer.take(kChunk, 16);
            if (pass == 0) buffer = backend->alloc(placer.offset).value();
        }
        tables.resize(most.host);
        staging.resize(most.plane);
        for (size_t i = 0; i < rungs.size(); i++) {
            const Recipe recipe = parse_recipe(s.recipes[i]).value();
            rungs[i].place(cache_specs(s.model, recipe, s.slots[i]), recipe, kChunk,
                           recipe.exact() ? s.slots[i] : 0, *backend, {buffer, 0, tables.data()});
        }
        rungs[0].clear();
    }
    ~Ladder() { backend->free(buffer); }

    static Values row(uint32_t il, uint32_t what, uint32_t position, uint32_t head, uint32_t d)
    {
        Values out;
        for (uint32_t i = 0; i < d; i++)
            out.push_back(float(
                8 * random_uniform(((il * 2 + what) * 4096 + head) * 4096 + position, i) - 4));
        return out;
    }
    void read(uint32_t n)
    {
        Cache& cache = rungs[rung];
        for (uint32_t il = 0; il < cache.n_layers(); il++) {
            const CacheLayerSpec& s = cache.layer(il).spec;
            cache.begin_layer(il, n, n_seen);
            for (uint32_t what = 0; what < 2; what++) {
                Tensor& t = what ? v : k;
                t.rows = n;
                t.cols = s.n_kv_heads * s.head_dim;
                Values all;
                for (uint32_t p = n_seen; p < n_seen + n; p++)
                    for (uint32_t h = 0; h < s.n_kv_heads; h++) {
                        const Values one = row(il, what, p, h, s.head_dim);
                        all.insert(all.end(), one.begin(), one.end());
                    }
                backend->upload(buffer, t.offset, all.data(), 4 * all.size());
                const RopeTarget target{{n, s.n_kv_heads, s.head_dim, 0, 0, 0, 1}, t, t, {}};
                if (what ? s.hadamard_values() : s.hadamard_keys()) backend->rope(&target, 1);
            }
            cache.write(k, s.values_in_keys ? Tensor() : v);
            cache.end_layer();
        }
        n_seen += n;
    }
    void climb()
    {
        rungs[rung + 1].take_over(rungs[rung], n_seen,
                                  {values, codes, rows, kChunk, staging.data()});
        rung++;
    }
    // The bytes of the row of an index, and whether it is coded.
    std::vector<uint8_t> bytes_of(uint32_t il, uint32_t what, uint32_t h, uint32_t index,
                                  bool* coded) const
    {
        const CacheLayer& l = rungs[rung].layer(il);
        const uint32_t slot =
            l.spec.table ? l.slots[l.begin[h] + index] : ring_slot(h, index, l.spec.n_slots, 0);
        *coded = l.in_coded_pool(slot);
        const KvSlots& kv = l.kv;
        const Tensor& pool = what ? (*coded ? kv.coded_v : kv.v) : (*coded ? kv.coded_k : kv.k);
        const uint32_t row = l.row_of(slot), tail = tail_bytes(pool.format, pool.cols),
                       words = codec_info(pool.format).row_bytes(pool.cols) - tail;
        std::vector<uint8_t> out(words + tail);
        backend->download(out.data(), pool.buffer, pool.offset + uint64_t(row) * words, words);
        if (tail)
            backend->download(out.data() + words, pool.buffer,
                              pool.offset + uint64_t(pool.rows) * words + row * tail, tail);
        return out;
    }
};

// The row of a position after the climbs up to `rung`, with the pools that it went through.
std::vector<uint8_t> expected(const Ladder& ladder, uint32_t il, uint32_t what, uint32_t h,
                              uint32_t position, const std::vector<uint8_t>& coded_in)
{
    const CacheLayerSpec& first = ladder.rungs[0].layer(il).spec;
    const uint32_t d = first.head_dim;
    Values x = Ladder::row(il, what, position, h, d);
    std::vector<uint8_t> bytes = encode(Format::f16, x.data(), d);
    Format format = Format::f16;
    bool rotated = false;
    for (uint32_t r = 1; r <= ladder.rung; r++) {
        const CacheLayerSpec& s = ladder.rungs[r].layer(il).spec;
        const Format next = coded_in[r] ? (what ? s.v : s.k) : Format::f16;
        const bool rotates = (what ? s.hadamard_values() : s.hadamard_keys()) && !rotated;
        if (next == format && !rotates) continue;
        x = decode(format, bytes, d);
        if (rotates) hadamard_head(x.data(), d, false);
        rotated |= rotates;
        bytes = encode(next, x.data(), d);
        format = next;
    }
    return bytes;
}

} // namespace

TEST_CASE("climb: each row is the code of the row before, on every device, and so is the table")
{
    for (const DeviceInfo& device : tested_devices()) {
        for (uint32_t head_dim : {64, 80, 16})
            for (uint32_t window : {0, 40, 200})
                for (bool latent : {false, true}) {
                    if (latent && (window || head_dim == 16)) continue;
                    CAPTURE(device.id);
                    CAPTURE(head_dim);
                    CAPTURE(window);
                    Ladder ladder(shape_of(head_dim, window, latent), device.id);
                    // By layer, head and position: whether it was coded, by rung.
                    std::map<std::vector<uint32_t>, std::vector<uint8_t>> coded_in;
                    for (uint32_t r = 0; r + 1 < ladder.rungs.size(); r++) {
                        const uint32_t end = ladder.shape.slots[r];
                        if (r == 0)
                            while (ladder.n_seen < end)
                                ladder.read(std::min(kChunk, end - ladder.n_seen));
                        ladder.climb();
                        for (uint32_t il = 0; il < 5; il++) {
                            const CacheLayer& l = ladder.rungs[ladder.rung].layer(il);
                            for (uint32_t h = 0; h < l.spec.n_kv_heads; h++) {
                                const uint32_t held = l.held[h];
                                if (!l.spec.local) REQUIRE(held == ladder.n_seen);
                                REQUIRE(held >= std::min(ladder.n_seen, l.spec.bounded ? 30
                                                                        : window       ? window - 1
                                                                                       : ~0u));
                                for (uint32_t i = 0; i < held; i++) {
                                    const uint32_t p = l.positions[l.begin[h] + i];
                                    REQUIRE(p == ladder.n_seen - held + i);
                                    for (uint32_t what = 0; what < (latent ? 1u : 2u); what++) {
                                        bool coded = false;
                                        const std::vector<uint8_t> bytes =
                                            ladder.bytes_of(il, what, h, i, &coded);
                                        std::vector<uint8_t>& was = coded_in[{il, h, p, what}];
                                        was.resize(ladder.rungs.size());
                                        was[ladder.rung] = coded;
                                        REQUIRE(bytes == expected(ladder, il, what, h, p, was));
                                    }
                                }
                            }
                        }
                    }
                }
    }
}
