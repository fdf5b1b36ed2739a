// A recipe is a point of retain x encode x select, as one line of text: "exact",
// "h2o,slots=1024,victims=merge". A text that this build cannot run is refused with what is
// possible.
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

// The distance from a query to a key. absolute: by their positions; to pinned tokens never more
// than the model was trained for. offset: to pinned tokens never more than the number of slots
// (StreamingLLM). compact: by their indexes among the tokens that are read.
enum class Positions : uint8_t { absolute, offset, compact };

// How RoPE's angles reach beyond the trained context, by the factor `stretch`. file: as the file
// says. linear: positions are divided. ntk: the base is larger. yarn: the frequencies of slow pairs
// are divided.
enum class RopeScaling : uint8_t { file, linear, ntk, yarn };

struct Recipe {
    static constexpr uint32_t kChosenByModel = ~0u; // 0, or 1 for 2-bit keys on wide normed keys
    bool automatic = false;                         // the planner chooses what is left open
    const RetainPolicy* retain = find_retain("all");
    RetainOptions options;
    Format k = Format::f16;             // codec of keys; the first and the last tokens are plain
    Format v = Format::f16;             // codec of values
    uint32_t boundary = kChosenByModel; // the first and last so many layers are coded as q8
    Victims victims = Victims::drop;
    Split split = Split::uniform;
    Positions positions = Positions::absolute;
    RopeScaling rope = RopeScaling::file;
    double stretch = 1; // times the trained context
    const Selector* select = find_selector("all");
    uint32_t read = 0; // slots that a step reads, per layer and KV head; 0: 2048
    // A choice is reused while the cosine of the queries is at least this; 0: the selector's value.
    double reuse = 0;
    uint32_t slots = 0;  // per layer and KV head; 0: as many as fit
    uint32_t sink = 4;   // first tokens, which always stay
    uint32_t recent = 0; // last tokens, which always stay; 0: recent_of() has the default
    uint32_t chunk = 0;  // tokens of a prompt read at once; 0: the planner's choice
    uint32_t delta = 0;  // tokens between evictions in decode; 0: delta_of() has the default
    uint64_t seed = 0;

    // Tokens of the planned text, not a part of the recipe's text; 0: unknown.
    uint32_t context = 0;

    bool exact() const { return !retain->evicts; }
    bool is_ring() const; // layers need no table: a token's position gives its row
    bool selects() const { return select->dense || select->prompts; }
    // Keys are stored before RoPE, and attention applies it as it reads them.
    bool ropes_on_read() const { return positions == Positions::compact; }
    bool codes() const { return is_coded(k) || is_coded(v); }
    // The values of sink, recent and delta for a number of slots: smaller where slots are few.
    uint32_t sink_of(uint32_t n_slots) const;
    uint32_t recent_of(uint32_t n_slots) const;
    uint32_t delta_of(uint32_t n_slots) const;
    uint32_t read_slots() const { return read ? read : 2048; }
    // Slots that a selector always reads: the first and the last ones.
    uint32_t read_first() const;
    uint32_t read_last() const;
    double reuse_of() const { return reuse != 0 ? reuse : double(select->reuse); }
    // The attention scores that the policy or the selector reads.
    ScoreKind scores() const { return retain->scores ? retain->scores : select->scores; }
    // Whether a selector compares queries before RoPE, beside those after RoPE.
    bool compares_queries() const { return reuse_of() < 1 && !ropes_on_read(); }
    // Last tokens that are still plain in a layer with coded slots.
    uint32_t plain_recent_of(uint32_t n_slots) const;
    // The recipe of a layer with the model's own window: the last tokens stay, all are read.
    Recipe for_window_layer() const;
    // The smallest slots= that leaves something to choose beside sink and recent.
    uint32_t smallest_slots() const { return slots ? sink + recent + 4 : 2; }
};

// The words of positions= and split=.
const char* positions_name(Positions positions);
const char* split_name(Split split);

Result<Recipe> parse_recipe(std::string_view text);
std::string recipe_text(const Recipe& recipe); // full text, parses to the same recipe

} // namespace ks
