// The command line. One table of options makes the parser, the environment's part and --help.
#pragma once

#include "runtime/api/session.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ks
{

enum Command : uint32_t { chat, run, score, plan, inspect, tokenize, devices, bench, n_commands };

struct CommandInfo {
    const char* name;
    const char* summary;
    const char* usage; // what follows the name
    const char* notes; // printed under the options, may be empty
};
extern const CommandInfo kCommands[n_commands];

struct Options {
    SessionOptions session; // -m --device --memory --kv-memory -c --kv -t
    SamplerOptions sampling;
    bool json = false;
    bool help = false;
    bool has_device = false; // by flag or environment
    bool has_prompt = false; // -p, -f or --ids
    std::string prompt;
    std::string file;     // of the prompt or text
    bool ids = false;     // the file holds token ids
    int64_t n_predict = 0; // -1: until the end token or the context is full; 0: the command's default
    std::vector<std::string> stops;
    bool ignore_eos = false;
    uint32_t n_decode = 0; // score: last tokens that go one by one
    bool has_system = false;
    std::string system;
    std::string chat_template;
    bool no_stats = false;
    bool zero_separated = false;
    bool special = false;
    bool no_bos = false;
    std::vector<uint32_t> bench_prompts{512}, bench_tokens{64}, bench_depths{0};
    uint32_t repetitions = 5;
};

// -1: no such command
int find_command(const char* name);
Status parse_options(Command command, int n_args, char** args, Options& out);
void print_help(Command command);

// "1536MiB", "8 G" without the space, or bytes; at least 1.
Status parse_size(const char* option, const char* text, uint64_t* out);

} // namespace ks
