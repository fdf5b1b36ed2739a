// The state of recurrent layers: its snapshots, in memory and in files.
#include "backends/reference/reference_backend.h"
#include "runtime/base/state_file.h"
#include "runtime/kv/recurrent.h"
#include "tests/model/gguf_builder.h"

#include <doctest/doctest.h>

using namespace ks;

namespace
{

constexpr RecurrentShape kShape = {2, 3, 8, 4, 16};

// A state with room for snapshots.
struct Bed {
    ReferenceBackend backend{{"reference", 1, nullptr}};
    Buffer device;
    std::vector<uint8_t> snapshots;
    RecurrentState state;

    explicit Bed(uint32_t n_snapshots)
        : device(backend.alloc(RecurrentState::bytes_needed(kShape)).value()),
          snapshots(n_snapshots * RecurrentState::snapshot_bytes(kShape))
    {
        state.place(kShape, backend, {device}, snapshots.data(), n_snapshots);
    }
    ~Bed() { backend.free(device); }

    void set(uint32_t value) { backend.fill(device, 0, device.bytes, value); }
    // The value of the state; ~0: it differs.
    uint32_t value() const
    {
        uint32_t found = ~0u;
        for (uint32_t il = 0; il < kShape.n_layers; il++)
            for (const Tensor& t : {state.layer(il).conv, state.layer(il).matrix})
                for (uint32_t i = 0; i < t.rows * t.cols; i++) {
                    const uint32_t v = t.ptr<uint32_t>()[i];
                    if (found != ~0u && v != found) return ~0u;
                    found = v;
                }
        return found;
    }
};

// Snapshots after 10, 20, ... tokens of states with these values.
void take(Bed& bed, uint32_t n)
{
    for (uint32_t i = 1; i <= n; i++) {
        bed.set(10 * i);
        bed.state.take_snapshot(10 * i);
    }
    bed.set(7);
}

Status transfer(StateFile::Mode mode, const std::string& path, Bed& bed, uint32_t n_tokens)
{
    StateFile file(mode, path);
    bed.state.transfer(file, n_tokens);
    return file.finish();
}

} // namespace

TEST_CASE("recurrent: a full memory keeps the first and the newest snapshots")
{
    for (uint32_t room : {1u, 2u, 3u, 5u}) {
        Bed bed(room);
        take(bed, 6);
        for (uint32_t n = 60; n > 0; n -= 10) {
            const uint32_t newest = bed.state.newest_snapshot(n);
            const bool kept = n > 60 - 10 * room + (room > 1 ? 10 : 0) || (room > 1 && n == 10);
            CHECK((newest == n) == kept);
            bed.state.restore(n);
            CHECK(bed.value() == newest);
        }
    }
}

TEST_CASE("recurrent: loading keeps the snapshots that it has room for")
{
    TempFile file("recurrent.state", "");
    SUBCASE("snapshots")
    {
        Bed saved(4);
        take(saved, 4);
        REQUIRE(transfer(StateFile::Mode::save, file.path(), saved, 45).ok());
        for (uint32_t room : {1u, 2u, 3u, 4u, 9u}) {
            Bed bed(room), same(room);
            take(bed, 9);
            REQUIRE(transfer(StateFile::Mode::check, file.path(), bed, 45).ok());
            CHECK(bed.value() == 7);
            CHECK(bed.state.newest_snapshot(~0u) == 90);
            bed.set(8);
            REQUIRE(transfer(StateFile::Mode::load, file.path(), bed, 45).ok());
            CHECK(bed.value() == 7);
            take(same, 4);
            for (uint32_t n = 100; n > 0; n -= 10) {
                CHECK(bed.state.newest_snapshot(n) == same.state.newest_snapshot(n));
                bed.state.restore(n);
                CHECK(bed.value() == same.state.newest_snapshot(n));
            }
        }
        Bed bed(4);
        CHECK(transfer(StateFile::Mode::check, file.path(), bed, 40).ok());
        CHECK(transfer(StateFile::Mode::check, file.path(), bed, 39).code() == Code::invalid);
    }
    SUBCASE("none")
    {
        Bed saved(2), bed(2);
        saved.set(7);
        REQUIRE(transfer(StateFile::Mode::save, file.path(), saved, 5).ok());
        take(bed, 2);
        REQUIRE(transfer(StateFile::Mode::load, file.path(), bed, 5).ok());
        CHECK(bed.value() == 7);
        CHECK(bed.state.newest_snapshot(~0u) == 0);
    }
}
