// GGUF headers: counts, lengths, types and names, in valid and in damaged files.
#include "tests/model/gguf_bed.h"

#include <cstring>
#include <random>

using namespace ks;

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
        CHECK_FALSE(third->known); // I16: the program knows its size but cannot read it
        CHECK(third->bytes == 6 * 66);
        CHECK(third->shape() == "33 x 2 x 3 x 1");
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
    file_refused(b, Code::invalid, {"'GG\\x1b\\x0a'", "'GGUF' was expected"});
    b.magic = "GGUF";
    for (uint32_t version : {0u, 1u, 4u, 1u << 31, UINT32_MAX}) {
        b.version = version;
        CHECK_FALSE(open_status(b).ok());
    }
    b.version = 1;
    file_refused(b, Code::unsupported, {"version 1", "2 or 3"});
    b.version = 3u << 24;
    file_refused(b, Code::unsupported, {"big-endian"});
}

TEST_CASE("gguf: counts are checked against the bytes left")
{
    const GgufBuilder valid = small_file();
    const int64_t left = int64_t(valid.bytes().size()) - 24;
    for (int64_t n : {int64_t(INT64_MAX), int64_t(1) << 61, int64_t(1) << 32, left / 13 + 1}) {
        GgufBuilder b = valid;
        b.n_keys = n;
        file_refused(b, Code::invalid,
                     {"header at offset 16 claims " + std::to_string(n) + " keys",
                      std::to_string(left) + " bytes are left"});
        b = valid;
        b.n_tensors = n;
        file_refused(b, Code::invalid,
                     {"header at offset 8 claims " + std::to_string(n) + " tensors"});
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

TEST_CASE("gguf: lengths of strings and arrays are checked against the bytes left")
{
    for (uint64_t length :
         {UINT64_MAX, UINT64_MAX - 7, uint64_t(1) << 63, uint64_t(1) << 32, uint64_t(100000)}) {
        const std::string claim = " claims " + std::to_string(length);
        GgufBuilder b = small_file();
        b.raw("general.name", uint32_t(GgufType::string), le(length) + "name");
        file_refused(b, Code::invalid, {"key 'general.name' at offset ", claim + " bytes, "});
        b = small_file();
        b.keys[0].name = le(length) + "general.name";
        file_refused(b, Code::invalid, {"key at offset 24" + claim + " bytes"});
        b = small_file();
        b.tensors[0].name = le(length) + "first";
        file_refused(b, Code::invalid, {"tensor at offset ", claim + " bytes"});
        b = small_file();
        b.raw("x.list", uint32_t(GgufType::array),
              le(uint32_t(GgufType::string)) + le<uint64_t>(2) + le_string("a") + le(length) + "b");
        file_refused(b, Code::invalid, {"key 'x.list' at offset ", claim + " bytes"});
        for (GgufType element : {GgufType::u8, GgufType::u32, GgufType::u64, GgufType::string}) {
            b.raw("x.list", uint32_t(GgufType::array),
                  le(uint32_t(element)) + le(length) + Bytes(64, '\0'));
            file_refused(b, Code::invalid, {"key 'x.list' at offset ", claim + " elements"});
        }
    }
    // The smallest error: one byte too many at the end of the file.
    GgufBuilder b;
    b.raw("k", uint32_t(GgufType::string), le<uint64_t>(6) + "llama");
    file_refused(b, Code::invalid, {"claims 6 bytes, 5 bytes are left"});
    b.raw("k", uint32_t(GgufType::array), le(uint32_t(GgufType::u16)) + le<uint64_t>(3) + "abcde");
    file_refused(b, Code::invalid, {"claims 3 elements, 5 bytes are left"});
    b.raw("k", uint32_t(GgufType::array), le(uint32_t(GgufType::u16)) + le<uint64_t>(2) + "abcd");
    CHECK(open_status(b).ok());
    b.string("k", Bytes((16u << 20) + 1, 'a'));
    file_refused(b, Code::invalid, {"16777217 bytes, at most 16777216"});
}

TEST_CASE("gguf: types of values")
{
    for (uint32_t type : {13u, 255u, 1u << 31, UINT32_MAX}) {
        GgufBuilder b = small_file();
        b.raw("x.key", type, Bytes(8, '\0'));
        file_refused(b, Code::invalid, {"key 'x.key'", "type " + std::to_string(type)});
        b.raw("x.key", uint32_t(GgufType::array), le(type) + le<uint64_t>(1) + Bytes(8, '\0'));
        file_refused(b, Code::invalid, {"key 'x.key'", "type " + std::to_string(type)});
    }
    Bytes deep;
    for (int i = 0; i < 100000; i++) deep += le(uint32_t(GgufType::array)) + le<uint64_t>(1);
    GgufBuilder b = small_file();
    b.raw("x.key", uint32_t(GgufType::array), deep);
    file_refused(b, Code::unsupported, {"array of arrays"});
}

TEST_CASE("gguf: duplicate names")
{
    GgufBuilder b = small_file();
    b.keys.push_back(b.keys[2]);
    file_refused(b, Code::invalid, {"key 'x.i32' at offset ", "twice"});
    b = small_file();
    b.tensors.push_back(b.tensors[1]);
    file_refused(b, Code::invalid, {"tensor 'second' at offset ", "twice"});
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
    file_refused(b, Code::invalid, {"65537 keys", "at most 65536"});
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
