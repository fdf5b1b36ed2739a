// Refusals that depend on the environment.
#include "runtime/api/session.h"
#include "tests/model/tiny_model.h"

#include <cstdlib>
#include <doctest/doctest.h>

using namespace ks;

TEST_CASE("refusal: KNAPSACK_CPU=amx on the device cpu, with the nearest kernels")
{
    const TempFile file("refusal.gguf", make_tiny_model(TinyShape()).file);
    ModelOptions options;
    options.model_path = file.path();
    const char* before = getenv("KNAPSACK_CPU");
    const std::string saved = before ? before : "";
    setenv("KNAPSACK_CPU", "amx", 1);
    options.device = "cpu";
    const Status refused = make_plan(options).status();
    options.device = "reference";
    const Status planned = make_plan(options).status();
    if (before)
        setenv("KNAPSACK_CPU", saved.c_str(), 1);
    else
        unsetenv("KNAPSACK_CPU");
    CHECK(refused.code() == Code::unsupported);
    CHECK(refused.message() ==
          "KNAPSACK_CPU=amx is not in this build; possible: KNAPSACK_CPU=avx512vnni");
    CHECK(planned.ok());
}
