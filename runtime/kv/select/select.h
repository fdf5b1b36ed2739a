// Which slots a step reads. A selector says what the op asks the keys (kernels/common/args.h) and
// where. Adding one that asks in a known way: one row in the table of select.cpp.
#pragma once

#include "kernels/common/args.h"
#include "runtime/kv/policies/retain.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace ks
{

struct Selector {
    const char* name = "";
    uint32_t kind = select_soft; // select_soft ...
    uint32_t unit = 1;    // indexes that are chosen together; of blocks fewer, where few are read
    uint32_t first = 0;   // tokens that are always read
    uint32_t dense = 0;   // leading layers that read everything
    bool prompts = false; // reads few for the chunks of a prompt, too
    float reuse =
        1; // the cosine of queries from which a choice is used again, if the recipe does not say
    bool by_head = false;           // heads that hold the same tokens choose apart nevertheless
    ScoreKind scores = scores_none; // which attention scores it reads
};

const Selector* find_selector(std::string_view name); // null: there is none
std::string selector_names();                         // "all tokenselect ...", for messages

} // namespace ks
