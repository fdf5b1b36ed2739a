// The lines that `eval --record` writes, read again by `report` and by a second `eval`.
#pragma once

#include "tools/json.h"

#include "runtime/base/status.h"

namespace ks
{

// whole_bytes, which may be null: of the lines that are whole; a run that was killed may leave part
// of a line behind them.
Result<std::vector<Json>> read_eval_lines(const std::string& path, size_t* whole_bytes = nullptr);

} // namespace ks
