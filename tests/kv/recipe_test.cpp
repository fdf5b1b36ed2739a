#include "runtime/kv/recipe.h"

#include <doctest/doctest.h>

using namespace ks;

TEST_CASE("recipe: names, codecs and the full text")
{
    Result<Recipe> exact = parse_recipe("exact");
    REQUIRE(exact.ok());
    CHECK(exact.value().k == Format::f16);
    CHECK(recipe_text(exact.value()) == "exact,k=f16,v=f16");
    Result<Recipe> mixed = parse_recipe("exact,k=f32,v=f16");
    REQUIRE(mixed.ok());
    CHECK(mixed.value().k == Format::f32);
    CHECK(mixed.value().v == Format::f16);
    CHECK(recipe_text(parse_recipe(recipe_text(mixed.value())).value()) == recipe_text(mixed.value()));
    CHECK(parse_recipe("auto").value().automatic);
    CHECK_FALSE(exact.value().automatic);
}

TEST_CASE("recipe: what cannot be done is refused with what is possible")
{
    for (const char* text : {"", "h2o", "exactly", "exact,k", "exact,k=", "exact,k=q8", "exact,slots=12", "exact,,", "k=f16"}) {
        Result<Recipe> recipe = parse_recipe(text);
        CAPTURE(text);
        REQUIRE_FALSE(recipe.ok());
        CHECK(recipe.status().code() == Code::unsupported);
        CHECK(recipe.status().message().find("possible: ") != std::string::npos);
    }
    Result<Recipe> hostile = parse_recipe("\x1b[2J" + std::string(100000, 'x'));
    REQUIRE_FALSE(hostile.ok());
    CHECK(hostile.status().message().size() < 200);
    CHECK(hostile.status().message().find('\x1b') == std::string::npos);
}
