#include "runtime/kv/rules.h"

#include <cstdio>

namespace ks
{

namespace
{

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
    bool (*broken)(C c);
    std::string (*sentence)(C c);
};

// Of a recipe alone.
const Rule kRecipeRules[] = {
    {[](C c) {
         return codec_info(c.r.k).group > 1 &&
                (!c.r.exact() || c.r.slots || c.r.split != Split::uniform);
     },
     [](C c) {
         return text("k=%s codes %u tokens together and keeps every token, so no slots are given "
                     "up; possible: k=turbo4 q4",
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

// Of a recipe with a model.
const Rule kModelRules[] = {
    {[](C c) { return c.r.codes() && !c.model.can_code(); },
     [](C c) {
         return text("k=%s,v=%s for heads of %u values, codecs take a multiple of 16 up to %u; "
                     "possible: f32 f16",
                     c.k(), c.v(), c.model.head_dim, codec_max_dim);
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

// Of a recipe with a device.
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

template <size_t n>
Status check_rules(const Rule (&rules)[n], C c)
{
    for (const Rule& rule : rules)
        if (rule.broken(c)) return fail(Code::unsupported, "recipe: %s", rule.sentence(c).c_str());
    return {};
}

} // namespace

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

} // namespace ks
