// The C API over Model and Session. Structs are checked by their size, and no exception crosses the
// interface.
#include "runtime/api/handles.h"
#include "runtime/chat/json.h"

#include <cstring>

using namespace ks;

static Status read_options(const ks_model_options* o, ModelOptions& out)
{
    if (!o || o->struct_size != sizeof(ks_model_options))
        return fail(Code::usage, "ks_model_options.struct_size is %zu, expected %zu",
                    o ? o->struct_size : 0, sizeof(ks_model_options));
    if (!o->model_path) return Status(Code::usage, "ks_model_options.model_path is not set");
    if (o->context < -1 || o->n_threads < 0)
        return fail(Code::usage, "ks_model_options: context %lld or n_threads %d makes no sense",
                    (long long)o->context, o->n_threads);
    out.model_path = o->model_path;
    out.device = o->device ? o->device : "";
    out.recipe = o->recipe ? o->recipe : "auto";
    out.memory_bytes = o->memory_bytes;
    out.kv_memory_bytes = o->kv_memory_bytes;
    out.context = o->context == 0 ? -1 : o->context == -1 ? 0 : o->context;
    out.n_threads = o->n_threads;
    out.n_sessions = o->n_sessions ? o->n_sessions : 1;
    out.fixed_shares = o->fixed_shares != 0;
    out.constrained = o->constrained != 0;
    out.caller_memory = o->memory;
    out.caller_memory_bytes = o->memory_size;
    if (o->progress) {
        auto call = o->progress;
        void* user = o->user;
        out.progress = [call, user](const char* stage, uint64_t done, uint64_t total) {
            return call(user, stage, done, total) != 0;
        };
    }
    if (o->log)
        out.log = [call = o->log, user = o->user](const std::string& sentence) {
            call(user, sentence.c_str());
        };
    return {};
}

static void fill_stats(const Plan& plan, ks_stats* out)
{
    *out = ks_stats{};
    out->struct_size = sizeof *out;
    out->budget_bytes = plan.budget_bytes;
    out->plan_bytes = plan.total_bytes;
    out->smallest_bytes = plan.smallest_bytes;
    out->bytes_per_token = plan.bytes_per_token;
    out->fits = plan.fits;
    out->n_sessions = plan.n_sessions;
    out->bytes_per_session = plan.session_bytes();
    out->context = plan.context;
    out->slots = plan.slots;
    snprintf(out->device, sizeof out->device, "%s", plan.device.c_str());
    snprintf(out->recipe, sizeof out->recipe, "%s", plan.recipe_text.c_str());
}

#define TEXT_OF(major, minor, patch) #major "." #minor "." #patch
#define VERSION_TEXT(...) TEXT_OF(__VA_ARGS__) // expands its arguments first

const char* ks_version(void)
{
    return VERSION_TEXT(KS_VERSION_MAJOR, KS_VERSION_MINOR, KS_VERSION_PATCH);
}

int ks_get_device(uint32_t n, ks_device* out, char* error, size_t error_bytes)
{
    return guarded(error, error_bytes, [&]() -> Status {
        if (!out || out->struct_size != sizeof(ks_device))
            return Status(Code::usage, "ks_device.struct_size is not set");
        const std::vector<DeviceInfo> devices = list_devices();
        if (n >= devices.size())
            return fail(Code::device, "there is no device %u, the machine has %zu", n,
                        devices.size());
        const DeviceInfo& device = devices[n];
        *out = {sizeof *out, "", "", device.memory_bytes, device.free_bytes, device.unified};
        snprintf(out->id, sizeof out->id, "%s", device.id.c_str());
        snprintf(out->name, sizeof out->name, "%s", printable(device.name, 120).c_str());
        return {};
    });
}

int ks_plan(const ks_model_options* options, ks_stats* out, char* error, size_t error_bytes)
{
    return guarded(error, error_bytes, [&]() -> Status {
        ModelOptions o;
        KS_TRY(read_options(options, o));
        if (!out || out->struct_size != sizeof(ks_stats))
            return Status(Code::usage, "ks_stats.struct_size is not set");
        Result<Plan> plan = make_plan(o);
        if (!plan.ok()) return plan.status();
        fill_stats(plan.value(), out);
        return {};
    });
}

int ks_model_open(const ks_model_options* options, ks_model** out, char* error, size_t error_bytes)
{
    return guarded(error, error_bytes, [&]() -> Status {
        if (!out) return Status(Code::usage, "ks_model_open: out is NULL");
        *out = nullptr;
        ModelOptions o;
        KS_TRY(read_options(options, o));
        Result<std::shared_ptr<Model>> model = Model::open(o);
        if (!model.ok()) return model.status();
        // The end tokens of the chat template are found here: later, sessions of other threads
        // read them. A template that is wrong is reported to the calls that need it.
        Model& m = *model.value();
        const Result<ChatFormat> format =
            ChatFormat::open(m.chat_template(), m.tokenizer(), rendering_bytes(m.plan().context));
        if (format.ok())
            for (uint32_t id : format.value().end_tokens()) m.add_end_token(id);
        *out = new ks_model{std::move(model.value())};
        return {};
    });
}

void ks_model_close(ks_model* model)
{
    delete model;
}

int ks_session_open(ks_model* model, ks_session** out, char* error, size_t error_bytes)
{
    return guarded(error, error_bytes, [&]() -> Status {
        if (!out) return Status(Code::usage, "ks_session_open: out is NULL");
        *out = nullptr;
        std::unique_ptr<ks_session> made(new ks_session);
        made->model = *model;
        Result<std::unique_ptr<Session>> session = model->model->open_session();
        if (!session.ok()) return session.status();
        made->session = std::move(session.value());
        SamplerOptions greedy;
        greedy.temperature = 0;
        made->sampler.reset(
            new Sampler(greedy, model->model->config().n_vocab, made->session->sampler_memory()));
        *out = made.release();
        return {};
    });
}

void ks_session_close(ks_session* session)
{
    delete session;
}

const ks_model* ks_session_model(const ks_session* session)
{
    return &session->model;
}

const char* ks_error(const ks_session* session)
{
    return session->error;
}

void ks_get_stats(const ks_session* session, ks_stats* out)
{
    if (!out || out->struct_size != sizeof(ks_stats)) return;
    const Session& s = *session->session;
    const std::lock_guard<FairMutex> guard(s.model().mutex());
    const Ledger& ledger = s.model().ledger();
    fill_stats(s.plan(), out);
    out->n_sessions = s.model().plan().n_sessions;
    out->budget_bytes += ledger.used_bytes() - out->plan_bytes;
    out->plan_bytes = ledger.used_bytes();
    out->peak_bytes = ledger.peak_bytes();
    out->n_tokens = s.n_tokens();
    out->n_vocab = s.model().config().n_vocab;
    out->evicted = s.evicted();
    out->merged = s.merged();
}

size_t ks_tokenize(const ks_model* model, const char* text, size_t text_bytes, uint32_t flags,
                   uint32_t* ids, size_t capacity)
{
    std::vector<uint32_t> all;
    const EncodeOptions options = {!(flags & KS_TOKENIZE_NO_BOS),
                                   (flags & KS_TOKENIZE_SPECIAL) != 0};
    const int code = guarded(nullptr, 0, [&]() -> Status {
        model->model->tokenizer().encode({text, text_bytes}, options, all);
        return {};
    });
    if (code != KS_OK) return 0;
    for (size_t i = 0; i < all.size() && i < capacity; i++) ids[i] = all[i];
    return all.size();
}

size_t ks_piece(const ks_model* model, uint32_t id, char* out, size_t capacity)
{
    const Tokenizer& tokenizer = model->model->tokenizer();
    if (id >= tokenizer.n_vocab()) return 0;
    if (capacity >= tokenizer.max_piece_bytes()) return tokenizer.piece(id, out);
    size_t bytes = 0;
    const int code = guarded(nullptr, 0, [&]() -> Status {
        std::string piece(tokenizer.max_piece_bytes(), 0);
        bytes = tokenizer.piece(id, &piece[0]);
        if (capacity) memcpy(out, piece.data(), std::min(capacity, bytes));
        return {};
    });
    return code == KS_OK ? bytes : 0;
}

int ks_is_end(const ks_model* model, uint32_t id)
{
    return model->model->tokenizer().is_end(id);
}

int ks_feed(ks_session* session, const uint32_t* ids, size_t n)
{
    return guarded(session, [&] { return session->session->feed(ids, n); });
}

int ks_step(ks_model* model, ks_step_input* inputs, size_t n, char* error, size_t error_bytes)
{
    const int code = guarded(error, error_bytes, [&]() -> Status {
        StepInput all[kMaxSessions];
        if (n > kMaxSessions) return fail(Code::usage, "ks_step: %zu inputs", n);
        for (size_t i = 0; i < n; i++) {
            const ks_step_input& in = inputs[i];
            if (!in.session || (in.n && !in.ids))
                return fail(Code::usage, "ks_step: input %zu has no session or no ids", i);
            all[i] = {in.session->session.get(), in.ids, in.n};
        }
        KS_TRY(model->model->step(all, n));
        for (size_t i = 0; i < n; i++) {
            inputs[i].n_read = all[i].n_read;
            inputs[i].code = guarded(inputs[i].session, [&] { return all[i].status; });
        }
        return {};
    });
    for (size_t i = 0; code != KS_OK && i < n; i++) {
        inputs[i].n_read = 0;
        inputs[i].code = code;
    }
    return code;
}

// The chat template is parsed at the first turn.
static Status open_conversation(ks_session& session)
{
    if (session.conversation) return {};
    Result<Conversation> opened = Conversation::open(*session.session, "");
    if (!opened.ok()) return opened.status();
    session.conversation = std::make_unique<Conversation>(std::move(opened.value()));
    return {};
}

int ks_feed_turn(ks_session* session, const char* system, const char* user)
{
    return guarded(session, [&]() -> Status {
        if (!user) return Status(Code::usage, "ks_feed_turn: user is NULL");
        KS_TRY(open_conversation(*session));
        Result<PromptStep> step = session->conversation->next_turn(system, user, local_time());
        return step.ok() ? session->conversation->read(step.value()) : step.status();
    });
}

int ks_feed_chat(ks_session* session, const char* request, size_t request_bytes)
{
    return guarded(session, [&]() -> Status {
        if (!request) return Status(Code::usage, "ks_feed_chat: request is NULL");
        KS_TRY(open_conversation(*session));
        Result<ChatRequest> read = read_chat_request({request, request_bytes});
        if (!read.ok()) return read.status();
        read.value().now = local_time();
        Result<PromptStep> step = session->conversation->prompt(read.value());
        return step.ok() ? session->conversation->read(step.value()) : step.status();
    });
}

const float* ks_logits(const ks_session* session)
{
    return session->session->has_logits() ? session->session->logits() : nullptr;
}

int ks_rewind(ks_session* session, uint32_t n_tokens)
{
    return guarded(session, [&]() -> Status {
        const Session& s = *session->session;
        if (n_tokens > s.n_tokens())
            return fail(Code::usage, "ks_rewind: %u tokens, %u are there", n_tokens, s.n_tokens());
        return session->session->rewind(n_tokens);
    });
}

int ks_session_set_memory(ks_session* session, uint64_t bytes)
{
    return guarded(session, [&] { return session->session->set_memory(bytes); });
}

int ks_session_copy(ks_session* session, ks_session* from)
{
    return guarded(session, [&]() -> Status {
        KS_TRY(session->session->copy(*from->session));
        if (session->conversation) session->conversation->load();
        return {};
    });
}

int ks_save(ks_session* session, const char* path)
{
    return guarded(session, [&]() -> Status {
        if (!path) return Status(Code::usage, "ks_save: path is NULL");
        return session->session->save({session->sampler->state(), ""}, path);
    });
}

int ks_load(ks_session* session, const char* path)
{
    return guarded(session, [&]() -> Status {
        if (!path) return Status(Code::usage, "ks_load: path is NULL");
        SavedState saved;
        KS_TRY(session->session->load(path, &saved));
        session->sampler->set_state(saved.sampler);
        if (session->conversation) session->conversation->load();
        return {};
    });
}

void ks_cancel(ks_session* session)
{
    session->session->cancel();
}

void ks_clear_cancel(ks_session* session)
{
    session->session->clear_cancel();
}
