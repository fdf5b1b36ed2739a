// A recipe names a point of retain x encode x select as one line of text: "exact", "exact,k=f32,v=f32".
// Only what this build can do parses; the rest is refused with what is possible.
#pragma once

#include "runtime/base/status.h"
#include "runtime/base/tensor.h"

#include <string>
#include <string_view>

namespace ks
{

struct Recipe {
    bool automatic = false; // the planner may choose the codecs
    Format k = Format::f16; // codec of keys
    Format v = Format::f16;
};

Result<Recipe> parse_recipe(std::string_view text);
std::string recipe_text(const Recipe& recipe); // full text, parses to the same recipe

} // namespace ks
