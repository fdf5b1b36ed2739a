// Reads the lines that `eval --record` wrote, for `report` and a later `eval`.
#pragma once

#include "tools/json.h"

#include "runtime/base/status.h"

namespace ks
{

// whole_bytes (may be null): the length of all complete lines. A killed run may leave part of a
// line after them.
Result<std::vector<Json>> read_eval_lines(const std::string& path, size_t* whole_bytes = nullptr);

} // namespace ks
