#include "runtime/api/model.h"

#include "runtime/api/session.h"
#include "runtime/base/hash.h"
#include "runtime/chat/constraint.h"
#include "runtime/kv/rules.h"
#include "runtime/model/gguf.h"
#include "runtime/model/rope.h"
#include "runtime/model/tensor_names.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

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

static Status read_header(const ModelOptions& options, MemorySource* memory, ModelHeader& out)
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
    Result<Plan> plan = make_plan(out.config, out.parts, tokenizer_bytes.value(), sampler_bytes,
                                  *out.backend, recipe.value(),
                                  {options.memory_bytes, options.kv_memory_bytes, options.context,
                                   options.n_threads, options.n_sessions, options.fixed_shares,
                                   options.renders || !out.vocab.chat_template.empty()});
    if (!plan.ok()) return plan.status();
    out.plan = std::move(plan.value());
    return {};
}

Result<Plan> make_plan(const ModelOptions& options)
{
    ModelHeader header;
    KS_TRY(read_header(options, nullptr, header));
    return header.plan;
}

Model::~Model()
{
    if (m_backend && m_device.data) m_backend->free(m_device);
}

Result<std::shared_ptr<Model>> Model::open(const ModelOptions& options)
{
    std::shared_ptr<Model> model(new Model);
    if (options.caller_memory)
        model->m_memory = MemorySource(options.caller_memory, options.caller_memory_bytes);
    model->m_constrained = options.constrained;
    model->m_progress = options.progress;
    model->m_log = options.log;
    ModelHeader header;
    KS_TRY(read_header(options, &model->m_memory, header));
    if (!header.plan.fits) return no_fit(header.plan);
    KS_TRY(model->open_memory(header));
    KS_TRY(model->load(header));
    if (options.log) {
        const Plan& plan = model->m_plan;
        options.log("open on " + printable(model->m_device_name, 200) + ": " +
                    human_bytes(plan.total_bytes) + " of " + human_bytes(plan.budget_bytes) +
                    ", recipe " + plan.recipe_text + ", context " + std::to_string(plan.context) +
                    ", slots " + std::to_string(plan.slots));
    }
    return model;
}

// Where the tensors of the device begin that a large block can be split between.
static std::vector<uint64_t> split_points(const ModelHeader& header)
{
    std::vector<uint64_t> points;
    const Plan& plan = header.plan;
    const Config& config = header.config;
    const uint64_t align = header.backend->align();
    (void)weights_bytes(header.parts, align, &points);
    const PlanRung& rung = plan.rungs[0];
    for (uint32_t i = 0; i < plan.n_sessions; i++) {
        const auto place = [&](const char* region) {
            return Placer{{}, plan.offset_of(region, i), align, &points};
        };
        if (plan.rungs.size() == 1) // rungs lie across each other's tensors
            (void)Cache::bytes_needed(cache_specs(config.model_shape(), rung.recipe, rung.slots),
                                      rung.recipe, plan.chunk, rung.context(), place("cache"));
        (void)RecurrentState::bytes_needed(recurrent_shape(config), place("state"));
    }
    for (const PlanRegion& region : plan.regions)
        for (uint32_t i = 0; region.on_device && i < (region.of_sessions ? plan.n_sessions : 1);
             i++)
            points.push_back(plan.offset_of(region.name, i));
    std::sort(points.begin(), points.end());
    return points;
}

// Allocates every region of the plan: one block on the host and one on the device.
Status Model::open_memory(ModelHeader& header)
{
    m_plan = header.plan;
    m_config = header.config;
    m_seats.resize(m_plan.n_sessions);
    m_parts.resize(m_plan.n_sessions);
    m_spans.reserve(m_plan.n_sessions);
    m_inputs.reserve(m_plan.n_sessions);
    uint64_t host_bytes = 0, device_bytes = 0;
    for (const PlanRegion& region : m_plan.regions)
        (region.on_device ? device_bytes : host_bytes) += region.bytes;
    KS_TRY(m_host.open(m_memory, m_ledger, host_bytes));
    // The chat template is rendered in as many bytes of the heap, so its region stays untouched.
    for (const PlanRegion& region : m_plan.regions)
        m_regions.push_back(
            region.on_device ? nullptr : m_host.take_array<uint8_t>(region.name, region.bytes));
    const std::vector<uint64_t> points = split_points(header);
    m_backend = std::move(header.backend);
    const DeviceInfo info = m_backend->info();
    m_device_name = info.id + " (" + info.name + ")";
    Result<Buffer> device = m_backend->alloc(device_bytes, points);
    if (!device.ok()) return device.status();
    m_device = device.value();
    for (const PlanRegion& region : m_plan.regions)
        if (region.on_device) m_ledger.add(region.name, region.bytes);
    return {};
}

// A part of a region: that of a seat, or of the caches.
uint8_t* Model::host_part(const char* name, uint32_t part) const
{
    for (size_t i = 0; i < m_regions.size(); i++)
        if (strcmp(m_plan.regions[i].name, name) == 0)
            return m_regions[i] + part * m_plan.part_bytes(name);
    return nullptr;
}

Status Model::load(ModelHeader& header)
{
    const uint64_t tokenizer_bytes = m_plan.region_bytes("tokenizer");
    KS_TRY(m_tokenizer.load(header.vocab, host_part("tokenizer", 0), tokenizer_bytes));
    m_chat_template = std::string(header.vocab.chat_template);
    KS_TRY(take_fingerprint(header.gguf));
    header.gguf.unmap();
    const uint32_t rows = m_plan.rows;
    const uint64_t activations_at = m_plan.offset_of("activations");
    m_backend->set_scratch(m_device, m_plan.offset_of("scratch"),
                           scratch_shape(m_config, m_plan.recipe,
                                         m_plan.moves_shares ? m_plan.most_slots : m_plan.slots,
                                         rows));
    ThreadPool pool(m_plan.load_threads);
    pool.start();
    Loading loading{host_part("staging", 0), &pool, m_plan.keeps_cached};
    loading.progress = [&](uint64_t done, uint64_t total) {
        return !m_progress || m_progress("loading weights", done, total);
    };
    Result<Weights> weights =
        load_weights(header.gguf, m_config, header.parts, *m_backend, m_device, 0, loading);
    if (!weights.ok()) return weights.status();

    Placer placer{m_device, activations_at, m_backend->align()};
    Activations activations;
    activations.place(m_config, m_plan.recipe, rows, placer, logit_rows(m_plan.n_sessions));
    StepInputs step;
    step.place(m_config, m_plan.recipe, rows, placer);
    const std::vector<Cache> caches = Session::place_caches(*this, m_plan, 0);
    m_transformer.open(m_config, std::move(weights.value()), caches[0], *m_backend, activations,
                       step, host_part("step inputs", 0), rows, m_plan.context);
    if (m_config.layer_dim)
        m_transformer.set_layer_rows({header.gguf.take_file(m_config.layer_table.file),
                                      m_config.layer_table.offset, host_part("layer rows", 0)});
    KS_TRY(m_backend->sync());
    give_back_staging();
    return {};
}

void Model::give_back_staging()
{
    m_memory.give_back(host_part("staging", 0), m_plan.region_bytes("staging"));
}

// Hashes the header and some bytes of every tensor, so models differ in it without reading the
// whole file.
Status Model::take_fingerprint(const Gguf& gguf)
{
    const uint64_t file_bytes = gguf.file_bytes();
    uint64_t hash = fnv_bytes(&file_bytes, 8);
    for (const GgufValue& value : gguf.values()) {
        hash = fnv_bytes(value.key.data(), value.key.size(), hash);
        // The first part of a vocabulary is enough.
        hash = fnv_bytes(value.data, std::min<uint64_t>(value.bytes, 1 << 16), hash);
    }
    for (const GgufTensor& tensor : gguf.tensors()) {
        const uint64_t shape[] = {tensor.dims[0],   tensor.dims[1], tensor.dims[2], tensor.dims[3],
                                  tensor.ggml_type, tensor.file,    tensor.offset,  tensor.bytes};
        hash =
            fnv_bytes(shape, sizeof shape, fnv_bytes(tensor.name.data(), tensor.name.size(), hash));
        uint8_t weights[64];
        const uint64_t n = std::min<uint64_t>(tensor.bytes, sizeof weights);
        KS_TRY(gguf.read(tensor, (tensor.bytes - n) / 2, weights, n));
        hash = fnv_bytes(weights, n, hash);
    }
    m_fingerprint = hash;
    return {};
}

// The parts of the caches that a new session gets.
Result<Model::Parts> Model::take_parts(uint32_t seat)
{
    if (!m_plan.moves_shares) return Parts{seat, 1};
    Parts most{0, 0};
    for (uint32_t first = 0, end; first < m_parts.size(); first = end + 1) {
        for (end = first; end < m_parts.size() && !m_parts[end];) end++;
        if (end - first > most.n) most = {first, end - first};
    }
    if (most.n) return most;
    Session* victim = nullptr;
    for (Session* s : m_seats)
        if (s && s->m_n_parts > 1 &&
            (!victim || s->m_last_step < victim->m_last_step ||
             (s->m_last_step == victim->m_last_step && s->m_n_parts > victim->m_n_parts)))
            victim = s;
    KS_CHECK(victim, "no part of %zu is free", m_parts.size());
    const uint32_t n = victim->m_n_parts, kept = (n + 1) / 2;
    KS_TRY(victim->refit(victim->m_first_part, kept, victim->m_limit));
    return Parts{victim->m_first_part + kept, n - kept};
}

Result<std::unique_ptr<Session>> Model::open_session()
{
    std::lock_guard<FairMutex> guard(m_mutex);
    const auto free = std::find(m_seats.begin(), m_seats.end(), nullptr);
    if (free == m_seats.end())
        return fail(Code::no_fit, "%u sessions are open, as many as were planned",
                    m_plan.n_sessions);
    const uint32_t seat = uint32_t(free - m_seats.begin());
    const Result<Parts> parts = take_parts(seat);
    if (!parts.ok()) return parts.status();
    std::unique_ptr<Session> session(
        new Session(shared_from_this(), seat, parts.value().first, parts.value().n));
    session->clear();
    KS_TRY(m_backend->sync());
    return session;
}

// Lists the spans of a step: single tokens first, so that the rows that need logits are adjacent.
void Model::begin_step(StepInput* inputs, size_t n_inputs)
{
    m_spans.clear();
    m_inputs.clear();
    m_n_steps++;
    uint32_t next = 0; // row
    for (size_t i = 0; i < n_inputs; i++) inputs[i].n_read = 0;
    for (const bool single : {true, false}) {
        for (size_t i = 0; i < n_inputs; i++) {
            StepInput& in = inputs[i];
            if ((in.n == 1) != single || in.n == 0 || !in.status.ok()) continue;
            const uint32_t n = in.session->next_chunk(in.n);
            if (next + n > m_transformer.rows()) continue;
            next = m_transformer.row_of_next(next, n);
            in.n_read = n;
            m_inputs.push_back(&in);
            m_spans.push_back(in.session->begin_step(in));
        }
    }
}

void Model::download_logits(uint32_t row, float* out)
{
    const Tensor& logits = m_transformer.logits_tensor();
    m_backend->download(out, logits.buffer, logits.offset + 4ull * row * m_config.n_vocab,
                        4ull * m_config.n_vocab);
}

void Model::suppress(float* logits) const
{
    for (uint32_t i = 0; i < m_tokenizer.n_suppressed(); i++)
        if (uint32_t id = m_tokenizer.suppressed()[i]; id < m_config.n_vocab)
            logits[id] = -INFINITY;
}

Status Model::fetch_logits(uint32_t row, float* out)
{
    download_logits(row, out);
    KS_TRY(m_backend->sync());
    suppress(out);
    return {};
}

// Fetches logits of the texts that have read all of their tokens. Waits for the device.
Status Model::end_step()
{
    const auto row = [&](size_t i) { return m_spans[i].first + m_spans[i].n - 1; };
    const auto ends = [&](size_t i) { return m_inputs[i]->n_read == m_inputs[i]->n; };
    for (size_t i = 0, n = 1; i < m_spans.size(); i += n, n = 1) {
        if (!ends(i)) continue;
        while (n < m_transformer.logits_tensor().rows && i + n < m_spans.size() && ends(i + n) &&
               row(i + n) == row(i) + n)
            n++;
        m_transformer.logits(row(i), uint32_t(n));
        for (size_t k = 0; k < n; k++)
            download_logits(uint32_t(k), m_inputs[i + k]->session->m_logits);
    }
    KS_TRY(m_backend->sync());
    for (size_t i = 0; i < m_inputs.size(); i++)
        if (ends(i)) suppress(m_inputs[i]->session->m_logits);
    return {};
}

Status Model::step(StepInput* inputs, size_t n_inputs)
{
    std::lock_guard<FairMutex> guard(m_mutex);
    for (size_t i = 0; i < n_inputs; i++) {
        StepInput& in = inputs[i];
        for (size_t k = 0; k < i; k++)
            if (inputs[k].session == in.session)
                return fail(Code::usage, "a step reads a text twice, in inputs %zu and %zu", k, i);
        if (in.session->m_model.get() != this)
            return fail(Code::usage, "input %zu of a step has a session of another model", i);
        in.status = in.session->check_input(in);
    }
    for (size_t i = 0; i < n_inputs; i++)
        if (inputs[i].status.ok()) inputs[i].session->begin_prompt(inputs[i]);
    begin_step(inputs, n_inputs);
    if (m_spans.empty()) return {};
    KS_TRY(m_transformer.forward(m_spans.data(), uint32_t(m_spans.size())));
    KS_TRY(end_step());
    for (StepInput* in : m_inputs) in->session->end_step(*in);
    return {};
}

} // namespace ks
