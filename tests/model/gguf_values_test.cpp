// GGUF values by type, and the vocabulary.
#include "model/gguf_builder.h"

using namespace ks;

static TempFile typed_file()
{
    GgufBuilder b = small_file();
    b.boolean("x.two", 2)
        .array<uint8_t>("x.flags", GgufType::boolean, {1, 0, 1})
        .array<int32_t>("x.negative", GgufType::i32, {1, -1});
    return TempFile("typed.gguf", b.bytes());
}

static Gguf typed_gguf(const TempFile& file)
{
    Result<Gguf> opened = Gguf::open(file.path());
    REQUIRE(opened.ok());
    return std::move(opened.value());
}

TEST_CASE("gguf: integers")
{
    const TempFile file = typed_file();
    const Gguf gguf = typed_gguf(file);
    bool found = false;
    uint32_t n = 99;
    for (auto [key, value] :
         {std::pair{"x.u8", 255u}, {"x.u16", 65535u}, {"x.u32", 7u}, {"x.i64", 5u}}) {
        CHECK(gguf.get_u32(key, &n, &found).ok());
        CHECK(found);
        CHECK(n == value);
    }
    CHECK(gguf.get_u32("x.missing", &n, &found).ok());
    CHECK_FALSE(found);
    CHECK(n == 5);
    refused(gguf.get_u32("x.i8", &n), Code::invalid,
            {"key 'x.i8' at offset ", "is -128, 0 to 4294967295"});
    refused(gguf.get_u32("x.u64", &n), Code::invalid, {"key 'x.u64'", "0 to 4294967295"});
    for (const char* key : {"x.f32", "x.bool", "x.shorts", "general.name"})
        refused(gguf.get_u32(key, &n), Code::invalid, {key, "integer"});
    CHECK(n == 5);
}

TEST_CASE("gguf: arrays of integers")
{
    const TempFile file = typed_file();
    const Gguf gguf = typed_gguf(file);
    std::vector<uint32_t> list;
    CHECK(gguf.get_u32s("x.shorts", 2, &list).ok());
    CHECK(list == std::vector<uint32_t>{3, 4});
    CHECK(gguf.get_u32s("x.flags", 9, &list).ok());
    CHECK(list == std::vector<uint32_t>{1, 0, 1});
    CHECK(gguf.get_u32s("x.u32", 1, &list).ok());
    CHECK(list == std::vector<uint32_t>{7});
    refused(gguf.get_u32s("x.shorts", 1, &list), Code::invalid, {"array of 2 u16"});
    refused(gguf.get_u32s("x.none", 9, &list), Code::invalid, {"array of 0 u32"});
    refused(gguf.get_u32s("x.negative", 9, &list), Code::invalid, {"is -1"});
    for (const char* key : {"x.floats", "x.strings", "x.bool"})
        CHECK_FALSE(gguf.get_u32s(key, 9, &list).ok());
}

TEST_CASE("gguf: real numbers and booleans")
{
    const TempFile file = typed_file();
    const Gguf gguf = typed_gguf(file);
    bool found = false, flag = false;
    double d = 0;
    CHECK(gguf.get_f64("x.f32", &d).ok());
    CHECK(d == 0.5);
    CHECK(gguf.get_f64("x.f64", &d).ok());
    CHECK(d == 1e-9);
    refused(gguf.get_f64("x.u32", &d), Code::invalid, {"has type u32, f32 or f64"});
    CHECK(gguf.get_bool("x.bool", &flag, &found).ok());
    CHECK(flag);
    refused(gguf.get_bool("x.two", &flag), Code::invalid, {"is 2"});
    refused(gguf.get_bool("x.u32", &flag), Code::invalid, {"bool"});
}

static const std::string t = "tokenizer.ggml.";

static GgufBuilder vocab_file()
{
    GgufBuilder b;
    b.string(t + "model", "llama")
        .string(t + "pre", "default")
        .strings(t + "tokens", {"a", "", "ccc"})
        .strings(t + "merges", {"a b"});
    b.array<float>(t + "scores", GgufType::f32, {0, -1, -2})
        .array<int32_t>(t + "token_type", GgufType::i32, {1, 2, 3});
    b.u32(t + "bos_token_id", 1)
        .i32(t + "eos_token_id", -1)
        .u32(t + "eot_token_id", UINT32_MAX)
        .boolean(t + "add_bos_token", 0);
    b.scalar(t + "eom_token_id", GgufType::u64, UINT64_MAX)
        .string("general.name", "tiny")
        .boolean(t + "add_space_prefix", 1)
        .array<int32_t>(t + "suppress_tokens", GgufType::i32, {2, -1})
        .array<uint32_t>(t + "eos_token_ids", GgufType::u32, {0, 2})
        .string("tokenizer.chat_template", "{{ x }}");
    return b;
}

TEST_CASE("gguf: the vocabulary")
{
    TempFile file("vocab.gguf", vocab_file().bytes());
    Result<Gguf> gguf = Gguf::open(file.path());
    REQUIRE(gguf.ok());
    Result<VocabSource> source = gguf.value().vocab();
    REQUIRE_MESSAGE(source.ok(), source.status().message());
    const VocabSource& v = source.value();
    CHECK(v.model == "llama");
    CHECK(v.pre == "default");
    CHECK(v.chat_template == "{{ x }}");
    uint64_t at = 0;
    REQUIRE(v.tokens.n == 3);
    CHECK(v.tokens.next(at) == "a");
    CHECK(v.tokens.next(at) == "");
    CHECK(v.tokens.next(at) == "ccc");
    CHECK(at == v.tokens.bytes);
    at = 0;
    CHECK(v.merges.next(at) == "a b");
    float score;
    memcpy(&score, v.scores + 8, 4);
    CHECK(score == -2);
    CHECK(v.n_scores == 3);
    CHECK(v.n_types == 3);
    CHECK(v.types[4] == 2);
    CHECK(v.suppress.n == 2);
    CHECK(v.suppress.at(0) == 2);
    CHECK(v.suppress.at(1) == -1);
    CHECK(v.more_eos.n == 2);
    CHECK(v.more_eos.at(1) == 2);
    CHECK(v.bos == 1);
    CHECK(v.eos == -1);
    CHECK(v.eot == UINT32_MAX);
    CHECK(v.eom == INT64_MAX); // outside every vocabulary, and different from "none"
    CHECK(v.padding == -1);
    CHECK(v.name == "tiny");
    CHECK(v.add_bos == 0);
    CHECK(v.add_eos == -1);
    CHECK(v.add_space_prefix == 1);
}

TEST_CASE("gguf: a vocabulary of the wrong types is refused")
{
    const GgufBuilder b = vocab_file();
    auto vocab_refused = [](const GgufBuilder& file_of, const std::vector<std::string>& words) {
        TempFile file("vocab.gguf", file_of.bytes());
        Result<Gguf> gguf = Gguf::open(file.path());
        REQUIRE(gguf.ok());
        refused(gguf.value().vocab().status(), Code::invalid, words);
    };
    vocab_refused(GgufBuilder(b).drop(t + "model"), {"no tokenizer.ggml.model"});
    vocab_refused(GgufBuilder(b).drop(t + "tokens"), {"no tokenizer.ggml.tokens"});
    vocab_refused(GgufBuilder(b).u32(t + "model", 1), {"tokenizer.ggml.model", "a string"});
    vocab_refused(GgufBuilder(b).array<uint32_t>(t + "tokens", GgufType::u32, {1}),
                  {"tokenizer.ggml.tokens", "array of 1 u32"});
    vocab_refused(GgufBuilder(b).array<uint8_t>(t + "scores", GgufType::u8, {1}),
                  {"tokenizer.ggml.scores", "array of f32"});
    vocab_refused(GgufBuilder(b).strings(t + "token_type", {"1"}),
                  {"tokenizer.ggml.token_type", "array of i32"});
    vocab_refused(GgufBuilder(b).string(t + "merges", "a b"), {"tokenizer.ggml.merges"});
    vocab_refused(GgufBuilder(b).string(t + "bos_token_id", "1"),
                  {"tokenizer.ggml.bos_token_id", "integer"});
    vocab_refused(GgufBuilder(b).array<uint32_t>(t + "eom_token_id", GgufType::u32, {}),
                  {"tokenizer.ggml.eom_token_id", "integer"});
    vocab_refused(GgufBuilder(b).boolean(t + "add_bos_token", 3),
                  {"tokenizer.ggml.add_bos_token", "is 3"});
    vocab_refused(GgufBuilder(b).u32("tokenizer.chat_template", 3),
                  {"tokenizer.chat_template", "a string"});
}

TEST_CASE("gguf: the table of tensor types agrees with the formats")
{
    for (int i = 0; i < int(Format::n_weights); i++) {
        const FormatInfo& format = format_info(Format(i));
        const GgmlType* type = find_ggml_type(format.ggml_type);
        REQUIRE(type);
        CHECK(type->block == format.block);
        CHECK(type->block_bytes == format.block_bytes);
    }
    CHECK(find_ggml_type(4) == nullptr);
}
