// tokenize: prints the token ids of standard input, one line per record.
#include "tools/json.h"
#include "tools/option_groups.h"
#include "tools/program.h"

#include "runtime/model/gguf.h"

namespace ks
{

struct TokenizeOptions {
    ModelOptions session;
    bool zero_separated = false;
    bool special = false;
    bool no_bos = false;
    bool json = false;

    void add_to(OptionTable& table)
    {
        add_model(table, &session);
        table.add_flag("-0", "standard input holds several records that end with NUL bytes",
                       &zero_separated);
        table.add_flag("--special", "parse control tokens in the text", &special);
        table.add_flag("--no-bos", "add no BOS token, even if the model wants one", &no_bos);
        add_json(table, &json);
    }
    Status finish() const { return check_model("tokenize", session); }
};

// The records of the input. A NUL at the end does not begin another record.
static std::vector<std::string_view> split_records(std::string_view text, bool zero_separated)
{
    std::vector<std::string_view> records;
    if (!zero_separated) return {text};
    while (!text.empty()) {
        size_t end = std::min(text.find('\0'), text.size());
        records.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return records;
}

static Status tokenize(const TokenizeOptions& options)
{
    Result<Gguf> gguf = Gguf::open(options.session.model_path);
    if (!gguf.ok()) return gguf.status();
    Result<VocabSource> vocab = gguf.value().vocab();
    if (!vocab.ok()) return vocab.status();
    Result<std::unique_ptr<LoadedTokenizer>> loaded = load_tokenizer(vocab.value());
    if (!loaded.ok()) return loaded.status();

    std::string text;
    KS_TRY(read_file("-", &text));
    EncodeOptions encode;
    encode.add_bos = !options.no_bos;
    encode.parse_special = options.special;
    std::vector<uint32_t> ids;
    const char* before = "";
    if (options.json) putchar('[');
    for (std::string_view record : split_records(text, options.zero_separated)) {
        ids.clear();
        loaded.value()->tokenizer.encode(record, encode, ids);
        if (options.json) printf("%s%s", before, Json(ids).text().c_str());
        before = ",";
        for (size_t i = 0; i < ids.size() && !options.json; i++) printf(i ? " %u" : "%u", ids[i]);
        if (!options.json) putchar('\n');
    }
    if (options.json) puts("]");
    return {};
}

extern const Command command_tokenize = {"tokenize", "print the token ids of standard input",
                                         "-m MODEL [options]", "Prints one line of ids per record.",
                                         start_command<TokenizeOptions, tokenize>};

} // namespace ks
