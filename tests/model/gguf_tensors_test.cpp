// GGUF tensors: infos, offsets, alignment, files in several parts.
#include "tests/model/gguf_bed.h"

#include <functional>

using namespace ks;

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
        file_refused(changed([&](auto& t) { t.n_dims = n; }), Code::invalid,
                     {"tensor 'second'", std::to_string(n) + " dimensions"});
    file_refused(with_dims({0, 64}), Code::invalid, {"0 x 64 values", "none"});
    file_refused(with_dims({32, 0}), Code::invalid, {"32 x 0 values", "none"});
    file_refused(with_dims({33}), Code::invalid, {"rows of 33 values", "Q8_0", "32"});
    for (const std::vector<uint64_t>& dims :
         std::vector<std::vector<uint64_t>>{{1ull << 63, 2},
                                            {UINT64_MAX - 31, 64},
                                            {1ull << 32, 1ull << 32},
                                            {1ull << 31, 1ull << 31, 2, 2},
                                            {1ull << 62, 4},
                                            {32, UINT64_MAX / 17}})
        file_refused(with_dims(dims), Code::invalid, {"more than 64 bits"});
    file_refused(with_dims({32, 1ull << 40}), Code::invalid, {"claims 37383395344384 bytes"});
    for (uint32_t type : {4u, 5u, 9u, 31u, 36u, 99u, 1u << 31, UINT32_MAX})
        file_refused(changed([&](auto& t) { t.type = type; }), Code::unsupported,
                     {"tensor 'second'", "type " + std::to_string(type)});
    file_refused(changed([](auto& t) { t.type = 12; }), Code::invalid,
                 {"rows of 32", "Q4_K", "256"});
}

TEST_CASE("gguf: Q2_0 in blocks of 128 values is refused, in blocks of 64 read")
{
    const std::vector<uint64_t> dims = {128, 40};
    for (bool last : {false, true}) {
        for (uint64_t bytes : {40 * 36, 40 * 34}) {
            GgufBuilder b = small_file();
            b.tensor("fourth", dims, 42, Bytes(bytes, 'q'));
            if (!last) b.tensor("fifth", {32}, 8, Bytes(34, 'e'));
            if (bytes == 40 * 36)
                CHECK(open_status(b).ok());
            else
                file_refused(b, Code::unsupported,
                             {"tensor 'fourth'", "Q2_0 in blocks of 128", "blocks of 64"});
        }
    }
    GgufBuilder b = small_file(); // cut anywhere else
    b.tensor("fourth", dims, 42, Bytes(40 * 34 - 64, 'q'));
    file_refused(b, Code::invalid, {"tensor 'fourth'", "claims 1440 bytes"});
}

TEST_CASE("gguf: offsets of tensors")
{
    auto moved = [](const std::string& name, uint64_t offset) {
        GgufBuilder b = small_file();
        b.info(name).offset = offset;
        return b;
    };
    const uint64_t third = 128; // after tensors of 48 and 34 bytes
    file_refused(moved("second", 65), Code::invalid,
                 {"tensor 'second'", "data at 65", "multiple of 32"});
    file_refused(
        moved("second", 32), Code::invalid,
        {"tensor 'second'", "another tensor's ends"}); // inside the 48 bytes of the first tensor
    file_refused(moved("second", 0), Code::invalid, {"another tensor's ends"});
    for (uint64_t offset : {third + 32, uint64_t(1) << 20, UINT64_MAX - 31, uint64_t(1) << 63})
        file_refused(moved("third", offset), Code::invalid,
                     {"tensor 'third'", "claims 396 bytes", "+ " + std::to_string(offset)});

    GgufBuilder b = small_file();
    b.info("first").offset = 64;
    b.info("second").offset = 0;
    CHECK(open_status(b).ok()); // tensor infos may be in any order
    b.tail.resize(4095);
    CHECK(open_status(b).ok());
    b.tail.resize(4096);
    file_refused(b, Code::invalid, {"the last 4096 bytes", "none of the 3 tensors"});

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
        file_refused(b.u32("general.alignment", alignment), Code::invalid,
                     {"general.alignment", std::to_string(alignment), "power of two"});
    }
    GgufBuilder b = small_file();
    file_refused(b.string("general.alignment", "32"), Code::invalid,
                 {"general.alignment", "string"});
    file_refused(b.i32("general.alignment", -32), Code::invalid, {"general.alignment", "-32"});
}

static GgufBuilder part(uint16_t no, uint16_t count, int32_t n_tensors, const std::string& tensor)
{
    GgufBuilder b;
    b.scalar("split.no", GgufType::u16, no)
        .scalar("split.count", GgufType::u16, count)
        .i32("split.tensors.count", n_tensors);
    return b.tensor(tensor, {4}, 0, Bytes(16, char('a' + no)));
}

TEST_CASE("gguf: the parts of a split file are read as one")
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
}

TEST_CASE("gguf: parts that do not belong together are refused")
{
    const GgufBuilder first = part(0, 3, 3, "one"), second = part(1, 3, 3, "two"),
                      third = part(2, 3, 3, "three");
    TempFile a("s-00001-of-00003.gguf", first.bytes()), b("s-00002-of-00003.gguf", second.bytes());
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
