// Files and folders of tests.
#pragma once

#include <cstdlib>
#include <dirent.h>
#include <doctest/doctest.h>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <unistd.h>

namespace ks
{

inline std::string read_all(const std::string& path)
{
    std::ifstream in(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << in.rdbuf();
    return bytes.str();
}

// A temporary folder. The destructor deletes it with its files.
struct Folder {
    char path[32] = "/tmp/knapsack-test.XXXXXX";
    Folder() { REQUIRE(mkdtemp(path)); }
    ~Folder()
    {
        for (const std::string& name : names()) unlink((*this / name).c_str());
        rmdir(path);
    }
    std::string operator/(const std::string& name) const { return std::string(path) + "/" + name; }
    std::set<std::string> names() const
    {
        std::set<std::string> found;
        DIR* dir = opendir(path);
        while (dirent* entry = readdir(dir))
            if (entry->d_name != std::string(".") && entry->d_name != std::string(".."))
                found.insert(entry->d_name);
        closedir(dir);
        return found;
    }
};

// Whether a message is short printable ASCII. Messages about a file must be, whatever bytes the
// file contains.
inline bool is_readable(const std::string& message, size_t most = 400)
{
    bool printable_ascii = !message.empty() && message.size() < most;
    for (unsigned char c : message) printable_ascii = printable_ascii && c >= 0x20 && c < 0x7f;
    return printable_ascii;
}

} // namespace ks
