#include "runtime/kv/recipe.h"

#include <clocale>
#include <doctest/doctest.h>

using namespace ks;

TEST_CASE("recipe: names and options")
{
    Recipe exact = parse_recipe("exact").value();
    CHECK(exact.k == Format::f16);
    CHECK(exact.exact());
    CHECK(recipe_text(exact) == "exact,k=f16,v=f16");
    CHECK(parse_recipe("exact,k=f32").value().k == Format::f32);
    CHECK(parse_recipe("auto").value().automatic);
    CHECK_FALSE(exact.automatic);

    Recipe h2o = parse_recipe("h2o,slots=1024,victims=merge,decay=0.99,delta=1,recent=100").value();
    CHECK(std::string(h2o.retain->name) == "h2o");
    CHECK(h2o.slots == 1024);
    CHECK(h2o.victims == Victims::merge);
    CHECK(h2o.options.decay == 0.99);
    CHECK(h2o.recent_of(1024) == 100);
    CHECK(parse_recipe("h2o").value().recent_of(1024) == 128);
    CHECK(parse_recipe("h2o").value().delta_of(1024) == 64);
    CHECK(parse_recipe("h2o,k=turbo4").value().delta_of(1024) == 32);
    CHECK(parse_recipe("pyramid").value().split == Split::pyramid);
    CHECK(parse_recipe("window").value().sink == 0);
}

TEST_CASE("recipe: the full text parses to itself")
{
    for (const char* text : {"exact,k=f32",
                             "auto",
                             "auto,slots=8,select=tokenselect,positions=compact,k=q8",
                             "h2o,slots=1024,victims=merge,decay=0.99,delta=1,recent=100",
                             "window,slots=40",
                             "sink",
                             "ada,seed=77",
                             "pyramid,slots=512",
                             "scissorhands",
                             "tova,observe=1",
                             "subgen,slots=200,chunk=32",
                             "mix,pool=3,lifetime=0",
                             "keydiff",
                             "kcenter,sink=0",
                             "retain=snapkv,observe=16",
                             "tokenselect,read=512,reuse=0.95",
                             "h2o,victims=merge,slots=8192,select=quest,read=1024",
                             "tokenselect,positions=compact,k=q8",
                             "h2o,slots=500,select=infllm,read=200",
                             "h2o,slots=100,positions=compact",
                             "exact,rope=yarn,stretch=4",
                             "sink,rope=ntk,stretch=1.5",
                             "mix,positions=compact,k=q8",
                             "kivi",
                             "kivi2,v=q8",
                             "kivi,select=tokenselect",
                             "tokenselect,k=kivi,positions=compact",
                             "mix,victims=merge,v=kivi"}) {
        CAPTURE(text);
        Result<Recipe> recipe = parse_recipe(text);
        REQUIRE_MESSAGE(recipe.ok(), recipe.status().message());
        std::string full = recipe_text(recipe.value());
        Result<Recipe> again = parse_recipe(full);
        REQUIRE_MESSAGE(again.ok(), full << ": " << again.status().message());
        CHECK(recipe_text(again.value()) == full);
        CHECK(again.value().options.observe == recipe.value().options.observe);
        CHECK(again.value().slots == recipe.value().slots);
        CHECK(again.value().split == recipe.value().split);
    }
}

TEST_CASE("recipe: numbers are decimals of billionths, whatever the locale")
{
    for (const char* locale : {"C", "de_DE.UTF-8", "fr_FR.UTF-8"}) {
        if (!setlocale(LC_ALL, locale)) {
            MESSAGE("skipped: this machine has no locale " << std::string(locale));
            continue;
        }
        for (auto [typed, full] :
             {std::pair("0.000000179", "0.000000179"), std::pair("0.950", "0.95"),
              std::pair("1.", "1"), std::pair("00.999999999", "0.999999999")}) {
            CAPTURE(typed);
            const Recipe recipe =
                parse_recipe(std::string("tokenselect,read=512,reuse=") + typed).value();
            CHECK(recipe_text(recipe) ==
                  std::string("retain=all,select=tokenselect,k=f16,v=f16,sink=4,read=512,reuse=") +
                      full);
            CHECK(recipe.reuse == parse_recipe(recipe_text(recipe)).value().reuse);
        }
        CHECK(parse_recipe("h2o,decay=0.99").value().options.decay == 0.99);
        CHECK(parse_recipe("exact,rope=yarn,stretch=1023.000000001").value().stretch ==
              1023.000000001);
        CHECK(parse_recipe("ada,seed=9007199254740992").value().seed == 1ull << 53);
        CHECK(parse_recipe("h2o,decay=2")
                  .status()
                  .message()
                  .find("a number from 0.5 to 1 with at most nine decimals") != std::string::npos);
    }
    setlocale(LC_ALL, "C");
}

TEST_CASE("recipe: an invalid recipe is refused with the valid choices")
{
    for (const char* text : {"",
                             "h3o",
                             "exactly",
                             "exact,k",
                             "exact,k=",
                             "exact,k=q9",
                             "exact,slots=12",
                             "exact,,",
                             "k=f16",
                             "h2o,slots=7",
                             "h2o,slots=-4",
                             "h2o,slots=1e99",
                             "h2o,decay=2",
                             "h2o,decay=nan",
                             "h2o,decay=0.9999999999",
                             "h2o,decay=.9",
                             "h2o,decay=0,9",
                             "ada,seed=9007199254740991.5",
                             "ada,seed=18446744073709551617",
                             "h2o,delta=1.5",
                             "snapkv,pool=4",
                             "exact,victims=merge",
                             "subgen,victims=merge",
                             "tova,split=ada",
                             "retain=",
                             "retain=none",
                             "h2o,victims=keep",
                             "h2o,slots=100,recent=100",
                             "h2o,read=100",
                             "h2o,select=best",
                             "quest,read=20",
                             "scissorhands,select=infllm",
                             "exact,positions=compact",
                             "mix,k=turbo4,positions=compact",
                             "subgen,positions=compact",
                             "exact,rope=yarn",
                             "exact,stretch=2",
                             "h2o,rope=dynamic,stretch=2",
                             "mix,victims=merge,k=kivi",
                             "subgen,k=kivi2",
                             "window,k=kivi",
                             "kivi,slots=300",
                             "kivi,split=pyramid",
                             "polar5",
                             "h2o,v=polar5",
                             "kivi2,v=kivi2",
                             "sink,sink=99999"}) {
        Result<Recipe> recipe = parse_recipe(text);
        CAPTURE(text);
        REQUIRE_FALSE(recipe.ok());
        CHECK(recipe.status().code() == Code::unsupported);
        CHECK(recipe.status().message().find("possible: ") != std::string::npos);
    }
    Result<Recipe> hostile = parse_recipe("\x1b[2J" + std::string(100000, 'x'));
    REQUIRE_FALSE(hostile.ok());
    CHECK(hostile.status().message().size() < 300);
    CHECK(hostile.status().message().find('\x1b') == std::string::npos);
}
