#include "runtime/kv/rules.h"

#include <cstdio>

namespace ks
{

namespace
{

// What this build lacks, and the nearest thing that it has.
struct Missing {
    const char* key;     // of an option, or an environment variable; "": the name of a recipe
    const char* value;   // "": any
    const char* nearest; // as it is written
};

const Missing kMissing[] = {
    {"", "polar5", "polar"},
    {"k", "polar5", "k=polar"},
    {"v", "polar5", "v=polar"},
    {"", "kivi2v", "kivi2"},
    {"k", "kivi2v", "k=kivi2"},
    {"v", "kivi2v", "v=turbo3"},
    {"v", "kivi2", "v=turbo3"},
    {"", "kiviv", "kivi"},
    {"k", "kiviv", "k=kivi"},
    {"v", "kiviv", "v=kivi"},
    {"positions", "grouped", "positions=compact"},
    {"group", "", "positions=compact"},
    {"near", "", "positions=compact"},
    {"KNAPSACK_CPU", "amx", "KNAPSACK_CPU=avx512vnni"},
};

struct Combination {
    const Recipe& r;
    const ModelShape& model;
    const DeviceInfo& device;

    const char* k() const { return codec_info(r.k).name; }
    const char* v() const { return codec_info(r.v).name; }
    bool codes_biased_keys() const { return leaves_bias_out(model, r); }
};

template <class... Args>
std::string text(const char* format, Args... args)
{
    char line[400];
    snprintf(line, sizeof line, format, args...);
    return line;
}

using C = const Combination&;

struct Rule {
    bool (*applies)(C c);
    std::string (*sentence)(C c);
};

// Refusals of a recipe, on any model and device.
const Rule kRecipeRules[] = {
    {[](C c) {
         return codec_info(c.r.k).group > 1 &&
                (!c.r.exact() || c.r.slots || c.r.split != Split::uniform);
     },
     [](C c) {
         return text("k=%s codes %u tokens together, so single ones cannot be evicted; possible: "
                     "k=turbo4 q4, or retain=all without slots=",
                     c.k(), codec_info(c.r.k).group);
     }},
    {[](C c) {
         return c.r.exact() && c.r.slots && !c.r.codes() && !c.r.selects() && !c.r.automatic;
     },
     [](C c) {
         return text("slots=%u without a policy that evicts; possible: retain=sink h2o mix ...",
                     c.r.slots);
     }},
    {[](C c) { return c.r.exact() && c.r.victims == Victims::merge; },
     [](C) {
         return text("victims=merge with retain=all, which has none; possible: victims=drop");
     }},
    {[](C c) { return c.r.retain->estimates && c.r.victims == Victims::merge; },
     [](C c) {
         return text(
             "victims=merge with retain=%s, whose victims go into its estimator; possible: drop",
             c.r.retain->name);
     }},
    {[](C c) { return c.r.options.pool % 2 == 0; },
     [](C c) { return text("pool=%u has no middle; possible: an odd number", c.r.options.pool); }},
    {[](C c) { return (c.r.retain->estimates || c.r.retain->one_set) && c.r.split == Split::ada; },
     [](C c) {
         return text(
             "split=ada compares the heads' scores, retain=%s has none; possible: uniform pyramid",
             c.r.retain->name);
     }},
    {[](C c) {
         return c.r.positions == Positions::offset &&
                (!c.r.is_ring() || c.r.split != Split::uniform);
     },
     [](C) {
         return text("positions=offset counts from slots without gaps, which only retain=window "
                     "and sink have; possible: positions=absolute");
     }},
    {[](C c) { return c.r.positions == Positions::compact && c.r.exact() && !c.r.selects(); },
     [](C) {
         return text("positions=compact with retain=all, which leaves no gaps; possible: "
                     "positions=absolute");
     }},
    {[](C c) { return c.r.ropes_on_read() && c.r.retain->estimates; },
     [](C c) {
         return text("positions=%s with retain=%s, whose samples have no place in the text; "
                     "possible: positions=absolute",
                     positions_name(c.r.positions), c.r.retain->name);
     }},
    {[](C c) { return c.r.ropes_on_read() && codec_info(c.r.k).hadamard; },
     [](C c) {
         return text("positions=%s with k=%s, which is transformed by hadamard, and RoPE cannot "
                     "rotate that; possible: k=f16 q8 kivi",
                     positions_name(c.r.positions), c.k());
     }},
    {[](C c) { return (c.r.rope == RopeScaling::file) != (c.r.stretch == 1); },
     [](C) {
         return text(
             "rope= and stretch= belong together, how and how far; possible: rope=yarn,stretch=4");
     }},
    {[](C c) { return c.r.select->scores && c.r.scores() != c.r.select->scores; },
     [](C c) {
         return text("select=%s reads how much attention tokens got, retain=%s counts something "
                     "else; possible: retain=all h2o ...",
                     c.r.select->name, c.r.retain->name);
     }},
    {[](C c) { return (c.r.read || c.r.reuse != 0) && !c.r.selects(); },
     [](C) {
         return text("read= and reuse= without a selector; possible: select=tokenselect quest ...");
     }},
    {[](C c) { return c.r.read && c.r.read < 2 * c.r.sink + 16; },
     [](C c) {
         return text("read=%u leaves little room beside sink=%u; possible: %u and more", c.r.read,
                     c.r.sink, 2 * c.r.sink + 16);
     }},
    {[](C c) { return c.r.slots && c.r.slots < c.r.smallest_slots(); },
     [](C c) {
         return text("slots=%u leaves no room beside sink=%u and recent=%u; possible: %u and more",
                     c.r.slots, c.r.sink, c.r.recent_of(c.r.slots), c.r.smallest_slots());
     }},
};

// Refusals of a recipe on a model.
const Rule kModelRules[] = {
    {[](C c) { return c.r.codes() && c.model.uncodable(); },
     [](C c) {
         return text("k=%s,v=%s for heads of %u values, codecs take a multiple of 16 up to %u; "
                     "possible: f32 f16",
                     c.k(), c.v(), c.model.uncodable()->head_dim, codec_max_dim);
     }},
    {[](C c) { return c.r.ropes_on_read() && c.model.normed_after_rope; },
     [](C c) {
         return text("positions=%s on a model with norms after RoPE, whose stored keys cannot be "
                     "rotated; possible: positions=absolute",
                     positions_name(c.r.positions));
     }},
    {[](C c) {
         return c.model.values_in_keys && (c.r.k != c.r.v || (c.r.codes() && c.r.k != Format::q8));
     },
     [](C c) {
         return text("k=%s,v=%s on a model with latent attention, where one row is key and value "
                     "of all heads; possible: f32, f16 or q8 for both",
                     c.k(), c.v());
     }},
    {[](C c) {
         return c.model.values_in_keys && (c.r.retain->estimates || c.r.victims == Victims::merge);
     },
     [](C c) {
         return text("%s=%s on a model with latent attention, where a row is key and value and the "
                     "two cannot be merged apart; possible: retain=sink h2o mix ... with "
                     "victims=drop",
                     c.r.retain->estimates ? "retain" : "victims",
                     c.r.retain->estimates ? c.r.retain->name : "merge");
     }},
    {[](C c) { return c.codes_biased_keys() && c.r.retain->estimates; },
     [](C c) {
         return text("k=%s with retain=%s on a model with a bias in its keys, which codes leave "
                     "out and add again by position: samples "
                     "have none; possible: k=f16",
                     c.k(), c.r.retain->name);
     }},
    {[](C c) { return c.codes_biased_keys() && c.r.ropes_on_read(); },
     [](C c) {
         return text("k=%s with positions=%s on a model with a bias in its keys, which codes leave "
                     "out and add again by position; "
                     "possible: k=f16",
                     c.k(), positions_name(c.r.positions));
     }},
    {[](C c) { return c.codes_biased_keys() && c.r.selects(); },
     [](C c) {
         return text("k=%s with select=%s on a model with a bias in its keys, which codes leave "
                     "out and a choice by keys would miss; "
                     "possible: k=f16",
                     c.k(), c.r.select->name);
     }},
};

// Refusals of a recipe on a device.
const Rule kDeviceRules[] = {
    {[](C c) { return c.r.selects() && !c.device.selects; },
     [](C c) {
         return text("select=%s on %s, which reads all slots in every step; possible: select=all, "
                     "or the device cpu",
                     c.r.select->name, c.device.id.c_str());
     }},
    {[](C c) {
         return (c.r.select->kind == select_hard || c.r.select->kind == select_sum) &&
                !c.device.ablations;
     },
     [](C c) {
         return text("select=%s on %s, an ablation that only the device reference has; possible: "
                     "select=tokenselect",
                     c.r.select->name, c.device.id.c_str());
     }},
    {[](C c) { return c.r.ropes_on_read() && !c.device.ropes_on_read; },
     [](C c) {
         return text("positions=%s on %s, which reads keys as they are stored; possible: "
                     "positions=absolute, positions=offset, or the "
                     "device cpu",
                     positions_name(c.r.positions), c.device.id.c_str());
     }},
    {[](C c) { return c.codes_biased_keys() && !c.device.adds_bias; },
     [](C c) {
         return text("k=%s on %s for a model with a bias in its keys, which codes leave out and "
                     "this device cannot add again; possible: "
                     "k=f16, or the device cpu",
                     c.k(), c.device.id.c_str());
     }},
};

// Why a recipe has study grade.
const Rule kStudies[] = {
    {[](C c) { return c.r.retain->estimates; },
     [](C c) {
         return text("retain=%s gives slots log-weights, which only the slower general kernels add",
                     c.r.retain->name);
     }},
    {[](C c) { return c.r.victims == Victims::merge; },
     [](C) {
         return text("victims=merge gives slots log-weights, which only the slower general kernels "
                     "add");
     }},
    {[](C c) { return c.codes_biased_keys(); },
     [](C c) {
         return text("k=%s leaves out the bias of this model's keys, which only the slower general "
                     "kernels add",
                     c.k());
     }},
    {[](C c) { return c.r.split != Split::uniform; },
     [](C c) {
         return text("split=%s is kept to compare with split=uniform", split_name(c.r.split));
     }},
    {[](C c) { return c.r.retain->study; },
     [](C c) { return text("retain=%s is kept to compare with retain=mix", c.r.retain->name); }},
    {[](C c) { return c.r.select->kind == select_hard || c.r.select->kind == select_sum; },
     [](C c) {
         return text("select=%s is kept to compare with select=tokenselect", c.r.select->name);
     }},
};

template <size_t n>
Status check_rules(const Rule (&rules)[n], C c)
{
    for (const Rule& rule : rules)
        if (rule.applies(c)) return fail(Code::unsupported, "recipe: %s", rule.sentence(c).c_str());
    return {};
}

} // namespace

Status check_missing(std::string_view key, std::string_view value)
{
    for (const Missing& row : kMissing) {
        if (key != row.key || (*row.value && value != row.value)) continue;
        const bool is_variable = key.substr(0, 8) == "KNAPSACK";
        return fail(Code::unsupported, "%s%s%s%s is not in this build; possible: %s",
                    is_variable ? "" : "recipe: ", row.key, *row.key ? "=" : "", row.value,
                    row.nearest);
    }
    return {};
}

Status check_recipe(const Recipe& recipe)
{
    return check_rules(kRecipeRules, {recipe, ModelShape(), DeviceInfo()});
}

Status check_recipe(const Recipe& recipe, const ModelShape& model, const DeviceInfo& device)
{
    const Combination c{recipe, model, device};
    KS_TRY(check_rules(kModelRules, c));
    return check_rules(kDeviceRules, c);
}

std::string study_reason(const Recipe& recipe, const ModelShape& model)
{
    const Combination c{recipe, model, DeviceInfo()};
    for (const Rule& rule : kStudies)
        if (rule.applies(c)) return rule.sentence(c);
    return {};
}

} // namespace ks
