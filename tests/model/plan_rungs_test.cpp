// The rungs of plans whose layers have windows.
#include "tests/model/plan_bed.h"

using namespace ks;

TEST_CASE("plan: a text climbs to q4 keys only where the ladder ends")
{
    auto backend = open_backend({"reference", 1, nullptr});
    REQUIRE(backend.ok());
    Shape s = wide_shape(1024, 18, 512);
    Family normed = kFamily;
    normed.qk_norm = QkNorm::head;
    s.config.family = &normed;
    PlanRequest request;
    request.memory_bytes = 1ull << 40;
    request.context = s.config.n_context;
    const uint64_t all_bytes = plan_of(s, *backend.value(), {}, request).region_bytes("cache");
    uint32_t n_last = 0, n_beyond = 0;
    for (uint64_t percent = 45; percent >= 10; percent--) {
        request.kv_memory_bytes = all_bytes / 100 * percent;
        const Plan plan = plan_of(s, *backend.value(), parse_recipe("auto").value(), request);
        n_last += plan.recipe.k == Format::q4;
        if (plan.recipe.k != Format::turbo4) continue;
        n_beyond++;
        for (const PlanRung& rung : plan.rungs)
            CHECK((rung.recipe.k != Format::q4 || rung.slots == 0));
    }
    CHECK(n_last > 3);
    CHECK(n_beyond > 3);
}
