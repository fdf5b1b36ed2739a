// Runs a target without libFuzzer: every file of its corpus, and inputs derived from them, the same
// in every run. Fails if no file of the corpus is accepted as valid.
//   fuzz_TARGET CORPUS N [SEED]   N mutated inputs, others for another seed
//   fuzz_TARGET --write CORPUS    rewrites the corpus from the seeds of the target
#include "tests/fuzz/fuzz.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>

using namespace ks;

static size_t g_max_allocation = SIZE_MAX; // maximum bytes of one allocation

void* operator new(size_t bytes)
{
    KS_CHECK(bytes <= g_max_allocation, "an allocation of %zu bytes, at most %zu were expected",
             bytes, g_max_allocation);
    if (void* memory = malloc(bytes ? bytes : 1)) return memory;
    throw std::bad_alloc();
}
// The standard library uses it for temporary buffers. operator delete handles both kinds.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept
{
    return bytes <= g_max_allocation ? malloc(bytes ? bytes : 1) : nullptr;
}
void operator delete(void* memory) noexcept
{
    free(memory);
}
void operator delete(void* memory, size_t) noexcept
{
    free(memory);
}

static uint64_t g_random = 88172645463325252ull; // not 0

static uint32_t below(uint32_t n)
{
    g_random ^= g_random << 13, g_random ^= g_random >> 7, g_random ^= g_random << 17;
    return uint32_t(g_random >> 32) % n;
}

// One to four mutations: flipped bits, limit values, a part removed, doubled, or copied from
// another input.
static std::string changed(const std::vector<std::string>& inputs)
{
    std::string s = inputs[below(uint32_t(inputs.size()))];
    const std::string& other = inputs[below(uint32_t(inputs.size()))];
    const uint64_t limits[] = {0,      1,      2,          0x7f,       0x80,       0xff,
                               0x7fff, 0xffff, 0x7fffffff, 0xffffffff, ~0ull >> 1, ~0ull};
    for (uint32_t n = 1 + below(4); n-- > 0 && !s.empty();) {
        const size_t at = below(uint32_t(s.size())),
                     bytes = std::min<size_t>(s.size() - at, 1 + below(24));
        switch (below(6)) {
        case 0:
            s[at] = char(s[at] ^ (1 << below(8)));
            break;
        case 1:
            s[at] = char(below(256));
            break;
        case 2:
            memcpy(&s[at], &limits[below(uint32_t(std::size(limits)))],
                   std::min<size_t>(s.size() - at, 1u << below(4)));
            break;
        case 3:
            s.erase(at, bytes);
            break;
        case 4:
            s.insert(at, s.substr(at, bytes));
            break;
        default:
            s.insert(at, other.substr(std::min(at, other.size()), bytes));
            break;
        }
    }
    return s;
}

static void run(const std::string& input)
{
    g_max_allocation = (64u << 20) + input.size();
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    g_max_allocation = SIZE_MAX;
}

static int write_corpus(const std::string& folder)
{
    std::filesystem::create_directories(folder);
    // Inputs found by a fuzzer are kept.
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().filename().string().rfind("seed-", 0) == 0)
            std::filesystem::remove(entry.path());
    int n = 0;
    for (const std::string& seed : fuzz_seeds()) {
        const std::string name = folder + "/seed-" + std::to_string(n++);
        std::ofstream(name, std::ios::binary).write(seed.data(), std::streamsize(seed.size()));
    }
    return 0;
}

int main(int n_arguments, char** arguments)
{
    if (n_arguments == 3 && !strcmp(arguments[1], "--write")) return write_corpus(arguments[2]);
    if (n_arguments != 3 && n_arguments != 4)
        return fprintf(stderr, "usage: %s CORPUS N [SEED] | --write CORPUS\n", arguments[0]), 2;
    if (n_arguments == 4) g_random ^= strtoull(arguments[3], nullptr, 10) << 32;
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(arguments[1]))
        paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> inputs;
    for (const auto& path : paths) {
        inputs.push_back(read_all(path));
        run(inputs.back());
    }
    const uint64_t accepted = g_accepted;
    for (long n = atol(arguments[2]); n > 0 && !inputs.empty(); n--) run(changed(inputs));
    printf("%zu inputs, %llu of them accepted; of %s changed ones %llu\n", inputs.size(),
           (unsigned long long)accepted, arguments[2], (unsigned long long)(g_accepted - accepted));
    if (accepted) return 0;
    fprintf(stderr, "the corpus is of another version, nothing in it is accepted: %s --write %s\n",
            arguments[0], arguments[1]);
    return 1;
}
