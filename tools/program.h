// Shared by the commands: opening a session with progress and interrupts, reading files, small
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

// Ctrl-C. The first one sets a flag and cancels the session. A second one before clear() exits.
namespace interrupt
{
void install();
void watch(Session* session); // cancels its feed(); null: none
bool pending();
void clear();
} // namespace interrupt

// A progress line on standard error. Prints nothing if that is no terminal or during the first 300
// ms.
class ProgressLine
{
public:
    ~ProgressLine() { end(); }
    void begin_prompt(size_t n_tokens); // a long prompt shows the line at once
    void show(const char* stage, uint64_t done, uint64_t total);
    void end(); // erases the line

private:
    static constexpr size_t kLongPrompt = 256; // tokens
    std::chrono::steady_clock::time_point m_begin{};
    int m_percent = -1;
    bool m_shown = false;
};

// Appends the command-line flags that help to an error with this code: the library does not know
// them.
Status with_flags(const Status& status, Code code, const char* flags);
// Prints the chosen device on standard error if the user did not name one. `progress` must outlive
// the session.
Result<std::unique_ptr<Session>> open_session(const ModelOptions& options, ProgressLine& progress,
                                              bool quiet = false);

// Encodes -p or -f, or reads --ids. continues: the session holds a text, so no BOS is added and the
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
int terminal_columns(int fd);                        // 80 if unknown
bool has_colour(int fd);                             // a terminal, NO_COLOR not set
std::string grouped(uint64_t number);                // "12,345"
std::string bytes_hash(const void* bytes, size_t n); // FNV-1a, in hex
std::string logits_hash(const float* logits, uint32_t n);
std::string file_name(const std::string& path); // without folders, printable

} // namespace ks
