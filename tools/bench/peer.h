// Another program that bench runs beside ours.
#pragma once

#include "tools/bench/bench.h"

namespace ks
{

// Runs a command line of the shell for one test, once: `-p N -n N -d N -r 1` is added at its end,
// as llama-bench and our own bench take it, and one of the results that it prints as JSON is the
// test's. io: it failed; usage: it does not print that.
Result<double> peer_tokens_per_second(const std::string& command, const BenchTest& test);

} // namespace ks
