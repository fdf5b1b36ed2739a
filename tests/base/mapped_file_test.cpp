// Mapped files: non-files, empty files, truncated files, and the lifetime of the mapping.
#include "runtime/base/mapped_file.h"

#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

using namespace ks;

namespace
{

struct Folder {
    std::string path;
    Folder()
    {
        char name[] = "/tmp/knapsack-test-XXXXXX";
        REQUIRE(mkdtemp(name));
        path = name;
    }
    ~Folder()
    {
        for (const std::string& file : m_files) unlink(file.c_str());
        rmdir(path.c_str());
    }
    std::string file(const std::string& name, const std::string& bytes)
    {
        m_files.push_back(path + "/" + name);
        FILE* out = fopen(m_files.back().c_str(), "wb");
        REQUIRE(out);
        REQUIRE(fwrite(bytes.data(), 1, bytes.size(), out) == bytes.size());
        REQUIRE(fclose(out) == 0);
        return m_files.back();
    }
    std::string fifo(const std::string& name)
    {
        m_files.push_back(path + "/" + name);
        REQUIRE(mkfifo(m_files.back().c_str(), 0600) == 0);
        return m_files.back();
    }

private:
    std::vector<std::string> m_files;
};

} // namespace

TEST_CASE("mapped file: its bytes, by mapping and by reading")
{
    Folder folder;
    std::string bytes;
    for (int i = 0; i < 10000; i++) bytes += char(i * 7);
    Result<MappedFile> opened = MappedFile::open(folder.file("a", bytes));
    REQUIRE(opened.ok());
    MappedFile& file = opened.value();
    CHECK(file.path() == folder.path + "/a");
    REQUIRE(file.size() == bytes.size());
    CHECK(memcmp(file.data(), bytes.data(), bytes.size()) == 0);

    char out[10000];
    REQUIRE(file.read(0, out, 10000).ok());
    CHECK(memcmp(out, bytes.data(), 10000) == 0);
    REQUIRE(file.read(9997, out, 3).ok());
    CHECK(memcmp(out, bytes.data() + 9997, 3) == 0);
    CHECK(file.read(10000, out, 0).ok());

    file.unmap();
    CHECK(file.data() == nullptr);
    CHECK(file.size() == bytes.size());
    file.unmap();
    REQUIRE(file.read(5, out, 100).ok());
    CHECK(memcmp(out, bytes.data() + 5, 100) == 0);
}

TEST_CASE("mapped file: a file that ends too early is one sentence with the offset")
{
    Folder folder;
    std::string path = folder.file("short", "0123456789");
    Result<MappedFile> file = MappedFile::open(path);
    REQUIRE(file.ok());
    char out[20];
    Status status = file.value().read(7, out, 5);
    CHECK(status.code() == Code::invalid);
    CHECK(status.message() == path + " ends at offset 10, 2 more bytes were expected");
    CHECK(file.value().read(10, out, 1).code() == Code::invalid);
    CHECK(file.value().read(uint64_t(1) << 62, out, 1).code() == Code::invalid);
    CHECK_FALSE(file.value().read(~uint64_t(0), out, 1).ok());

    file.value().unmap();
    REQUIRE(truncate(path.c_str(), 4) == 0); // truncated by another program while it is open
    CHECK(file.value().read(0, out, 4).ok());
    CHECK(file.value().read(0, out, 10).message() ==
          path + " ends at offset 4, 6 more bytes were expected");
}

TEST_CASE("mapped file: an empty file is a file")
{
    Folder folder;
    Result<MappedFile> file = MappedFile::open(folder.file("empty", ""));
    REQUIRE(file.ok());
    CHECK(file.value().size() == 0);
    char out;
    CHECK(file.value().read(0, &out, 0).ok());
    CHECK(file.value().read(0, &out, 1).code() == Code::invalid);
}

TEST_CASE("mapped file: other kinds of files are refused at once")
{
    Folder folder;
    Result<MappedFile> missing = MappedFile::open(folder.path + "/missing");
    CHECK(missing.status().code() == Code::invalid);
    CHECK(missing.status().message() ==
          "cannot open " + folder.path + "/missing: No such file or directory");
    CHECK(MappedFile::open("").status().code() == Code::invalid);
    CHECK(MappedFile::open(folder.path).status().message() ==
          folder.path + " is not a regular file");
    CHECK(MappedFile::open(folder.path).status().code() == Code::invalid);
    CHECK(MappedFile::open("/dev/null").status().code() == Code::invalid);
    // A pipe without a writer.
    CHECK(MappedFile::open(folder.fifo("fifo")).status().code() == Code::invalid);
    CHECK(MappedFile::open(folder.file("plain", "x") + "/below").status().code() == Code::invalid);

    std::string hostile =
        MappedFile::open("/no/\x1b[2J\n" + std::string(5000, 'x')).status().message();
    CHECK(hostile.size() < 400);
    CHECK(hostile.find("/no/\\x1b[2J\\x0a") != hostile.npos);
}

TEST_CASE("mapped file: one owner at a time")
{
    Folder folder;
    MappedFile first;
    CHECK(first.data() == nullptr);
    {
        Result<MappedFile> opened = MappedFile::open(folder.file("a", "content"));
        REQUIRE(opened.ok());
        first = std::move(opened.value());
    }
    REQUIRE(first.size() == 7);
    // Still mapped after the moved-from object is gone.
    CHECK(memcmp(first.data(), "content", 7) == 0);
    MappedFile second(std::move(first));
    CHECK(second.size() == 7);
    char out[7];
    CHECK(second.read(0, out, 7).ok());
    CHECK_FALSE(first.read(0, out, 7).ok());

    int before = dup(0);
    REQUIRE(before >= 0);
    close(before);
    for (int i = 0; i < 50; i++) second = std::move(MappedFile::open(folder.path + "/a").value());
    second = MappedFile();
    int after = dup(0); // the lowest free descriptor: nothing stayed open
    CHECK(after <= before);
    close(after);
}
