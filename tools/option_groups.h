// Options shared by several commands. The options of a command inherit the groups that it needs.
#pragma once

#include "tools/options.h"

#include "runtime/api/session.h"
#include "runtime/chat/grammar.h"
#include "runtime/chat/value.h"

namespace ks
{

void add_json(OptionTable& table, bool* out);
void add_model(OptionTable& table, ModelOptions* out);
void add_device(OptionTable& table, ModelOptions* out);
void add_threads(OptionTable& table, ModelOptions* out);
Status check_model(const char* command, const ModelOptions& session); // fails without a model

// -s
struct SeedFlag {
    uint64_t seed;
    bool has_seed = false;

    SeedFlag(); // a random seed
    void add_seed(OptionTable& table,
                  const char* help = "seed of the random draws; -1: a new seed each time; default: "
                                     "the seed of the saved session, else -1");
};

// -m --device --memory --kv-memory -c --kv -t, and the options that name a part of the recipe
struct SessionFlags {
    ModelOptions session;
    std::string recipe_end; // from -ctk, -ctv and --rope-...

    void add_session(OptionTable& table,
                     const char* kv_help = "how the KV cache stores tokens, such as exact, turbo4 "
                                           "or mix,k=q8,v=q4; default: auto");
    Status finish_session(const char* command);
};

// -p -f --ids; at most one may be given.
struct PromptFlags {
    std::string prompt;
    std::string file;
    bool from_file = false;
    bool has_prompt = false;
    bool ids = false; // the file holds token ids

    void add_prompt(OptionTable& table);
    void add_file(OptionTable& table,
                  const char* help = "read the text from a file; -: standard input");
    void add_ids_file(OptionTable& table);

private:
    Status set(const Value& value, std::string* to, bool as_ids);
};

// --chat-template --chat-template-kwargs; add_template(): the first alone
struct ChatTemplateFlags {
    std::string chosen; // the name of a template, or the text of a file; "": the model's
    jinja::Value values = jinja::Value::dict();
    jinja::Value tools = jinja::Value::none();

    void add_template(OptionTable& table);
    void add_to(OptionTable& table);
    void add_tools(OptionTable& table); // --tools
    // Fails if no template is chosen and that of the model is missing or wrong. Reads only the
    // header of the file, so that a base model is refused before its weights are read.
    Status check_model(const std::string& path) const;
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

// --grammar --json-schema; at most one may be given.
struct GrammarFlags {
    Grammar grammar; // of a constrained answer

    void add_grammar(OptionTable& table);
    Status finish_grammar(ModelOptions& session);

private:
    std::string m_grammar_file, m_schema_file;
};

} // namespace ks
