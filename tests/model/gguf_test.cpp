#include "model/gguf_builder.h"

#include <doctest/doctest.h>
#include <functional>
#include <random>

using namespace ks;

static Status open_status(const GgufBuilder& b)
{
    TempFile file("open.gguf", b.bytes());
    return Gguf::open(file.path()).status();
}

static void refused(const GgufBuilder& b, Code code, const std::vector<std::string>& words)
{
    Status status = open_status(b);
    refused(status, code, words);
    CHECK(status.message().find("open.gguf") != std::string::npos);
}

TEST_CASE("gguf: a valid file reads back")
{
    for (uint32_t version : {2u, 3u}) {
        GgufBuilder b = small_file();
        b.version = version;
        TempFile file("valid.gguf", b.bytes());
        Result<Gguf> opened = Gguf::open(file.path());
        REQUIRE_MESSAGE(opened.ok(), opened.status().message());
        Gguf& gguf = opened.value();
        CHECK(gguf.version() == version);
        CHECK(gguf.file_bytes() == b.bytes().size());
        REQUIRE(gguf.values().size() == b.keys.size());
        CHECK(gguf.values()[0].offset == 24);
        CHECK(gguf.values()[1].offset == 24 + 8 + 12 + 4 + 8 + 9);
        CHECK(gguf.find("x.strings")->count == 3);
        CHECK(gguf.find("x.strings")->element == GgufType::string);
        CHECK(gguf.find("x.strings")->bytes == 3 * 8 + 8);
        CHECK(gguf.find("x.floats")->bytes == 12);
        CHECK(gguf.find("x.none")->count == 0);
        CHECK(gguf.find("x.") == nullptr);

        REQUIRE(gguf.tensors().size() == 3);
        const GgufTensor* second = gguf.find_tensor("second");
        const GgufTensor* third = gguf.find_tensor("third");
        CHECK(gguf.find_tensor("fourth") == nullptr);
        CHECK(second->known);
        CHECK(second->format == Format::q8_0);
        CHECK(second->bytes == 34);
        CHECK(second->offset % 32 == 0);
        CHECK(second->dims[1] == 1);
        CHECK_FALSE(third->known); // IQ2_XXS: the program knows its size but cannot read its blocks
        CHECK(third->bytes == 6 * 66);
        CHECK(third->shape() == "256 x 2 x 3 x 1");
        CHECK(gguf.location_of(*second).find("valid.gguf: tensor 'second' at offset ") !=
              std::string::npos);

        gguf.unmap();
        char bytes[4] = {};
        CHECK(gguf.read(gguf.tensors()[0], 44, bytes, 4).ok());
        CHECK(Bytes(bytes, 4) == "ffff");
        CHECK(gguf.read(gguf.tensors()[1], 0, bytes, 4).ok());
        CHECK(Bytes(bytes, 4) == "ssss");
        CHECK(gguf.find("x.u32") == nullptr);
        CHECK(gguf.find_tensor("second") == nullptr);
    }
}

TEST_CASE("gguf: every shorter file is refused")
{
    const Bytes whole = small_file().bytes();
    for (size_t n = 0; n < whole.size(); n++) {
        TempFile file("cut.gguf", whole.substr(0, n));
        Status status = Gguf::open(file.path()).status();
        CAPTURE(n);
        CAPTURE(status.message());
        CHECK(status.code() == Code::invalid);
        CHECK(is_readable(status.message()));
    }
    refused(Gguf::open("/nonexistent/model.gguf").status(), Code::invalid, {"model.gguf"});
}

TEST_CASE("gguf: magic and version")
{
    GgufBuilder b = small_file();
    b.magic = "GG\x1b\n";
    refused(b, Code::invalid, {"'GG\\x1b\\x0a'", "'GGUF' was expected"});
    b.magic = "GGUF";
    for (uint32_t version : {0u, 1u, 4u, 1u << 31, UINT32_MAX}) {
        b.version = version;
        CHECK_FALSE(open_status(b).ok());
    }
    b.version = 1;
    refused(b, Code::unsupported, {"version 1", "2 or 3"});
    b.version = 3u << 24;
    refused(b, Code::unsupported, {"big-endian"});
}

TEST_CASE("gguf: counts are held against the bytes left")
{
    const GgufBuilder valid = small_file();
    const int64_t left = int64_t(valid.bytes().size()) - 24;
    for (int64_t n : {int64_t(INT64_MAX), int64_t(1) << 61, int64_t(1) << 32, left / 13 + 1}) {
        GgufBuilder b = valid;
        b.n_keys = n;
        refused(b, Code::invalid,
                {"header at offset 16 claims " + std::to_string(n) + " keys",
                 std::to_string(left) + " bytes are left"});
        b = valid;
        b.n_tensors = n;
        refused(b, Code::invalid, {"header at offset 8 claims " + std::to_string(n) + " tensors"});
    }
    // Off by one in both directions.
    for (int64_t delta : {-1, 1}) {
        GgufBuilder b = valid;
        b.n_keys = int64_t(b.keys.size()) + delta;
        CHECK_FALSE(open_status(b).ok());
        b = valid;
        b.tensor("fourth", {2048}, 0); // more than the padding that may follow the last tensor
        b.n_tensors = int64_t(b.tensors.size()) + delta;
        CHECK_FALSE(open_status(b).ok());
    }
}

TEST_CASE("gguf: lengths of strings and arrays are held against the bytes left")
{
    for (uint64_t length :
         {UINT64_MAX, UINT64_MAX - 7, uint64_t(1) << 63, uint64_t(1) << 32, uint64_t(100000)}) {
        const std::string claim = " claims " + std::to_string(length);
        GgufBuilder b = small_file();
        b.raw("general.name", uint32_t(GgufType::string), le(length) + "name");
        refused(b, Code::invalid, {"key 'general.name' at offset ", claim + " bytes, "});
        b = small_file();
        b.keys[0].name = le(length) + "general.name";
        refused(b, Code::invalid, {"key at offset 24" + claim + " bytes"});
        b = small_file();
        b.tensors[0].name = le(length) + "first";
        refused(b, Code::invalid, {"tensor at offset ", claim + " bytes"});
        b = small_file();
        b.raw("x.list", uint32_t(GgufType::array),
              le(uint32_t(GgufType::string)) + le<uint64_t>(2) + le_string("a") + le(length) + "b");
        refused(b, Code::invalid, {"key 'x.list' at offset ", claim + " bytes"});
        for (GgufType element : {GgufType::u8, GgufType::u32, GgufType::u64, GgufType::string}) {
            b.raw("x.list", uint32_t(GgufType::array),
                  le(uint32_t(element)) + le(length) + Bytes(64, '\0'));
            refused(b, Code::invalid, {"key 'x.list' at offset ", claim + " elements"});
        }
    }
    // The smallest error: one byte too many at the end of the file.
    GgufBuilder b;
    b.raw("k", uint32_t(GgufType::string), le<uint64_t>(6) + "llama");
    refused(b, Code::invalid, {"claims 6 bytes, 5 bytes are left"});
    b.raw("k", uint32_t(GgufType::array), le(uint32_t(GgufType::u16)) + le<uint64_t>(3) + "abcde");
    refused(b, Code::invalid, {"claims 3 elements, 5 bytes are left"});
    b.raw("k", uint32_t(GgufType::array), le(uint32_t(GgufType::u16)) + le<uint64_t>(2) + "abcd");
    CHECK(open_status(b).ok());
    b.string("k", Bytes((16u << 20) + 1, 'a'));
    refused(b, Code::invalid, {"16777217 bytes, at most 16777216"});
}

TEST_CASE("gguf: types of values")
{
    for (uint32_t type : {13u, 255u, 1u << 31, UINT32_MAX}) {
        GgufBuilder b = small_file();
        b.raw("x.key", type, Bytes(8, '\0'));
        refused(b, Code::invalid, {"key 'x.key'", "type " + std::to_string(type)});
        b.raw("x.key", uint32_t(GgufType::array), le(type) + le<uint64_t>(1) + Bytes(8, '\0'));
        refused(b, Code::invalid, {"key 'x.key'", "type " + std::to_string(type)});
    }
    Bytes deep;
    for (int i = 0; i < 100000; i++) deep += le(uint32_t(GgufType::array)) + le<uint64_t>(1);
    GgufBuilder b = small_file();
    b.raw("x.key", uint32_t(GgufType::array), deep);
    refused(b, Code::unsupported, {"array of arrays"});
}

TEST_CASE("gguf: names that are there twice")
{
    GgufBuilder b = small_file();
    b.keys.push_back(b.keys[2]);
    refused(b, Code::invalid, {"key 'x.i32' at offset ", "twice"});
    b = small_file();
    b.tensors.push_back(b.tensors[1]);
    refused(b, Code::invalid, {"tensor 'second' at offset ", "twice"});
}

TEST_CASE("gguf: names of any bytes are kept apart and shown as ASCII")
{
    GgufBuilder b = small_file();
    const std::string evil = "k\x1b[2J\n\xff", huge(1u << 20, 'k');
    b.u32(evil, 1).u32(huge, 2).u32("", 3).tensor(evil, {1}).tensor("%s%n", {1}).tensor("", {1});
    TempFile file("names\n\x1b.gguf", b.bytes());
    Result<Gguf> opened = Gguf::open(file.path());
    REQUIRE_MESSAGE(opened.ok(), opened.status().message());
    CHECK(opened.value().find(evil) != nullptr);
    CHECK(opened.value().find("") != nullptr);
    bool found = false;
    std::string_view text;
    refused(opened.value().get_string(evil, &text, &found), Code::invalid,
            {"'k\\x1b[2J\\x0a\\xff'", "a string was expected"});
    TempFile long_name(
        Bytes(150, '\x01'),
        GgufBuilder(b)
            .tensor(Bytes(150, '\x02'), {UINT64_MAX, UINT64_MAX, UINT64_MAX, 7}, 0, "x")
            .bytes());
    refused(Gguf::open(long_name.path()).status(), Code::invalid,
            {"...: tensor '\\x02", "more than 64 bits"});
    refused(opened.value().get_string(huge, &text, &found), Code::invalid, {"kkk..."});
}

TEST_CASE("gguf: tensor infos")
{
    auto changed = [](const std::function<void(GgufBuilder::TensorInfo&)>& change) {
        GgufBuilder b = small_file();
        change(b.info("second"));
        return b;
    };
    auto with_dims = [&](std::vector<uint64_t> dims) {
        return changed([&](auto& t) {
            t.n_dims = uint32_t(dims.size());
            t.dims = dims;
        });
    };
    for (uint32_t n : {0u, 5u, 255u, UINT32_MAX})
        refused(changed([&](auto& t) { t.n_dims = n; }), Code::invalid,
                {"tensor 'second'", std::to_string(n) + " dimensions"});
    refused(with_dims({0, 64}), Code::invalid, {"0 x 64 values", "none"});
    refused(with_dims({32, 0}), Code::invalid, {"32 x 0 values", "none"});
    refused(with_dims({33}), Code::invalid, {"rows of 33 values", "Q8_0", "32"});
    for (const std::vector<uint64_t>& dims :
         std::vector<std::vector<uint64_t>>{{1ull << 63, 2},
                                            {UINT64_MAX - 31, 64},
                                            {1ull << 32, 1ull << 32},
                                            {1ull << 31, 1ull << 31, 2, 2},
                                            {1ull << 62, 4},
                                            {32, UINT64_MAX / 17}})
        refused(with_dims(dims), Code::invalid, {"more than 64 bits"});
    refused(with_dims({32, 1ull << 40}), Code::invalid, {"claims 37383395344384 bytes"});
    for (uint32_t type : {4u, 5u, 9u, 31u, 36u, 99u, 1u << 31, UINT32_MAX})
        refused(changed([&](auto& t) { t.type = type; }), Code::unsupported,
                {"tensor 'second'", "type " + std::to_string(type)});
    refused(changed([](auto& t) { t.type = 12; }), Code::invalid, {"rows of 32", "Q4_K", "256"});
}

TEST_CASE("gguf: places of tensors")
{
    auto moved = [](const std::string& name, uint64_t offset) {
        GgufBuilder b = small_file();
        b.info(name).offset = offset;
        return b;
    };
    const uint64_t third = 128; // after tensors of 48 and 34 bytes
    refused(moved("second", 65), Code::invalid,
            {"tensor 'second'", "data at 65", "multiple of 32"});
    refused(
        moved("second", 32), Code::invalid,
        {"tensor 'second'", "another tensor's ends"}); // inside the 48 bytes of the first tensor
    refused(moved("second", 0), Code::invalid, {"another tensor's ends"});
    for (uint64_t offset : {third + 32, uint64_t(1) << 20, UINT64_MAX - 31, uint64_t(1) << 63})
        refused(moved("third", offset), Code::invalid,
                {"tensor 'third'", "claims 396 bytes", "+ " + std::to_string(offset)});

    GgufBuilder b = small_file();
    b.info("first").offset = 64;
    b.info("second").offset = 0;
    CHECK(open_status(b).ok()); // tensor infos may be in any order
    b.tail.resize(4095);
    CHECK(open_status(b).ok());
    b.tail.resize(4096);
    refused(b, Code::invalid, {"the last 4096 bytes", "none of the 3 tensors"});

    GgufBuilder keys_only; // a vocabulary without weights
    CHECK(open_status(keys_only.string("k", Bytes(10000, 'a'))).ok());

    // Sizes and offsets whose sum overflows 64 bits.
    b = small_file();
    for (int i = 0; i < 2; i++)
        b.tensors.push_back(
            {le_string("x" + std::to_string(i)), 1, {(1ull << 63) - 1}, 24, "", uint64_t(i) << 63});
    CHECK_FALSE(open_status(b).ok());
}

TEST_CASE("gguf: alignment")
{
    for (uint32_t alignment : {8u, 64u, 4096u, 65536u}) {
        GgufBuilder b;
        b.alignment = alignment;
        b.u32("general.alignment", alignment).tensor("a", {3}).tensor("b", {3}, 0, Bytes(12, 'b'));
        TempFile file("aligned.gguf", b.bytes());
        Result<Gguf> gguf = Gguf::open(file.path());
        REQUIRE_MESSAGE(gguf.ok(), gguf.status().message());
        CHECK(gguf.value().find_tensor("b")->offset == b.bytes().size() - 12);
        char bytes[2];
        CHECK(gguf.value().read(*gguf.value().find_tensor("b"), 0, bytes, 2).ok());
        CHECK(Bytes(bytes, 2) == "bb");
    }
    for (uint32_t alignment : {0u, 3u, 4u, 24u, 1u << 17, 1u << 31, UINT32_MAX}) {
        GgufBuilder b = small_file();
        refused(b.u32("general.alignment", alignment), Code::invalid,
                {"general.alignment", std::to_string(alignment), "power of two"});
    }
    GgufBuilder b = small_file();
    refused(b.string("general.alignment", "32"), Code::invalid, {"general.alignment", "string"});
    refused(b.i32("general.alignment", -32), Code::invalid, {"general.alignment", "-32"});
}

static GgufBuilder part(uint16_t no, uint16_t count, int32_t n_tensors, const std::string& tensor)
{
    GgufBuilder b;
    b.scalar("split.no", GgufType::u16, no)
        .scalar("split.count", GgufType::u16, count)
        .i32("split.tensors.count", n_tensors);
    return b.tensor(tensor, {4}, 0, Bytes(16, char('a' + no)));
}

TEST_CASE("gguf: split files")
{
    const GgufBuilder first = part(0, 3, 3, "one"), second = part(1, 3, 3, "two"),
                      third = part(2, 3, 3, "three");
    TempFile a("s-00001-of-00003.gguf", first.bytes()), b("s-00002-of-00003.gguf", second.bytes());
    refused(Gguf::open(a.path()).status(), Code::invalid,
            {"part 1 of 3", "s-00003-of-00003.gguf cannot be opened"});
    {
        TempFile c("s-00003-of-00003.gguf", third.bytes());
        Result<Gguf> gguf = Gguf::open(a.path());
        REQUIRE_MESSAGE(gguf.ok(), gguf.status().message());
        CHECK(gguf.value().tensors().size() == 3);
        CHECK(gguf.value().file_bytes() == 3 * first.bytes().size() + second.bytes().size() -
                                               first.bytes().size() + third.bytes().size() -
                                               first.bytes().size());
        char byte = 0;
        for (auto [name, expected] : {std::pair{"one", 'a'}, {"two", 'b'}, {"three", 'c'}}) {
            REQUIRE(gguf.value().find_tensor(name));
            CHECK(gguf.value().read(*gguf.value().find_tensor(name), 15, &byte, 1).ok());
            CHECK(byte == expected);
        }
        CHECK(gguf.value()
                  .location_of(*gguf.value().find_tensor("three"))
                  .find("s-00003-of-00003.gguf: tensor") != std::string::npos);
        refused(Gguf::open(c.path()).status(), Code::invalid,
                {"part 3 of 3", "open ", "s-00001-of-00003.gguf instead"});
    }
    auto third_refused = [&](const GgufBuilder& other, const std::vector<std::string>& words) {
        TempFile c("s-00003-of-00003.gguf", other.bytes());
        refused(Gguf::open(a.path()).status(), Code::invalid, words);
    };
    third_refused(part(1, 3, 3, "three"), {"s-00003-of-00003.gguf has split.no 1 of 3, 2 of 3"});
    third_refused(part(2, 4, 3, "three"), {"split.no 2 of 4, 2 of 3"});
    third_refused(small_file(), {"s-00003-of-00003.gguf"});
    third_refused(part(2, 3, 3, "one"), {"tensor 'one'", "twice"});
    third_refused(GgufBuilder(third).tensor("four", {1}),
                  {"4 tensors", "split.tensors.count is 3"});
    GgufBuilder damaged = third;
    damaged.magic = "GGML";
    third_refused(damaged, {"s-00003-of-00003.gguf", "GGML"});

    TempFile renamed("renamed.gguf", first.bytes());
    refused(Gguf::open(renamed.path()).status(), Code::invalid,
            {"part 1 of 3", "-00001-of-00003.gguf"});
    TempFile beyond("b-00004-of-00003.gguf", part(3, 3, 3, "x").bytes());
    refused(Gguf::open(beyond.path()).status(), Code::invalid,
            {"part 4 of 3", "b-00001-of-00003.gguf instead"});
    TempFile negative("n-00001-of-00003.gguf", part(0, 3, -1, "x").bytes());
    refused(Gguf::open(negative.path()).status(), Code::invalid, {"split.tensors.count", "-1"});
    TempFile whole("whole.gguf", part(0, 1, 1, "x").bytes());
    CHECK(Gguf::open(whole.path()).ok());
}

TEST_CASE("gguf: many keys and tensors")
{
    GgufBuilder b;
    const uint32_t n = 1u << 16;
    for (uint32_t i = 0; i < n; i++)
        b.keys.push_back(
            {le_string("key." + std::to_string(i * 7919u % n)), uint32_t(GgufType::u32), le(i)});
    for (uint32_t i = 0; i < n; i++)
        b.tensors.push_back({le_string("t" + std::to_string(i)),
                             1,
                             {8},
                             0,
                             Bytes(32, '\0'),
                             uint64_t(i * 7919u % n) * 32});
    TempFile file("many.gguf", b.bytes());
    Result<Gguf> gguf = Gguf::open(file.path());
    REQUIRE_MESSAGE(gguf.ok(), gguf.status().message());
    uint32_t value = 0;
    CHECK(gguf.value().get_u32("key.7919", &value).ok());
    CHECK(value == 1);
    CHECK(gguf.value().find_tensor("t65535") != nullptr);
    b.keys.push_back({le_string("one more"), uint32_t(GgufType::u32), le(0u)});
    refused(b, Code::invalid, {"65537 keys", "at most 65536"});
}

TEST_CASE("gguf: damaged headers never do harm")
{
    const Bytes whole = small_file().bytes();
    std::mt19937_64 random(1);
    int n_opened = 0;
    for (int i = 0; i < 4000; i++) {
        Bytes damaged = whole;
        for (uint64_t n = 1 + random() % 4; n > 0; n--) {
            size_t at = random() % (whole.size() - 512); // mostly in the header
            if (random() % 2)
                damaged[at] = char(random());
            else
                memcpy(&damaged[at],
                       random() % 2 ? "\xff\xff\xff\xff\xff\xff\xff\x7f" : "\0\0\0\0\0\0\0\x80", 8);
        }
        TempFile file("damaged.gguf", damaged);
        Result<Gguf> gguf = Gguf::open(file.path());
        n_opened += gguf.ok();
        if (!gguf.ok())
            CHECK_MESSAGE(is_readable(gguf.status().message()), gguf.status().message());
        else
            (void)gguf.value().vocab();
    }
    CHECK(n_opened > 0);
    CHECK(n_opened < 2000);
}
