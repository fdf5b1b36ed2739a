// The program of --versus, which bench runs beside ours.
#pragma once

#include "tools/bench/bench.h"

namespace ks
{

// Runs a shell command once for one test. Appends `-p N -n N -d N -r 1`, which llama-bench and our
// bench accept, and for several sessions `--sessions N`, which our bench accepts. The command must
// print JSON with exactly one result of this test. Fails with io if the command fails, with usage
// if the result is missing.
Result<double> peer_tokens_per_second(const std::string& command, const BenchTest& test);

} // namespace ks
