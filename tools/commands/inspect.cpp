// inspect: the contents of a model file. Prints what is readable even if the model is unsupported.
#include "tools/json.h"
#include "tools/option_groups.h"
#include "tools/program.h"

#include "runtime/chat/jinja.h"
#include "runtime/model/gguf.h"

#include <cstring>

namespace ks
{

struct InspectOptions {
    ModelOptions session;
    bool json = false;

    void add_to(OptionTable& table)
    {
        add_model(table, &session);
        add_json(table, &json);
    }
    Status finish() const { return check_model("inspect", session); }
};

struct Inspection {
    Gguf gguf;
    Status status; // the first fault of the model
    Result<Config> config = Status(Code::invalid, "");
    std::unique_ptr<LoadedTokenizer> tokenizer; // null: unsupported
    std::string template_text;
    Status template_status; // why `chat` refuses it
};

template <class T>
static T load(const uint8_t* at)
{
    T value;
    memcpy(&value, at, sizeof value);
    return value;
}

static std::string scalar_text(GgufType type, const uint8_t* at)
{
    char text[40] = "?";
    switch (type) {
    case GgufType::u8:
        return std::to_string(load<uint8_t>(at));
    case GgufType::i8:
        return std::to_string(load<int8_t>(at));
    case GgufType::u16:
        return std::to_string(load<uint16_t>(at));
    case GgufType::i16:
        return std::to_string(load<int16_t>(at));
    case GgufType::u32:
        return std::to_string(load<uint32_t>(at));
    case GgufType::i32:
        return std::to_string(load<int32_t>(at));
    case GgufType::u64:
        return std::to_string(load<uint64_t>(at));
    case GgufType::i64:
        return std::to_string(load<int64_t>(at));
    case GgufType::boolean:
        return *at ? "true" : "false";
    case GgufType::f32:
        snprintf(text, sizeof text, "%.9g", double(load<float>(at)));
        return text;
    case GgufType::f64:
        snprintf(text, sizeof text, "%.17g", load<double>(at));
        return text;
    default:
        return text;
    }
}

// A value as one printable line. Of an array only the first elements.
static std::string value_text(const GgufValue& value)
{
    constexpr uint64_t kShown = 4;
    if (value.type == GgufType::string)
        return printable({reinterpret_cast<const char*>(value.data), size_t(value.bytes)}, 80);
    if (value.type != GgufType::array) return scalar_text(value.type, value.data);
    std::string text;
    StringTable strings{value.data, value.count, value.bytes};
    uint64_t at = 0;
    for (uint64_t i = 0; i < std::min(kShown, value.count) && value.element != GgufType::array;
         i++) {
        if (i) text += ", ";
        if (value.element == GgufType::string)
            text += "'" + printable(strings.next(at), 20) + "'";
        else
            text +=
                scalar_text(value.element, value.data + i * gguf_type_info(value.element).bytes);
    }
    return text + (value.count > kShown ? ", ..." : "");
}

static const char* format_name(const GgufTensor& tensor)
{
    const GgmlType* type = find_ggml_type(tensor.ggml_type);
    return type ? type->name : "?";
}

static Result<Inspection> read_model(const InspectOptions& options)
{
    Result<Gguf> gguf = Gguf::open(options.session.model_path);
    if (!gguf.ok()) return gguf.status();
    Inspection in;
    in.gguf = std::move(gguf.value());
    auto note = [&](const Status& status) {
        if (in.status.ok()) in.status = status;
    };
    in.config = read_config(in.gguf);
    note(in.config.status());
    if (in.config.ok()) note(bind_tensors(in.gguf, in.config.value()).status());
    Result<VocabSource> vocab = in.gguf.vocab();
    note(vocab.status());
    if (!vocab.ok()) return in;
    Result<std::unique_ptr<LoadedTokenizer>> tokenizer = load_tokenizer(vocab.value());
    note(tokenizer.status());
    in.tokenizer = std::move(tokenizer.value());
    in.template_text = std::string(vocab.value().chat_template);
    if (!in.template_text.empty())
        in.template_status = jinja::Template::parse(in.template_text).status();
    return in;
}

static void print_model(const Config& c)
{
    printf("model       %s, %u layers, %u heads over %u KV heads of %u, dim %u, feed-forward %u\n",
           c.family->name, c.n_layers(), c.n_heads, c.n_kv_heads, c.head_dim, c.dim, c.ffn_dim);
    printf("            context %s, vocabulary %s%s\n", grouped(c.n_context).c_str(),
           grouped(c.n_vocab).c_str(), c.tied ? ", output tied to the embedding" : "");
    if (c.experts.n)
        printf("            %u experts of %u, of which a token has %u\n", c.experts.n,
               c.experts.dim, c.experts.n_used);
    uint32_t n_window = 0, n_rotating = 0, n_shared = 0, of_window = 0;
    for (const LayerConfig& layer : c.layers) {
        n_window += layer.window;
        n_rotating += layer.rope;
        n_shared += !layer.owns_kv;
        if (layer.window) of_window = layer.head_dim;
    }
    if (n_window)
        printf("            %u of %u layers see only the last %u tokens, heads of %u\n", n_window,
               c.n_layers(), c.window, of_window);
    if (n_shared)
        printf("            %u of %u layers read the keys and values of earlier ones\n", n_shared,
               c.n_layers());
    if (c.layer_dim)
        printf("            embeddings of %u values for each layer stay in the file\n",
               c.layer_dim);
    if (n_rotating < c.n_layers())
        printf("            %u of %u layers rotate queries and keys (RoPE)\n", n_rotating,
               c.n_layers());
    if (c.n_blocks > c.n_layers())
        printf("            %u more blocks predict further tokens and do not run\n",
               c.n_blocks - c.n_layers());
    printf("rope        base %g, %u of %u values, factor %g\n", c.rope.base, c.rope.n_rot,
           c.head_dim, c.rope.factor);
}

static std::string token_text(const Tokenizer& tokenizer, int64_t id)
{
    if (id < 0) return "none";
    return std::to_string(id) + " '" + printable(tokenizer.text(uint32_t(id)), 30) + "'";
}

static void print_tokenizer(const Inspection& in)
{
    if (in.tokenizer) {
        const Tokenizer& t = in.tokenizer->tokenizer;
        printf("tokenizer   %s, %s tokens, BOS %s%s, EOS %s\n", t.kind(),
               grouped(t.n_vocab()).c_str(), token_text(t, t.bos()).c_str(),
               t.adds_bos() ? " (added)" : "", token_text(t, t.eos()).c_str());
    } else {
        printf("tokenizer   not supported\n");
    }
    if (in.template_text.empty())
        printf("template    none (a base model)\n");
    else
        printf("template    Jinja, %s bytes%s%s\n", grouped(in.template_text.size()).c_str(),
               in.template_status.ok() ? "" : "; ",
               printable(in.template_status.message(), 300).c_str());
}

static void print_text(const Inspection& in)
{
    const Gguf& gguf = in.gguf;
    printf("file        %s, GGUF %u, %s (%s bytes)\n", file_name(gguf.path()).c_str(),
           gguf.version(), human_bytes(gguf.file_bytes()).c_str(),
           grouped(gguf.file_bytes()).c_str());
    std::string_view architecture = "unknown";
    (void)gguf.get_string("general.architecture", &architecture);
    if (in.config.ok())
        print_model(in.config.value());
    else
        printf("model       %s, which does not run (see the error)\n",
               printable(architecture, 40).c_str());
    print_tokenizer(in);

    printf("\nmetadata, %zu keys\n", gguf.values().size());
    for (const GgufValue& value : gguf.values()) {
        std::string type = gguf_type_info(value.type).name;
        if (value.type == GgufType::array)
            type = std::string(gguf_type_info(value.element).name) + "[" +
                   std::to_string(value.count) + "]";
        printf("  %-42s %-14s %s\n", printable(value.key, 100).c_str(), type.c_str(),
               value_text(value).c_str());
    }
    printf("\ntensors, %zu\n", gguf.tensors().size());
    for (const GgufTensor& tensor : gguf.tensors()) {
        std::string dims;
        for (uint32_t i = tensor.n_dims; i-- > 0;)
            dims += (dims.empty() ? "" : " x ") + std::to_string(tensor.dims[i]);
        printf("  %-42s %-18s %-8s %10s%s\n", printable(tensor.name, 100).c_str(), dims.c_str(),
               format_name(tensor), human_bytes(tensor.bytes).c_str(),
               tensor.known ? "" : "  (unknown format)");
    }
}

static void print_json(const Inspection& in)
{
    const Gguf& gguf = in.gguf;
    Json json = Json::object({{"file", file_name(gguf.path())},
                              {"version", gguf.version()},
                              {"file_bytes", gguf.file_bytes()}});
    if (in.config.ok()) {
        const Config& c = in.config.value();
        Json model = Json::object(
            {{"architecture", c.family->name}, {"n_layers", c.n_layers()}, {"n_heads", c.n_heads}});
        model.set({{"n_kv_heads", c.n_kv_heads},
                   {"head_dim", c.head_dim},
                   {"dim", c.dim},
                   {"ffn_dim", c.ffn_dim}});
        if (c.experts.n)
            model.set({{"n_experts", c.experts.n},
                       {"n_experts_used", c.experts.n_used},
                       {"expert_dim", c.experts.dim}});
        json.set(
            "model",
            model.set({{"context", c.n_context}, {"n_vocab", c.n_vocab}, {"window", c.window}}));
    }
    if (in.tokenizer) {
        const Tokenizer& t = in.tokenizer->tokenizer;
        json.set("tokenizer",
                 Json::object(
                     {{"kind", t.kind()}, {"n_vocab", t.n_vocab()}, {"adds_bos", t.adds_bos()}}));
    }
    json.set("template", !in.template_text.empty() && in.template_status.ok());
    Json metadata = Json::object(), tensors = Json::array();
    for (const GgufValue& value : gguf.values()) metadata.set(value.key, value_text(value));
    for (const GgufTensor& tensor : gguf.tensors()) {
        Json dims = Json::array();
        for (uint32_t i = 0; i < tensor.n_dims; i++) dims.push(tensor.dims[i]);
        Json item =
            Json::object({{"name", tensor.name}, {"format", format_name(tensor)}, {"dims", dims}});
        tensors.push(item.set({{"bytes", tensor.bytes}, {"offset", tensor.offset}}));
    }
    json.set({{"metadata", metadata}, {"tensors", tensors}}).print();
}

static Status inspect(const InspectOptions& options)
{
    Result<Inspection> in = read_model(options);
    if (!in.ok()) return in.status();
    if (options.json)
        print_json(in.value());
    else
        print_text(in.value());
    return in.value().status;
}

extern const Command command_inspect = {"inspect", "print the contents of a model file",
                                        "-m MODEL [options]", "",
                                        start_command<InspectOptions, inspect>};

} // namespace ks
