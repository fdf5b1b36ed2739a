// The command line. One table of options makes the parser, the environment's part and --help.
#pragma once

#include "runtime/api/session.h"

#include <cstdint>
#include <string>
#include <vector>

namespace ks
{

enum class Command : uint32_t { chat, run, score, plan, inspect, tokenize, devices, bench, eval, report, count };

struct CommandInfo {
    const char* name;
    const char* summary;
    const char* usage; // what follows the name
    const char* notes; // printed under the options, may be empty
};
const CommandInfo& command_info(Command command);

struct Options {
    SessionOptions session; // -m --device --memory --kv-memory -c --kv -t
    std::string recipe_end; // of -ctk, -ctv and --rope-...
    SamplerOptions sampling;
    bool json = false;
    bool help = false;
    std::string prompt;
    std::string file; // of the prompt or the text
    bool from_file = false;
    bool has_prompt = false; // -p, -f or --ids
    bool ids = false;        // the file holds token ids
    int64_t n_predict = 128; // -1: until the end token or the context is full
    bool has_n_predict = false;
    std::vector<std::string> stops;
    bool ignore_eos = false;
    uint32_t n_decode = 0; // score: so many last tokens go one by one
    std::string system;
    bool has_system = false;
    std::string chat_template;
    std::string session_file;
    bool has_seed = false;
    bool no_stats = false;
    bool zero_separated = false;
    bool special = false;
    bool no_bos = false;
    std::vector<uint32_t> bench_prompts{512}, bench_tokens{64}, bench_depths{0};
    uint32_t repetitions = 5;
    bool ops = false;
    std::string versus, bench_output{"table"};
    std::vector<std::string> recipes, suites{"passkey", "niah", "sparse"}; // of eval
    std::vector<uint32_t> lengths{1024};
    std::vector<double> shares{25};
    uint32_t eval_cases = 20;
    bool later = false;
    bool without_control = false;
    std::string record;
};

bool find_command(const char* name, Command* out);
// A flag counts more than the environment, that more than the default.
Status parse_options(Command command, int n_args, char** args, Options& out);
void print_help(Command command);
void print_help(); // of the whole program

} // namespace ks
