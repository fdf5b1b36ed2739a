// Arguments of the C API: biases, buffers, sizes of structs, numbers out of range.
#include "tests/api/c_api_bed.h"

#include <cstring>
#include <limits>

using namespace ks;

TEST_CASE("C API: biases are added to logits, and checked")
{
    ApiModel model("c-biases");
    Handle session = model.open();
    std::vector<uint32_t> ids = salted_ids(20, 1);
    REQUIRE(ks_feed(session.get(), ids.data(), ids.size()) == KS_OK);
    uint32_t best = 0, id = 0;
    REQUIRE(ks_sample(session.get(), &best) == KS_OK);
    const uint32_t other = best == 7 ? 8 : 7;
    ks_bias biases[] = {{other, 1000.f}, {best, -std::numeric_limits<float>::infinity()}};
    ks_sampling sampling = {};
    sampling.struct_size = sizeof sampling;
    sampling.biases = biases;
    for (sampling.n_biases = 0; sampling.n_biases < 3; sampling.n_biases++) {
        REQUIRE(ks_set_sampling(session.get(), &sampling) == KS_OK);
        REQUIRE(ks_sample(session.get(), &id) == KS_OK);
        CHECK(id == (sampling.n_biases ? other : best));
    }
    biases[0].bias = 0;
    sampling.n_biases = 2;
    REQUIRE(ks_set_sampling(session.get(), &sampling) == KS_OK);
    REQUIRE(ks_sample(session.get(), &id) == KS_OK);
    CHECK(id != best);
    biases[1].bias = std::numeric_limits<float>::quiet_NaN();
    CHECK(ks_set_sampling(session.get(), &sampling) == KS_USAGE);
    biases[1] = {stats_of(session).n_vocab, 1.f};
    CHECK(ks_set_sampling(session.get(), &sampling) == KS_USAGE);
    uint32_t again = 0; // the previous settings stay
    REQUIRE(ks_sample(session.get(), &again) == KS_OK);
    CHECK(again == id);
}

TEST_CASE("C API: version, pieces, buffers and structs")
{
    const std::string version = std::to_string(KS_VERSION_MAJOR) + "." +
                                std::to_string(KS_VERSION_MINOR) + "." +
                                std::to_string(KS_VERSION_PATCH);
    CHECK(ks_version() == version);

    ApiModel model("c-buffers");
    Handle session = model.open();
    for (uint32_t id = 0; id < 260; id++) {
        char whole[64], cut[2] = {'?', '?'};
        const size_t n = ks_piece(ks_session_model(session.get()), id, whole, sizeof whole);
        CHECK(n == (id < 256 ? 1 : 0)); // control tokens and ids beyond the vocabulary have no text
        CHECK(ks_piece(ks_session_model(session.get()), id, cut, 1) == n);
        CHECK(ks_piece(ks_session_model(session.get()), id, nullptr, 0) == n);
        CHECK(cut[0] == (n ? whole[0] : '?'));
        CHECK(cut[1] == '?');
    }
    ks_stats stats = {};
    stats.struct_size = sizeof stats - 1;
    ks_get_stats(session.get(), &stats);
    CHECK(stats.n_vocab == 0);
    ks_sampling sampling = {};
    CHECK(ks_set_sampling(session.get(), &sampling) == KS_USAGE);
    CHECK(ks_feed(session.get(), nullptr, 0) == KS_OK);
    ks_session_close(nullptr);
    ks_model_close(nullptr);

    char error[10];
    memset(error, '?', sizeof error);
    model.options.model_path = "/no/such/model.gguf";
    ks_model* none = nullptr;
    CHECK(ks_model_open(&model.options, &none, error, sizeof error - 1) == KS_INVALID);
    CHECK(strlen(error) == sizeof error - 2);
    CHECK(error[sizeof error - 1] == '?');
    CHECK(ks_model_open(&model.options, &none, nullptr, 0) == KS_INVALID);
    CHECK(ks_model_open(nullptr, &none, nullptr, 0) == KS_USAGE);
    CHECK(ks_model_open(&model.options, nullptr, nullptr, 0) == KS_USAGE);
    CHECK(ks_plan(&model.options, nullptr, nullptr, 0) == KS_USAGE);
}

TEST_CASE("C API: invalid numbers are refused, and earlier settings stay")
{
    ApiModel model("c-numbers");
    Handle session = model.open();
    CHECK(ks_logits(session.get()) == nullptr);
    std::vector<uint32_t> ids = salted_ids(20, 1);
    REQUIRE(ks_feed(session.get(), ids.data(), ids.size()) == KS_OK);
    const float nan = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();
    uint32_t greedy = 0, id = 0;
    REQUIRE(ks_sample(session.get(), &greedy) == KS_OK);
    float ks_sampling::*const numbers[] = {&ks_sampling::temperature,
                                           &ks_sampling::top_p,
                                           &ks_sampling::min_p,
                                           &ks_sampling::typical_p,
                                           &ks_sampling::repeat_penalty,
                                           &ks_sampling::presence_penalty,
                                           &ks_sampling::frequency_penalty};
    for (float ks_sampling::*number : numbers) {
        const bool any_sign =
            number == &ks_sampling::presence_penalty || number == &ks_sampling::frequency_penalty;
        for (float value : {nan, infinity, -infinity, -0.5f}) {
            ks_sampling sampling = {};
            sampling.struct_size = sizeof sampling;
            sampling.*number = value;
            if (any_sign && value == -0.5f) continue;
            CAPTURE(value);
            CHECK(ks_set_sampling(session.get(), &sampling) == KS_USAGE);
            CHECK(std::string(ks_error(session.get())).find("ks_sampling") == 0);
        }
    }
    ks_sampling sampling = {};
    sampling.struct_size = sizeof sampling;
    sampling.repeat_last_n = (1 << 20) + 1;
    CHECK(ks_set_sampling(session.get(), &sampling) == KS_USAGE);
    sampling.repeat_last_n = 0;
    sampling.n_biases = 1;
    CHECK(ks_set_sampling(session.get(), &sampling) == KS_USAGE);
    CHECK(ks_sample(session.get(), &id) == KS_OK);
    CHECK(id == greedy);
    REQUIRE(ks_rewind(session.get(), 10) == KS_OK);
    CHECK((ks_logits(session.get()) == nullptr) == (ks_sample(session.get(), &id) == KS_USAGE));

    char error[400];
    ks_model* none = nullptr;
    for (int64_t context : {int64_t(-2), INT64_MIN}) {
        model.options.context = context;
        CHECK(ks_model_open(&model.options, &none, error, sizeof error) == KS_USAGE);
    }
    model.options.context = 0;
    model.options.n_threads = -1;
    CHECK(ks_model_open(&model.options, &none, error, sizeof error) == KS_USAGE);
    CHECK(std::string(error).find("n_threads") != std::string::npos);
}
