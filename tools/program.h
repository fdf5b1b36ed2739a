// What the commands share: opening a session with progress and interrupts, reading files, small
// output helpers.
#pragma once

#include "tools/option_groups.h"

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ks
{

// Ctrl-C: the first one asks, a second one before anybody has looked ends the program.
namespace interrupt
{
void install();
void watch(Session* session); // whose feed() it cancels; null: nobody's
bool pending();
void clear();
} // namespace interrupt

// A line on a terminal's standard error that says how far something is; nothing elsewhere, nor in
// the first moments.
class ProgressLine
{
public:
    ~ProgressLine() { end(); }
    void begin_prompt(size_t n_tokens); // shows at once that a long one is read
    void show(const char* stage, uint64_t done, uint64_t total);
    void end(); // takes the line away

private:
    static constexpr size_t kLongPrompt = 256; // tokens
    std::chrono::steady_clock::time_point m_begin{};
    int m_percent = -1;
    bool m_shown = false;
};

// The library's sentences know no flags: an error of this code gets the ones that help.
Status with_flags(const Status& status, Code code, const char* flags);
// Says on standard error which device was chosen where the caller did not name one. `progress`
// outlives the session.
Result<std::unique_ptr<Session>> open_session(const SessionOptions& options, ProgressLine& progress,
                                              bool quiet = false);

// Encodes -p or -f, or reads --ids. continues: a text is there already, so no BOS is added and the
// prompt may be empty.
Status read_prompt(const PromptFlags& options, const Tokenizer& tokenizer, bool continues,
                   std::vector<uint32_t>& out);
Status read_file(const std::string& path, std::string* out); // "-": standard input; at most 256 MiB
Status check_sampling(const SamplerOptions& options, uint32_t n_vocab);

// A tokenizer without a session.
struct LoadedTokenizer {
    Tokenizer tokenizer;
    void* memory = nullptr;
    uint64_t bytes = 0;
    ~LoadedTokenizer();
};
Result<std::unique_ptr<LoadedTokenizer>> load_tokenizer(const VocabSource& vocab);

class Stopwatch
{
public:
    double seconds() const
    {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - m_begin).count();
    }

private:
    std::chrono::steady_clock::time_point m_begin = std::chrono::steady_clock::now();
};

bool is_terminal(int fd);
int terminal_columns(int fd);                        // 80 where nobody knows
bool has_colour(int fd);                             // a terminal, and NO_COLOR is not set
std::string grouped(uint64_t number);                // "12,345"
std::string bytes_hash(const void* bytes, size_t n); // FNV-1a, in hex
std::string logits_hash(const float* logits, uint32_t n);
std::string file_name(const std::string& path); // without its folders, printable

} // namespace ks
