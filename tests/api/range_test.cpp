// Prompts on devices whose ops see only a part of a large tensor.
#include "tests/api/session_file_bed.h"
#include "tests/devices.h"

#include <cmath>

using namespace ks;

TEST_CASE("session: chunks fit what a device sees of a tensor")
{
    const FileFixture f;
    const std::vector<uint32_t> ids = some_ids(400);
    std::unique_ptr<Session> exact = f.open("exact", "reference");
    feed(*exact, ids, 0, 400);
    const std::vector<float> expected = logits(*exact);
    for (const std::string& device : tested_names()) {
        CAPTURE(device);
        std::unique_ptr<Session> s = f.open("exact", device.c_str());
        CHECK_FALSE(s->plan().exceeds_range());
        if (!s->plan().range_bytes) CHECK(s->plan().chunk == exact->plan().chunk);
        feed(*s, ids, 0, 400);
        for (size_t i = 0; i < expected.size(); i++)
            CHECK(std::abs(s->logits()[i] - expected[i]) < 1e-3f);
    }
}
