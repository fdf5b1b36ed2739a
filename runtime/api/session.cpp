#include "runtime/api/session.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ks
{

Session::Session(std::shared_ptr<Model> model, uint32_t seat, uint32_t first_part, uint32_t n_parts)
    : m_model(std::move(model)), m_seat(seat), m_first_part(first_part), m_n_parts(n_parts),
      m_plan(opened())
{
    const Plan& all = m_model->plan();
    m_logits = reinterpret_cast<float*>(m_model->host_part("logits", seat));
    m_tokens = reinterpret_cast<uint32_t*>(m_model->host_part("tokens", seat));
    const Plan whole = m_plan;
    if (all.moves_shares) fit_rungs(m_model->config(), device(), m_plan, 0, &whole);
    // A climb then takes no pages of tables, and a squeeze gives back as many as it says.
    if (m_plan.rungs.size() > 1)
        memset(m_model->host_part("cache tables", first_part), 0,
               whole.region_bytes("cache tables"));
    m_caches = place_caches(*m_model, m_plan, first_part);
    set_text(m_caches);
    m_state.place(recurrent_shape(m_model->config()), device(),
                  {m_model->m_device, all.offset_of("state", seat), device().align()},
                  m_model->host_part("snapshots", seat), all.n_snapshots);
    m_model->m_seats[seat] = this;
    std::fill_n(m_model->m_parts.begin() + first_part, n_parts, this);
}

Session::~Session()
{
    std::lock_guard<FairMutex> guard(m_model->m_mutex);
    m_model->m_ledger.add("cache", m_given_back[0]);
    m_model->m_ledger.add("cache tables", m_given_back[1]);
    m_model->m_seats[m_seat] = nullptr;
    std::fill_n(m_model->m_parts.begin() + m_first_part, m_n_parts, nullptr);
}

void* Session::constraint_memory() const
{
    if (!m_model->m_constrained) return nullptr;
    return static_cast<uint8_t*>(sampler_memory()) +
           Sampler::bytes_needed(m_model->config().n_vocab);
}

Status Session::check_input(const StepInput& in) const
{
    if (in.n > n_free_tokens())
        return fail(Code::no_fit,
                    "%zu more tokens do not fit: the context holds %u and %u are taken", in.n,
                    m_model->plan().context, m_n_tokens);
    const uint32_t n_vocab = m_model->config().n_vocab;
    for (size_t i = 0; i < in.n; i++)
        if (in.ids[i] >= n_vocab)
            return fail(Code::usage, "token %u is not in the vocabulary of %u", in.ids[i], n_vocab);
    if (m_cancelled.load()) return Status(Code::interrupted, "interrupted while reading");
    return {};
}

// A turn begins here: the place that people go back to.
void Session::begin_prompt(const StepInput& in)
{
    if (in.n > 1 && m_n_tokens && !m_in_prompt) m_state.take_snapshot(m_n_tokens);
}

// A chunk selects slots by its mean query, so the last tokens, where the question is, are read in
// small chunks.
uint32_t Session::next_chunk(size_t left) const
{
    const size_t n_last = m_plan.recipe.select->prompts ? 32 : 0;
    return uint32_t(
        std::min<size_t>(m_plan.chunk, left > n_last ? left - n_last : std::min(left, n_last / 2)));
}

Span Session::begin_step(const StepInput& in)
{
    const uint32_t n = uint32_t(in.n_read);
    m_logits_after = 0;
    m_last_step = m_model->m_n_steps;
    grow(uint64_t(m_n_tokens) + n);
    climb(rung_for(m_plan, m_rung, uint64_t(m_n_tokens) + n));
    for (uint32_t t = 0; t < n; t++)
        m_tokens[(m_n_tokens + t) % m_model->plan().context] =
            in.ids[t] | (in.template_mask && in.template_mask[t] ? kTemplateToken : 0);
    return {&own_cache(), &m_state, in.ids, n, m_n_tokens};
}

void Session::end_step(const StepInput& in)
{
    m_n_tokens += uint32_t(in.n_read);
    m_in_prompt = in.n_read < in.n;
    if (!m_in_prompt) m_logits_after = m_n_tokens;
}

Status Session::read(const uint32_t* ids, size_t n, const uint8_t* template_mask, bool is_prompt,
                     const std::function<Status(size_t, uint32_t)>& after)
{
    StepInput in{this, ids, n, template_mask};
    KS_TRY(check_input(in));
    m_in_prompt = false;
    for (size_t done = 0; done < n; done += in.n_read) {
        if (m_cancelled.load()) return Status(Code::interrupted, "interrupted while reading");
        std::lock_guard<FairMutex> guard(m_model->m_mutex);
        in = {this, ids + done, n - done, template_mask ? template_mask + done : nullptr};
        if (is_prompt && done == 0) begin_prompt(in);
        m_model->begin_step(&in, 1);
        Span* spans = m_model->m_spans.data();
        KS_TRY(m_model->m_transformer.forward(spans, 1));
        KS_TRY(after(done, spans->n));
        end_step(in);
        if (is_prompt && m_model->m_progress &&
            !m_model->m_progress("reading prompt", done + in.n_read, n))
            return Status(Code::interrupted, "interrupted while reading");
    }
    return {};
}

Status Session::feed_as(bool is_prompt, const uint32_t* ids, size_t n, const uint8_t* template_mask)
{
    return read(ids, n, template_mask, is_prompt, [&](size_t first, uint32_t part) -> Status {
        if (first + part < n) return device().sync();
        m_model->m_transformer.logits(part - 1, 1);
        return m_model->fetch_logits(0, m_logits);
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

Status Session::feed_each(const uint32_t* ids, size_t n, const std::function<void(size_t i)>& each)
{
    return read(ids, n, nullptr, n > 1, [&](size_t first, uint32_t part) -> Status {
        for (uint32_t at = 0; at < part; at += kLogitRows) {
            const uint32_t rows = std::min(kLogitRows, part - at);
            m_model->m_transformer.logits(at, rows);
            for (uint32_t r = 0; r < rows; r++) {
                KS_TRY(m_model->fetch_logits(r, m_logits));
                each(first + at + r);
            }
        }
        return {};
    });
}

void Session::clear()
{
    std::lock_guard<FairMutex> guard(m_model->m_mutex);
    m_n_tokens = m_n_climbs = 0;
    m_climb_seconds = 0;
    const uint32_t rung = rung_for(m_plan, 0, 1);
    m_caches[rung].keep_pin(cache());
    m_rung = rung;
    own_cache().clear();
    m_state.clear();
}

Status Session::pin(uint32_t n_tokens)
{
    std::lock_guard<FairMutex> guard(m_model->m_mutex);
    if (own_cache().pin(m_n_tokens, n_tokens)) return {};
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
        template_mask.push_back(m_tokens[p % m_model->plan().context] != token(p));
    }
    if (m_model->m_log && first < end)
        m_model->m_log("going back to token " + std::to_string(end) +
                       (first ? ": tokens from " + std::to_string(first) + " on are read again"
                              : ": the text is read again"));
    if (first < end) KS_TRY(feed(again.data(), again.size(), template_mask.data()));
    std::lock_guard<FairMutex> guard(m_model->m_mutex);
    if (end) m_state.take_snapshot(end);
    return {};
}

// The token to which cache and state go back; later ones are read again.
uint32_t Session::rewind_begin(uint32_t n_tokens) const
{
    const RecurrentState& state = m_state;
    return state.empty() ? n_tokens : state.newest_snapshot(n_tokens);
}

uint32_t Session::first_known() const
{
    uint32_t first = m_n_tokens;
    while (first && m_n_tokens - first < m_model->plan().context &&
           token(first - 1) != kUnknownToken)
        first--;
    return first;
}

bool Session::can_rewind(uint32_t n_tokens) const
{
    std::lock_guard<FairMutex> guard(m_model->m_mutex);
    const uint32_t from = rewind_begin(n_tokens);
    const bool kept = from == n_tokens || (from && from >= first_known());
    return n_tokens == m_n_tokens || (kept && cache().can_rewind(m_n_tokens, from));
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
    std::unique_lock<FairMutex> guard(m_model->m_mutex);
    const bool kept = (from == n_tokens || from >= first) && own_cache().rewind(m_n_tokens, from);
    if (kept) m_state.restore(from);
    guard.unlock();
    if (kept) {
        // In the ring, tokens beyond the context lie where the first ones were.
        for (uint32_t p = std::max(n_tokens, m_model->plan().context); p < m_n_tokens; p++)
            m_tokens[p % m_model->plan().context] = kUnknownToken;
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
