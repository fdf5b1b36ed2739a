// Which slots a step reads. A selector says how the op `select` scores indexes
// (kernels/common/select.h), and in which layers. Adding one with a known kind of score: one row in
// the table of select.cpp.
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
    uint32_t unit = 1;           // indexes that are chosen together; select_unit() may halve blocks
    uint32_t first = 0;          // leading indexes that are always read
    uint32_t dense = 0;          // leading layers that read everything
    bool prompts = false;        // selects for the chunks of a prompt as well
    float reuse = 1; // a choice is reused while the cosine of queries is at least this; 1: never
    bool by_head = false;           // heads that hold the same tokens still choose separately
    ScoreKind scores = scores_none; // which attention scores it reads
};

const Selector* find_selector(std::string_view name); // null: no such selector
std::string selector_names();                         // "all tokenselect ...", for messages

} // namespace ks
