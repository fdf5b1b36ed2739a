#include "runtime/api/session.h"

#include "runtime/chat/constraint.h"
#include "runtime/kv/rules.h"
#include "runtime/model/gguf.h"
#include "runtime/model/rope.h"
#include "runtime/model/tensor_names.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace ks
{

// What the model header and the device determine before memory is allocated.
struct ModelHeader {
    Gguf gguf;
    Config config;
    std::vector<TensorPart> parts;
    VocabSource vocab; // views into the mapped header of `gguf`
    std::unique_ptr<Backend> backend;
    Plan plan;
};

static Status read_header(const SessionOptions& options, MemorySource* memory, ModelHeader& out)
{
    Result<Recipe> recipe = parse_recipe(options.recipe);
    if (!recipe.ok()) return recipe.status();
    Result<Gguf> gguf = Gguf::open(options.model_path);
    if (!gguf.ok()) return gguf.status();
    out.gguf = std::move(gguf.value());
    Result<Config> config = read_config(out.gguf);
    if (!config.ok()) return config.status();
    out.config = config.value();
    KS_TRY(stretch_context(recipe.value(), out.config));
    Result<std::vector<TensorPart>> parts = bind_tensors(out.gguf, out.config);
    if (!parts.ok()) return parts.status();
    out.parts = std::move(parts.value());
    Result<VocabSource> vocab = out.gguf.vocab();
    if (!vocab.ok()) return vocab.status();
    out.vocab = vocab.value();
    Result<uint64_t> tokenizer_bytes = Tokenizer::bytes_needed(out.vocab);
    if (!tokenizer_bytes.ok()) return tokenizer_bytes.status();
    Result<std::unique_ptr<Backend>> backend =
        open_backend({options.device, options.n_threads, memory});
    if (!backend.ok()) return backend.status();
    const char* kernels = getenv("KNAPSACK_CPU");
    if (kernels && backend.value()->info().backend == "cpu")
        KS_TRY(check_missing("KNAPSACK_CPU", kernels));
    out.backend =
        options.wrap ? options.wrap(std::move(backend.value())) : std::move(backend.value());
    const uint64_t sampler_bytes = Sampler::bytes_needed(out.config.n_vocab) +
                                   (options.constrained ? Constraint::bytes_needed(out.vocab) : 0);
    Result<Plan> plan = make_plan(
        out.config, out.parts, tokenizer_bytes.value(), sampler_bytes, *out.backend, recipe.value(),
        {options.memory_bytes, options.kv_memory_bytes, options.context, options.n_threads,
         options.renders || !out.vocab.chat_template.empty()});
    if (!plan.ok()) return plan.status();
    out.plan = std::move(plan.value());
    return {};
}

Result<Plan> make_plan(const SessionOptions& options)
{
    ModelHeader header;
    KS_TRY(read_header(options, nullptr, header));
    return header.plan;
}

Session::~Session()
{
    if (m_backend && m_device.data) m_backend->free(m_device);
}

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options)
{
    std::unique_ptr<Session> session(new Session);
    if (options.caller_memory)
        session->m_memory = MemorySource(options.caller_memory, options.caller_memory_bytes);
    session->m_constrained = options.constrained;
    session->m_progress = options.progress;
    session->m_log = options.log;
    ModelHeader header;
    KS_TRY(read_header(options, &session->m_memory, header));
    if (!header.plan.fits) return no_fit(header.plan);
    KS_TRY(session->open_memory(header));
    KS_TRY(session->load(header));
    if (options.log) {
        const Plan& plan = session->m_plan;
        options.log("open on " + printable(session->m_device_name, 200) + ": " +
                    human_bytes(plan.total_bytes) + " of " + human_bytes(plan.budget_bytes) +
                    ", recipe " + plan.recipe_text + ", context " + std::to_string(plan.context) +
                    ", slots " + std::to_string(plan.slots));
    }
    return session;
}

// Allocates every region of the plan: one block on the host and one on the device.
Status Session::open_memory(ModelHeader& header)
{
    m_plan = m_opened = header.plan;
    m_config = header.config;
    uint64_t host_bytes = 0, device_bytes = 0;
    std::vector<uint64_t> split_points;
    const uint64_t align = header.backend->align();
    (void)weights_bytes(header.parts, align, &split_points);
    const PlanRung& rung = m_plan.rungs[0];
    if (m_plan.rungs.size() == 1) // rungs lie across each other's tensors
        (void)Cache::bytes_needed(cache_specs(m_config.model_shape(), rung.recipe, rung.slots),
                                  rung.recipe, m_plan.chunk, rung.context(),
                                  {{}, m_plan.region_bytes("weights"), align, &split_points});
    (void)RecurrentState::bytes_needed(
        recurrent_shape(m_config),
        {{}, m_plan.region_bytes("weights") + m_plan.region_bytes("cache"), align, &split_points});
    for (const PlanRegion& region : m_plan.regions) {
        if (region.on_device && device_bytes) split_points.push_back(device_bytes);
        (region.on_device ? device_bytes : host_bytes) += region.bytes;
    }
    std::sort(split_points.begin(), split_points.end());
    KS_TRY(m_host.open(m_memory, m_ledger, host_bytes));
    // Rendering takes as many bytes of the heap, so pages of this region stay untouched.
    if (const uint64_t bytes = m_plan.region_bytes("chat template"))
        m_host.take("chat template", bytes);
    m_backend = std::move(header.backend);
    const DeviceInfo info = m_backend->info();
    m_device_name = info.id + " (" + info.name + ")";
    Result<Buffer> device = m_backend->alloc(device_bytes, split_points);
    if (!device.ok()) return device.status();
    m_device = device.value();
    for (const PlanRegion& region : m_plan.regions)
        if (region.on_device) m_ledger.add(region.name, region.bytes);
    return {};
}

RecurrentState Session::place_state(uint64_t offset)
{
    RecurrentState state;
    const uint64_t bytes = m_plan.region_bytes("snapshots");
    void* snapshots = bytes ? m_host.take("snapshots", bytes) : nullptr;
    state.place(recurrent_shape(m_config), *m_backend, {m_device, offset, m_backend->align()},
                snapshots, m_plan.n_snapshots);
    return state;
}

void* Session::constraint_memory() const
{
    if (!m_constrained) return nullptr;
    return static_cast<uint8_t*>(m_sampler_memory) + Sampler::bytes_needed(m_config.n_vocab);
}

Status Session::load(ModelHeader& header)
{
    const auto bytes = [this](const char* region) { return m_plan.region_bytes(region); };
    uint64_t tokenizer_bytes = bytes("tokenizer");
    KS_TRY(
        m_tokenizer.load(header.vocab, m_host.take("tokenizer", tokenizer_bytes), tokenizer_bytes));
    m_chat_template = std::string(header.vocab.chat_template);
    KS_TRY(take_fingerprint(header.gguf));
    header.gguf.unmap();
    m_tokens = m_host.take_array<uint32_t>("tokens", m_plan.context);
    uint8_t* step_host = m_host.take_array<uint8_t>("step inputs", bytes("step inputs"));
    m_logits = m_host.take_array<float>("logits", m_config.n_vocab);
    m_sampler_memory = m_host.take("sampler", bytes("sampler"));
    m_staging = m_host.take_array<uint8_t>("staging", bytes("staging"));

    const uint64_t weights_at = 0, state_at = bytes("weights") + bytes("cache");
    uint64_t activations_at = state_at + bytes("state");
    uint64_t scratch_at = activations_at + bytes("activations");
    m_backend->set_scratch(m_device, scratch_at,
                           scratch_shape(m_config, m_plan.recipe, m_plan.slots, m_plan.chunk));
    ThreadPool pool(m_plan.load_threads);
    pool.start();
    Loading loading{m_staging, &pool, m_plan.keeps_cached};
    loading.progress = [&](uint64_t done, uint64_t total) {
        return !m_progress || m_progress("loading weights", done, total);
    };
    Result<Weights> weights = load_weights(header.gguf, m_config, header.parts, *m_backend,
                                           m_device, weights_at, loading);
    if (!weights.ok()) return weights.status();

    m_tables = m_host.take_array<uint8_t>("cache tables", bytes("cache tables"));
    RecurrentState state = place_state(state_at);
    Placer placer{m_device, activations_at, m_backend->align()};
    Activations activations;
    activations.place(m_config, m_plan.recipe, m_plan.chunk, placer);
    StepInputs step;
    step.place(m_config, m_plan.recipe, m_plan.chunk, placer);
    m_model.open(m_config, std::move(weights.value()), place_caches(m_plan), std::move(state),
                 *m_backend, activations, step, step_host, m_plan.chunk, m_plan.context);
    clear();
    if (m_config.layer_dim)
        m_model.set_layer_rows({header.gguf.take_file(m_config.layer_table.file),
                                m_config.layer_table.offset,
                                m_host.take_array<uint8_t>("layer rows", bytes("layer rows"))});
    return m_backend->sync();
}

Status Session::check_free_tokens(size_t n) const
{
    if (n <= n_free_tokens()) return {};
    return fail(Code::no_fit, "%zu more tokens do not fit: the context holds %u and %u are taken",
                n, m_plan.context, m_n_tokens);
}

// Tokens of the prompt that are read next, of `left`. A chunk selects slots by its mean query, so
// the last tokens, where the question is, are read in small chunks.
static uint32_t next_chunk(const Recipe& recipe, size_t left, uint32_t chunk)
{
    const size_t n_last = recipe.select->prompts ? 32 : 0;
    return uint32_t(
        std::min<size_t>(chunk, left > n_last ? left - n_last : std::min(left, n_last / 2)));
}

Status Session::read(const uint32_t* ids, size_t n, const uint8_t* template_mask, bool is_prompt,
                     const std::function<Status(size_t, uint32_t)>& after)
{
    KS_TRY(check_free_tokens(n));
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= m_config.n_vocab)
            return fail(Code::usage, "token %u is not in the vocabulary of %u", ids[i],
                        m_config.n_vocab);
    // A turn begins here: the place that people go back to.
    if (is_prompt && m_n_tokens) m_model.state().take_snapshot(m_n_tokens);
    for (size_t done = 0; done < n;) {
        if (m_cancelled.load()) return Status(Code::interrupted, "interrupted while reading");
        const uint32_t part = next_chunk(m_plan.recipe, n - done, m_model.chunk());
        m_logits_after = 0;
        climb(rung_for(m_plan, m_model.rung(), uint64_t(m_n_tokens) + part));
        for (uint32_t t = 0; t < part; t++)
            m_tokens[(m_n_tokens + t) % m_plan.context] =
                ids[done + t] | (template_mask && template_mask[done + t] ? kTemplateToken : 0);
        KS_TRY(m_model.forward(ids + done, part, m_n_tokens));
        KS_TRY(after(done, part));
        m_n_tokens += part;
        done += part;
        if (done == n) m_logits_after = m_n_tokens;
        if (is_prompt && m_progress && !m_progress("reading prompt", done, n))
            return Status(Code::interrupted, "interrupted while reading");
    }
    return {};
}

Status Session::fetch_logits(uint32_t row)
{
    const Tensor& logits = m_model.logits_tensor();
    m_backend->download(m_logits, logits.buffer, logits.offset + 4ull * row * m_config.n_vocab,
                        4ull * m_config.n_vocab);
    KS_TRY(m_backend->sync());
    for (uint32_t i = 0; i < m_tokenizer.n_suppressed(); i++)
        if (uint32_t id = m_tokenizer.suppressed()[i]; id < m_config.n_vocab)
            m_logits[id] = -INFINITY;
    return {};
}

Status Session::feed_as(bool is_prompt, const uint32_t* ids, size_t n, const uint8_t* template_mask)
{
    return read(ids, n, template_mask, is_prompt, [&](size_t first, uint32_t part) -> Status {
        if (first + part < n) return m_backend->sync();
        m_model.logits(part - 1, 1);
        return fetch_logits(0);
    });
}

Status Session::feed(const uint32_t* ids, size_t n, const uint8_t* template_mask)
{
    return feed_as(n > 1, ids, n, template_mask);
}

Status Session::feed_answer(const uint32_t* ids, size_t n)
{
    return feed_as(false, ids, n, nullptr);
}

double log_sum_exp(const float* x, uint32_t n)
{
    double top = *std::max_element(x, x + n), sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += std::exp(double(x[i]) - top);
    return top + std::log(sum);
}

Status Session::feed_each(const uint32_t* ids, size_t n, const std::function<void(size_t i)>& each)
{
    return read(ids, n, nullptr, n > 1, [&](size_t first, uint32_t part) -> Status {
        for (uint32_t at = 0; at < part; at += kLogitRows) {
            uint32_t rows = std::min(kLogitRows, part - at);
            m_model.logits(at, rows);
            for (uint32_t r = 0; r < rows; r++) {
                KS_TRY(fetch_logits(r));
                each(first + at + r);
            }
        }
        return {};
    });
}

Status Session::score(const uint32_t* ids, size_t n, const uint32_t* next, size_t n_next,
                      double* logprob, uint32_t* top)
{
    const uint32_t n_vocab = m_config.n_vocab;
    return feed_each(ids, n, [&](size_t i) {
        top[i] = uint32_t(std::max_element(m_logits, m_logits + n_vocab) - m_logits);
        if (i < n_next) logprob[i] = double(m_logits[next[i]]) - log_sum_exp(m_logits, n_vocab);
    });
}

void Session::clear()
{
    m_n_tokens = m_n_climbs = 0;
    m_climb_seconds = 0;
    m_model.clear(rung_for(m_plan, 0, 1));
}

Status Session::pin(uint32_t n_tokens)
{
    if (m_model.cache().pin(m_n_tokens, n_tokens)) return {};
    return fail(
        Code::usage,
        "%u tokens cannot be pinned any more: of the %u read, some have given up their slots",
        n_tokens, m_n_tokens);
}

// Reads tokens of the text that the cache and the state have forgotten.
Status Session::read_again(uint32_t first, uint32_t end)
{
    std::vector<uint32_t> again;
    std::vector<uint8_t> template_mask;
    for (uint32_t p = first; p < end; p++) {
        again.push_back(token(p));
        template_mask.push_back(m_tokens[p % m_plan.context] != token(p));
    }
    if (m_log && first < end)
        m_log("going back to token " + std::to_string(end) +
              (first ? ": tokens from " + std::to_string(first) + " on are read again"
                     : ": the text is read again"));
    if (first < end) KS_TRY(feed(again.data(), again.size(), template_mask.data()));
    if (end) m_model.state().take_snapshot(end);
    return {};
}

// The token to which cache and state go back; later ones are read again.
uint32_t Session::rewind_begin(uint32_t n_tokens) const
{
    const RecurrentState& state = m_model.state();
    return state.empty() ? n_tokens : state.newest_snapshot(n_tokens);
}

uint32_t Session::first_known() const
{
    uint32_t first = m_n_tokens;
    while (first && m_n_tokens - first < m_plan.context && token(first - 1) != kUnknownToken)
        first--;
    return first;
}

bool Session::can_rewind(uint32_t n_tokens) const
{
    const uint32_t from = rewind_begin(n_tokens);
    const bool kept = from == n_tokens || (from && from >= first_known());
    return n_tokens == m_n_tokens || (kept && m_model.cache().can_rewind(m_n_tokens, from));
}

Status Session::rewind(uint32_t n_tokens)
{
    KS_CHECK(n_tokens <= m_n_tokens, "rewind to %u of %u", n_tokens, m_n_tokens);
    if (n_tokens == m_n_tokens) return {};
    if (n_tokens == 0) {
        clear();
        return {};
    }
    const uint32_t from = rewind_begin(n_tokens), first = first_known();
    if ((from == n_tokens || from >= first) && m_model.cache().rewind(m_n_tokens, from)) {
        m_model.state().restore(from);
        // In the ring, tokens beyond the context lie where the first ones were.
        for (uint32_t p = std::max(n_tokens, m_plan.context); p < m_n_tokens; p++)
            m_tokens[p % m_plan.context] = kUnknownToken;
        m_n_tokens = from;
        return read_again(from, n_tokens);
    }
    if (first)
        return fail(Code::no_fit,
                    "going back to token %u needs the text read again, and of its %u tokens only "
                    "the last %u are kept",
                    n_tokens, m_n_tokens, m_n_tokens - first);
    clear();
    return read_again(0, n_tokens);
}

} // namespace ks
