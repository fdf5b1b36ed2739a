// A recipe names a point of retain x encode x select as one line of text: "exact",
// "h2o,slots=1024,victims=merge". Only what this build can do parses; the rest is refused with what
// is possible.
#pragma once

#include "runtime/base/status.h"
#include "runtime/base/tensor.h"
#include "runtime/kv/policies/retain.h"
#include "runtime/kv/select/select.h"

#include <string>
#include <string_view>

namespace ks
{

enum class Victims : uint8_t { drop, merge };

// How far the pinned tokens seem to be. absolute: where they are, but never further than the model
// was trained for; offset: as if the text had only the slots (StreamingLLM). compact: every token
// that is read, by its rank among them.
enum class Positions : uint8_t { absolute, offset, compact };

// How angles reach beyond the trained context, by `stretch`: as the file says; all positions
// divided (linear); a larger base (ntk); slow pairs divided and fast ones not (yarn).
enum class RopeScaling : uint8_t { file, linear, ntk, yarn };

struct Recipe {
    static constexpr uint32_t kChosenByModel = ~0u; // none, or as many as this model's keys ask for
    bool automatic = false;                         // the planner may choose
    const RetainPolicy* retain = find_retain("all");
    RetainOptions options;
    Format k = Format::f16; // codec of keys, where tokens are neither the first nor the last ones
    Format v = Format::f16;
    uint32_t boundary = kChosenByModel; // first and last layers whose slots are q8 at least
    Victims victims = Victims::drop;    // what becomes of them
    Split split = Split::uniform;
    Positions positions = Positions::absolute;
    RopeScaling rope = RopeScaling::file;
    double stretch = 1; // times the trained context
    const Selector* select = find_selector("all");
    uint32_t read = 0; // slots that a step reads, per layer and KV head; 0: 2048
    double reuse = 0; // a choice is used again where the cosine of the queries comes to this; 0: as
                      // the selector has it
    uint32_t slots = 0;  // per layer and KV head; 0: what the memory holds
    uint32_t sink = 4;   // first tokens, which stay
    uint32_t recent = 0; // last tokens, which stay; 0: an eighth of the slots, of subgen half
    uint32_t chunk = 0;  // tokens of a prompt read at once; 0: the planner's choice
    uint32_t delta = 0;  // tokens from one eviction to the next while decoding; 0: delta_of() knows
    uint64_t seed = 0;

    bool exact() const { return !retain->evicts; }
    bool is_ring() const; // the last tokens stay, where their positions say
    bool selects() const { return select->dense || select->prompts; }
    bool ropes_on_read() const { return positions == Positions::compact; } // as they are read
    bool codes() const { return is_coded(k) || is_coded(v); }
    // What a number of slots leaves of these: with few of them less stays of itself, and decisions
    // come more often.
    uint32_t sink_of(uint32_t n_slots) const;
    uint32_t recent_of(uint32_t n_slots) const;
    uint32_t delta_of(uint32_t n_slots) const;
    // Of the slots that are read, those that are so always: the first and the last.
    uint32_t read_slots() const { return read ? read : 2048; }
    uint32_t read_first() const;
    uint32_t read_last() const;
    double reuse_of() const { return reuse != 0 ? reuse : double(select->reuse); }
    // What attention says of each slot: the policy or the selector wants to know.
    ScoreKind scores() const { return retain->scores ? retain->scores : select->scores; }
    // Whether a choice needs queries as before RoPE beside those after it.
    bool compares_queries() const { return reuse_of() < 1 && !ropes_on_read(); }
    uint32_t plain_recent_of(
        uint32_t n_slots) const; // where slots are coded, so many of the last tokens are not yet
    // What it comes to in layers whose window is the model's: the last tokens stay, and nobody
    // looks for others.
    Recipe for_window_layer() const;
    // The fewest slots: those asked for have room beside what stays of itself, those that the
    // memory dictates are what they are.
    uint32_t smallest_slots() const { return slots ? sink + recent + 4 : 2; }
};

const char* positions_name(Positions positions); // as positions= takes it

Result<Recipe> parse_recipe(std::string_view text);
std::string recipe_text(const Recipe& recipe); // full text, parses to the same recipe

} // namespace ks
