// Constrained answers by the C API.
#include "tests/api/c_api_bed.h"

#include <cstring>

using namespace ks;

TEST_CASE("C API: grammars")
{
    ApiModel model("grammar");
    Handle plain = model.open();
    CHECK(ks_set_grammar(plain.get(), KS_GBNF, "root ::= \"a\"", 12) == KS_USAGE);
    const uint64_t plain_bytes = stats_of(plain).plan_bytes;
    model.options.constrained = 1;
    Handle session = model.open();
    CHECK(stats_of(session).plan_bytes > plain_bytes);
    CHECK(stats_of(session).plan_bytes == stats_of(session).peak_bytes);
    uint32_t id = 70;
    REQUIRE(ks_feed(session.get(), &id, 1) == KS_OK);

    const char* const grammar = "root ::= [xy]{3}";
    REQUIRE(ks_set_grammar(session.get(), KS_GBNF, grammar, strlen(grammar)) == KS_OK);
    CHECK(ks_set_grammar(session.get(), 7, grammar, strlen(grammar)) == KS_USAGE);
    CHECK(ks_set_grammar(session.get(), KS_GBNF, grammar, 9) == KS_OK); // the empty text
    CHECK(ks_set_grammar(session.get(), KS_GBNF, grammar, strlen(grammar)) == KS_OK);
    CHECK(ks_set_grammar(session.get(), KS_JSON_SCHEMA, "{\"not\":1}", 9) == KS_INVALID);
    CHECK(std::string(ks_error(session.get())).find("'not'") != std::string::npos);
    std::string text; // by the grammar that is still set
    while (text.size() < 3) {
        REQUIRE(ks_sample(session.get(), &id) == KS_OK);
        char piece[64];
        text.append(piece, ks_piece(ks_session_model(session.get()), id, piece, sizeof piece));
        REQUIRE(ks_feed(session.get(), &id, 1) == KS_OK);
    }
    CHECK(text.find_first_not_of("xy") == std::string::npos);
    REQUIRE(ks_sample(session.get(), &id) == KS_OK);
    CHECK(ks_is_end(ks_session_model(session.get()), id));
    CHECK(ks_set_grammar(session.get(), 0, nullptr, 0) == KS_OK);
    CHECK(ks_sample(session.get(), &id) == KS_OK);
}
