// Compares hashes of the logits of tiny models with recorded hashes. Moving or renaming code must
// not change them. KS_PINNED_PRINT=1 prints the hashes of the tested devices as rows for
// pinned_hashes.h.
#include "tests/devices.h"
#include "tests/model/opened_model.h"
#include "tests/model/pinned_hashes.h"

#include <gnu/libc-version.h>

#include <cstdlib>

using namespace ks;

// Everything besides the code that a device's bits depend on: its driver and the C library's
// functions.
static std::string machine_of(const DeviceInfo& device)
{
    const std::string driver =
        device.backend == "vulkan" ? device.name.substr(0, device.name.find(')') + 1) + ", " : "";
    return device.backend + ", " + driver + "glibc " + gnu_get_libc_version();
}

// lavapipe compiles each shader at its first dispatch, which takes minutes for all recipes.
// With KS_PINNED_ALL=1 all recipes run on Vulkan, too.
static bool is_run(const DeviceInfo& device, const std::string& recipe)
{
    if (device.backend != "vulkan" || getenv("KS_PINNED_ALL")) return true;
    return recipe == "exact" || recipe.find("turbo4") != std::string::npos;
}

// FNV-1a over the bits of the logits after each chunk of a prompt and after each decoded token.
static uint64_t hash_logits(const TinyModel& tiny, const DeviceInfo& device, const char* text)
{
    const Recipe recipe = parse_recipe(text).value();
    const bool holds_all = recipe.exact() || std::string(text).find("all") != std::string::npos;
    Opened opened(tiny, device.id.c_str(), holds_all ? 128 : 64, 35, recipe);
    uint64_t hash = 14695981039346656037ull;
    std::vector<uint32_t> ids;
    for (uint32_t i = 0; i < 70; i++) ids.push_back((i * 91 + 5) % 256);
    std::vector<float> logits;
    const auto read = [&](const uint32_t* at, uint32_t n, uint32_t position) {
        logits = opened.read(at, n, position);
        for (float value : logits) {
            uint32_t bits;
            memcpy(&bits, &value, 4);
            for (int i = 0; i < 4; i++) hash = (hash ^ (bits >> (8 * i) & 255u)) * 1099511628211ull;
        }
    };
    for (uint32_t at = 0; at < 70; at += 35) read(&ids[at], 35, at);
    for (uint32_t position = 70; position < 90; position++) {
        const uint32_t id =
            uint32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
        read(&id, 1, position);
    }
    return hash;
}

TEST_CASE("pinned: logits of tiny models have the hashes on record")
{
    TinyShape shape;
    shape.dim = 128;
    shape.head_dim = 64;
    const TinyModel tiny = make_tiny_model(shape);
    const char* const recipes[] = {"exact",
                                   "sink,slots=48",
                                   "h2o,slots=48,recent=16,k=turbo4,v=turbo3",
                                   "mix,slots=64,recent=16,k=q8,v=q4",
                                   "snapkv,slots=64,recent=16,k=turbo2,v=turbo2",
                                   "retain=all,k=kivi,v=kivi",
                                   "retain=all,k=polar,v=polar",
                                   "h2o,slots=64,recent=16,victims=merge",
                                   "tova,slots=64,recent=16,select=tokenselect,read=32"};
    for (const DeviceInfo& device : tested_devices()) {
        if (device.backend == "cpu")
            continue; // its bits depend on the instruction set; other tests hash real models
        const std::string machine = machine_of(device);
        size_t n_known = 0, n_run = 0;
        for (const char* recipe : recipes) {
            if (!is_run(device, recipe)) continue;
            n_run++;
            const uint64_t hash = hash_logits(tiny, device, recipe);
            if (getenv("KS_PINNED_PRINT"))
                printf("    {\"%s\", \"%s\", 0x%016llxull},\n", machine.c_str(), recipe,
                       (unsigned long long)hash);
            for (const PinnedHash& known : kPinnedHashes) {
                if (machine != known.machine || std::string(recipe) != known.recipe) continue;
                CAPTURE(machine);
                CAPTURE(std::string(recipe));
                CHECK(hash == known.hash);
                n_known++;
            }
        }
        if (n_known == 0) MESSAGE("skipped: no hashes are on record for " << machine);
        const bool all_or_none = n_known == 0 || n_known == n_run;
        CHECK(all_or_none);
    }
}
