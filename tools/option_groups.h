// Options that several commands have. A command's own options inherit the groups that it takes.
#pragma once

#include "tools/options.h"

#include "runtime/api/session.h"

namespace ks
{

void add_json(OptionTable& table, bool* out);
void add_model(OptionTable& table, SessionOptions* out);
void add_device(OptionTable& table, SessionOptions* out);
void add_threads(OptionTable& table, SessionOptions* out);
Status check_model(const char* command, const SessionOptions& session); // that one is named

// -s
struct SeedFlag {
    uint64_t seed;
    bool has_seed = false;

    SeedFlag(); // a new one
    void add_seed(OptionTable& table,
                  const char* help = "seed of all that is drawn; -1: a new one each time; default: "
                                     "a saved session's, else -1");
};

// -m --device --memory --kv-memory -c --kv and what names a part of the recipe, -t
struct SessionFlags {
    SessionOptions session;
    std::string recipe_end; // of -ctk, -ctv and --rope-...

    void add_session(
        OptionTable& table,
        const char* kv_help =
            "how the cache holds tokens, such as exact, turbo4 or mix,k=q8,v=q4; default: auto");
    Status finish_session(const char* command);
};

// -p -f --ids: at most one of them.
struct PromptFlags {
    std::string prompt;
    std::string file;
    bool from_file = false;
    bool has_prompt = false;
    bool ids = false; // the file holds token ids

    void add_prompt(OptionTable& table);
    void add_file(OptionTable& table,
                  const char* help = "the text, from a file; - is standard input");
    void add_ids_file(OptionTable& table);

private:
    Status set(const Value& value, std::string* to, bool as_ids);
};

// How the next token is drawn, and when an answer ends.
struct SamplingFlags : SeedFlag {
    SamplerOptions sampling;
    int64_t n_predict = 128; // -1: until the end token or the context is full
    bool has_n_predict = false;
    std::vector<std::string> stops;

    void add_length(OptionTable& table);
    void add_sampling(OptionTable& table);
    Status finish_sampling();
};

} // namespace ks
