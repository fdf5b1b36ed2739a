#include "runtime/kv/rules.h"

#include <doctest/doctest.h>

using namespace ks;

static std::string refusal(const std::string& text)
{
    Result<Recipe> recipe = parse_recipe(text);
    REQUIRE_FALSE(recipe.ok());
    CHECK(recipe.status().code() == Code::unsupported);
    return recipe.status().message();
}

TEST_CASE("rules: what earlier builds had is refused with the nearest thing that there is")
{
    const struct {
        const char *text, *what, *nearest;
    } rows[] = {
        {"polar5", "polar5", "polar"},
        {"polar5,slots=100", "polar5", "polar"},
        {"mix,k=polar5", "k=polar5", "k=polar"},
        {"mix,v=polar5", "v=polar5", "v=polar"},
        {"kivi2v", "kivi2v", "kivi2"},
        {"exact,v=kivi2v", "v=kivi2v", "v=turbo3"},
        {"kivi2,v=kivi2", "v=kivi2", "v=turbo3"},
        {"kiviv", "kiviv", "kivi"},
        {"exact,k=kiviv", "k=kiviv", "k=kivi"},
        {"mix,v=kiviv", "v=kiviv", "v=kivi"},
        {"mix,positions=grouped", "positions=grouped", "positions=compact"},
        {"mix,group=4", "group=", "positions=compact"},
        {"mix,near=64", "near=", "positions=compact"},
    };
    for (const auto& row : rows) {
        CAPTURE(row.text);
        CHECK(refusal(row.text) == std::string("recipe: ") + row.what +
                                       " is not in this build; possible: " + row.nearest);
    }
    CHECK(check_missing("KNAPSACK_CPU", "amx").message() ==
          "KNAPSACK_CPU=amx is not in this build; possible: KNAPSACK_CPU=avx512vnni");
    CHECK(check_missing("KNAPSACK_CPU", "amx").code() == Code::unsupported);
    CHECK(check_missing("KNAPSACK_CPU", "avx2").ok());
    CHECK(check_missing("", "polar").ok());
    CHECK(check_missing("v", "kivi").ok());
}

TEST_CASE("rules: keys that are coded together are never evicted")
{
    for (const char* text : {"mix,k=kivi", "kivi,slots=300", "window,k=kivi2", "kivi,split=ada"})
        CHECK(refusal(text).find("possible: k=turbo4 q4, or retain=all without slots=") !=
              std::string::npos);
    for (const char* text : {"kivi", "retain=all,k=kivi", "auto,k=kivi2"})
        CHECK(parse_recipe(text).ok());
}

TEST_CASE("rules: a selector that only the reference has is refused elsewhere")
{
    ModelShape model;
    DeviceInfo device{};
    device.id = "cpu";
    for (const char* text : {"exact,select=hardvote", "mix,select=topk"}) {
        const Recipe recipe = parse_recipe(text).value();
        device.ablations = false;
        const Status refused = check_recipe(recipe, model, device);
        CHECK(refused.code() == Code::unsupported);
        CHECK(refused.message().find("possible: select=tokenselect") != std::string::npos);
        device.ablations = true;
        CHECK(check_recipe(recipe, model, device).ok());
    }
}

TEST_CASE("rules: grades")
{
    ModelShape model, biased;
    biased.key_bias = true;
    const auto reason = [&](const char* text, const ModelShape& of) {
        return study_reason(parse_recipe(text).value(), of);
    };
    for (const char* text : {"auto", "exact", "window", "sink", "mix,slots=100", "mix,k=turbo4",
                             "q8", "kivi", "tokenselect", "quest", "infllm"})
        CHECK(reason(text, model).empty());
    for (const char* text : {"subgen", "mix,victims=merge", "h2o,victims=merge"})
        CHECK(reason(text, model).find("slower general kernels") != std::string::npos);
    CHECK(reason("q8", biased).find("k=q8 leaves out the bias") == 0);
    CHECK(reason("mix", biased).empty());
    CHECK(reason("mix,split=ada", model).find("split=ada") == 0);
    CHECK(reason("pyramid", model).find("split=pyramid") == 0);
    CHECK(reason("exact,select=topk", model).find("select=topk") == 0);
    for (const char* text : {"h2o", "scissorhands", "tova", "snapkv", "keydiff", "kcenter"})
        CHECK(reason(text, model) ==
              std::string("retain=") + text + " is kept to compare with retain=mix");
}
