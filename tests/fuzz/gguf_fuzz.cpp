// Any bytes as a model file: refused with a sentence, or accepted with a plan that holds, a
// tokenizer and a working session.
#include "runtime/model/gguf.h"
#include "runtime/model/tensor_names.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_model.h"
#include "tests/open_session.h"

using namespace ks;

namespace
{

constexpr uint64_t kMost = 64 << 20; // maximum bytes that the library may allocate for a small file
constexpr uint64_t kBudget = 8 << 20;

bool refused(const Status& status)
{
    if (!status.ok()) check_sentence(status);
    return !status.ok();
}

bool try_tokenizer(const Gguf& gguf)
{
    const Result<VocabSource> vocab = gguf.vocab();
    if (refused(vocab.status())) return false;
    const Result<uint64_t> bytes = Tokenizer::bytes_needed(vocab.value());
    if (refused(bytes.status())) return false;
    KS_CHECK(bytes.value() < kMost + gguf.file_bytes(), "%llu bytes",
             (unsigned long long)bytes.value());
    std::vector<uint32_t> memory(bytes.value() / 4 + 1), ids;
    Tokenizer tokenizer;
    if (refused(tokenizer.load(vocab.value(), memory.data(), bytes.value()))) return false;
    tokenizer.encode("<s> abc <|im_end|>\xc3\xa9\xff", {true, true}, ids);
    tokenizer.encode(tokenizer.text(tokenizer.n_vocab() - 1), {false, false}, ids);
    for (uint32_t id : ids)
        KS_CHECK(id < tokenizer.n_vocab(), "token %u of %u", id, tokenizer.n_vocab());
    KS_CHECK(tokenizer.decode(ids.data(), ids.size(), true).size() <=
                 ids.size() * tokenizer.max_piece_bytes(),
             "%zu tokens", ids.size());
    return true;
}

bool try_plan(const Gguf& gguf, const Backend& backend)
{
    const Result<Config> config = read_config(gguf);
    if (refused(config.status())) return false;
    const Result<std::vector<TensorPart>> parts = bind_tensors(gguf, config.value());
    if (refused(parts.status())) return false;
    const uint64_t sampler = Sampler::bytes_needed(config.value().n_vocab);
    const Result<Plan> made = make_plan(config.value(), parts.value(), 4096, sampler, backend,
                                        Recipe(), {kBudget, 0, -1});
    if (refused(made.status())) return false;
    const Plan& plan = made.value();
    uint64_t sum = 0;
    for (const PlanRegion& region : plan.regions) sum += region.bytes;
    KS_CHECK(sum == plan.total_bytes, "regions of %llu bytes", (unsigned long long)sum);
    KS_CHECK(plan.fits == (plan.total_bytes <= kBudget), "%llu bytes",
             (unsigned long long)plan.total_bytes);
    if (!plan.fits) check_sentence(no_fit(plan));
    return plan.fits;
}

// A context may be as short as one token, and then be full.
void feed(Session& session, const uint32_t* ids, size_t n)
{
    const bool fits = n <= session.n_free_tokens();
    const Status status = session.feed(ids, n);
    KS_CHECK(status.code() == (fits ? Code::ok : Code::no_fit), "%zu tokens: %s", n,
             status.message().c_str());
}

void try_session(const std::string& path)
{
    ModelOptions options;
    options.model_path = path;
    options.device = "cpu";
    options.n_threads = 1;
    options.memory_bytes = kBudget + (64 << 10); // for the tokenizer
    const Result<std::unique_ptr<Session>> opened = open_session(options);
    if (refused(opened.status())) return;
    Session& session = *opened.value();
    KS_CHECK(session.model().ledger().peak_bytes() == session.plan().total_bytes, "%llu bytes",
             (unsigned long long)session.model().ledger().peak_bytes());
    const uint32_t n_vocab = session.model().config().n_vocab,
                   ids[] = {0, n_vocab - 1, n_vocab / 2};
    feed(session, ids, 3);
    feed(session, ids, 1);
    if (!session.has_logits()) return;
    SamplerOptions sampling;
    Sampler sampler(sampling, n_vocab, session.sampler_memory());
    for (int i = 0; i < 2; i++) { // logits may be anything, including NaN
        const uint32_t id = sampler.sample(session.logits());
        KS_CHECK(id < n_vocab, "token %u of %u", id, n_vocab);
        feed(session, &id, 1);
    }
    g_accepted++;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    static MemoryFile file;
    static const std::unique_ptr<Backend> backend =
        std::move(open_backend({"cpu", 1, nullptr}).value());
    const Deadline deadline;
    file.set({reinterpret_cast<const char*>(data), size});
    const Result<Gguf> opened = Gguf::open(file.path());
    if (refused(opened.status())) return 0;
    const bool encodes = try_tokenizer(opened.value());
    if (try_plan(opened.value(), *backend) && encodes) try_session(file.path());
    return 0;
}

std::vector<std::string> fuzz_seeds()
{
    std::vector<std::string> seeds = {small_file().bytes()};
    for (const char* family : {"llama", "gemma3", "qwen2", "qwen3", "phi3"})
        seeds.push_back(smallest_model(family).bytes());
    for (const char* family : {"qwen3moe", "lfm2", "qwen35", "falcon-h1", "gemma4"})
        seeds.push_back(smallest_mixed(family).bytes());
    for (uint32_t type : {39u, 40u, 41u, 42u}) // mxfp4, nvfp4, q1_0, q2_0
        seeds.push_back(smallest_model("llama", type).bytes());
    GgufBuilder pieces = smallest_model("llama", 8); // q8_0
    pieces.string("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a", "\xe2\x96\x81",
                                           "\xe2\x96\x81"
                                           "a"});
    pieces.array<float>("tokenizer.ggml.scores", GgufType::f32, {0, 0, 0, -2, -1, -3});
    pieces.array<int32_t>("tokenizer.ggml.token_type", GgufType::i32, {2, 3, 3, 1, 1, 1});
    seeds.push_back(pieces.bytes());
    GgufBuilder keys = smallest_model("llama", 6); // q5_0; sets every key that the reader knows
    keys.string("llama.rope.scaling.type", "yarn")
        .f32("llama.rope.scaling.factor", 4)
        .u32("llama.rope.scaling.original_context_length", 32);
    keys.u32("llama.rope.dimension_count", 16)
        .f32("llama.rope.freq_base", 1e4f)
        .f32("llama.rope.scaling.attn_factor", 1);
    keys.u32("llama.attention.key_length", 16)
        .u32("llama.attention.value_length", 16)
        .u32("llama.expert_count", 0);
    keys.boolean("tokenizer.ggml.add_bos_token", 1)
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2);
    keys.string("tokenizer.chat_template", "<|im_start|>")
        .u32("general.alignment", 64)
        .u32("split.count", 1);
    keys.alignment = 64;
    seeds.push_back(keys.bytes());
    return seeds;
}
