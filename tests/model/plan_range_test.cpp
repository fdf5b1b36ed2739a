// Plans for devices whose ops see only a part of a large tensor.
#include "tests/model/plan_bed.h"

using namespace ks;

// A device whose ops see few bytes of a tensor.
class NarrowBackend : public ReferenceBackend
{
public:
    NarrowBackend() : ReferenceBackend({"reference", 1, nullptr}) {}
    DeviceInfo info() const override
    {
        DeviceInfo info = ReferenceBackend::info();
        info.range_bytes = range_bytes;
        return info;
    }
    uint64_t scratch_range(const ScratchShape& shape) const override
    {
        return scratch_row * shape.n_tokens;
    }
    uint64_t range_bytes = 0, scratch_row = 0;
};

TEST_CASE("plan: what ops cannot see whole gets smaller chunks or fewer slots, or is refused")
{
    std::mt19937 rng(21);
    NarrowBackend backend;
    int narrowed = 0, refused = 0;
    for (int i = 0; i < 200; i++) {
        Shape s = random_shape(rng);
        const char* recipes[] = {"exact", "h2o", "turbo4,slots=4000", "auto", "sink"};
        const Recipe recipe = parse_recipe(recipes[rng() % 5]).value();
        PlanRequest request;
        request.memory_bytes = 1ull << 36;
        if (rng() % 2) request.context = 1 + rng() % 5000;
        backend.range_bytes = 0;
        backend.scratch_row = rng() % 3 ? 0 : 4ull * rng() % (1 << 20);
        const Plan all = plan_of(s, backend, recipe, request);
        REQUIRE(all.fits);
        CHECK(all.largest_bytes >= 4ull * all.chunk * s.config.dim);
        CHECK(all.largest_bytes >= backend.scratch_row * all.chunk);
        backend.range_bytes = all.largest_bytes;
        const Plan same = plan_of(s, backend, recipe, request);
        CHECK((same.fits && same.chunk == all.chunk && same.slots == all.slots));
        backend.range_bytes -= 1 + rng() % all.largest_bytes / (1 + rng() % 8);
        CAPTURE(backend.range_bytes);
        const Plan plan = plan_of(s, backend, recipe, request);
        CHECK(plan.fits == !plan.exceeds_range());
        CHECK(plan.total_bytes <= all.total_bytes);
        narrowed += plan.fits;
        if (plan.fits) continue;
        refused++;
        const Status status = no_fit(plan);
        CHECK(status.code() == Code::no_fit);
        CHECK(status.message().find("a tensor of the " + std::string(plan.largest)) !=
              std::string::npos);
        CHECK(status.message().find(std::to_string(plan.largest_bytes)) != std::string::npos);
        CHECK(status.message().find(std::to_string(backend.range_bytes)) != std::string::npos);
    }
    CHECK(narrowed > 20);
    CHECK(refused > 20);
}
