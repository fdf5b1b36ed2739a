// tokenize: standard input as token ids, one line per record.
#include "tools/json.h"
#include "tools/program.h"

#include "runtime/model/gguf.h"

namespace ks
{

// The records of the input; a NUL at its very end begins no further one.
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

Status cmd_tokenize(const Options& options)
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
    Json json;
    json.open('[');
    for (std::string_view record : split_records(text, options.zero_separated)) {
        ids.clear();
        loaded.value()->tokenizer.encode(record, encode, ids);
        json.open('[');
        for (size_t i = 0; i < ids.size(); i++) {
            if (options.json)
                json.value(ids[i]);
            else
                printf(i ? " %u" : "%u", ids[i]);
        }
        json.close(']');
        if (!options.json) putchar('\n');
    }
    if (options.json) json.close(']').print();
    return {};
}

} // namespace ks
