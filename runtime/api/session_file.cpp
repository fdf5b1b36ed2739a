// The contents of a saved session; runtime/base/state_file.h defines the container. In order:
//   fingerprint and name of the model, recipe, context, number of tokens read, number of tokens
//   before the logits; the last tokens read, as many as the context holds; the logits; the state of
//   the sampler, a note of the program; the cache (runtime/kv/cache_file.cpp); the state of
//   recurrent layers and its snapshots (runtime/kv/recurrent.cpp).
// Strings and lists are preceded by a 32-bit length.
#include "runtime/api/session.h"

#include "runtime/base/state_file.h"

#include <algorithm>
#include <cstdlib>

namespace ks
{

// The rung of the ladder that a saved cache has.
struct Session::SavedRung {
    uint32_t rung = 0;
    bool same = true; // its layout is that of this session's rung; if not, the following is used
    bool read_again = false; // the layout does not fit the budget, but the text does
    Recipe recipe;
    uint32_t slots = 0, n_pinned = 0;
    Plan plan; // of this session, with the rung in force
    Cache cache;
};

// Whether the layout of a cache depends on its number of slots before they are full.
static bool has_slots(const Recipe& recipe)
{
    return recipe.codes() || !recipe.exact();
}

static std::string text_with_slots(const PlanRung& rung)
{
    Recipe recipe = rung.recipe;
    recipe.slots = rung.slots;
    return recipe_text(recipe);
}

// Takes the number of slots out of the text of a recipe: fewer than a person may ask for are
// possible under `auto`. 0: it has none.
static uint32_t take_slots(std::string& text)
{
    const std::string key = ",slots=";
    const size_t at = text.find(key), end = text.find(',', at + 1);
    if (at == text.npos) return 0;
    const unsigned long long n = strtoull(text.c_str() + at + key.size(), nullptr, 10);
    text.erase(at, end == text.npos ? end : end - at);
    return uint32_t(std::min<unsigned long long>(n, kMaxTokens));
}

// Finds the rung of a saved recipe, whose windows depend on the context as well. Returns false if
// this session has none like it.
bool Session::find_rung(const std::string& text, uint32_t context, SavedRung& saved) const
{
    uint32_t& i = saved.rung;
    for (i = 0; i < m_plan.rungs.size(); i++) {
        const PlanRung& rung = m_plan.rungs[i];
        const bool same = rung.recipe.exact() || context == m_plan.context;
        if (rung.slots && (text == rung.recipe_text || (same && text == text_with_slots(rung))))
            return true;
    }
    std::string without_slots = text;
    saved.slots = take_slots(without_slots);
    Result<Recipe> recipe = parse_recipe(without_slots);
    if (!recipe.ok()) return false;
    saved.same = false;
    saved.recipe = recipe.value();
    saved.recipe.context = context;
    for (i = 0; i < m_plan.ladder.size(); i++) {
        Recipe whole = m_plan.ladder[i], uniform = whole;
        whole.retain = find_retain("all");
        uniform.split = Split::uniform;
        for (const Recipe& r : {m_plan.ladder[i], whole, uniform})
            if (recipe_text(saved.recipe) == recipe_text(r)) return true;
    }
    return false;
}

// The bytes by which a climb may make the rows of a saved cache longer: with few slots, first
// tokens are coded that a rung holds plain, and its planes are as small as their alignment.
uint64_t Session::longer_by(const std::vector<CacheLayerSpec>& specs, const SavedRung& saved,
                            uint64_t align)
{
    uint64_t bytes = 0;
    if (!has_slots(saved.recipe) || saved.slots >= kLeastOfRung) return 0;
    for (const CacheLayerSpec& s : specs)
        bytes += 2 * (align + 2ull * saved.recipe.sink * s.n_kv_heads * s.head_dim);
    return bytes;
}

// Lays out a saved cache with other slots than this session's, over the session's own.
void Session::place_saved(StateFile& file, SavedRung& saved, uint32_t n_known, uint32_t n_tokens)
{
    const bool ring = !has_slots(saved.recipe);
    if (ring) saved.slots = std::max(n_tokens, 1u); // if it is not full, it fits any other
    file.require(ring || (saved.slots >= kLeastSlots && saved.slots <= file.left() / 8),
                 "a number of slots that no cache has");
    if (!file.ok()) return;
    const Config& config = m_model->config();
    const uint64_t align = device().align(), room = m_plan.region_bytes("cache");
    const std::vector<CacheLayerSpec> specs =
        cache_specs(config.model_shape(), saved.recipe, saved.slots);
    const CacheBytes bytes =
        Cache::bytes_needed(specs, saved.recipe, m_plan.chunk, ring ? saved.slots : 0,
                            {{}, 0, align}, m_plan.shares_workspace);
    // At the end of the region, so that rows which a climb makes longer have room before it.
    CacheMemory memory = cache_memory(*m_model, m_first_part);
    const uint64_t gap = (room - std::min(room, bytes.device)) / align * align;
    memory.at += gap;
    saved.cache.place(specs, saved.recipe, m_plan.chunk, ring ? saved.slots : 0, device(), memory);
    saved.cache.set_text(m_tokens, m_plan.context, config.n_context);
    saved.plan = m_plan;
    const bool climbs = m_plan.rungs.size() > 1;
    const Plan whole = opened();
    if (climbs) fit_rungs(config, device(), saved.plan, saved.rung, &whole);
    saved.read_again = !climbs || bytes.device > room || gap < longer_by(specs, saved, align) ||
                       bytes.host > m_plan.region_bytes("cache tables") ||
                       bytes.workspace > m_plan.region_bytes("workspace") ||
                       bytes.host_workspace > m_plan.region_bytes("eviction") ||
                       (saved.recipe.exact() && n_tokens > saved.plan.slots);
    if (saved.read_again && n_tokens > n_known)
        file.refuse(Code::no_fit,
                    "was saved with " + std::to_string(saved.slots) +
                        " slots per head, more than this session's budget holds, and of its " +
                        std::to_string(n_tokens) + " tokens only the last " +
                        std::to_string(n_known) + " are known, so they cannot be read again");
}

// The last tokens read, and the logits. Returns how many of the tokens this session then knows.
uint32_t Session::transfer_text(StateFile& file, uint32_t context, uint32_t n_tokens)
{
    const uint32_t n_ids = std::min(n_tokens, context);
    uint32_t n_known = 0;
    for (uint32_t i = 0; i < n_ids && file.ok(); i++) {
        // Of a text longer than the context, only the last tokens.
        uint32_t& token = m_tokens[(n_tokens - n_ids + i) % m_plan.context];
        uint32_t id = token;
        file.value(id);
        file.require((id & ~kTemplateToken) < m_model->config().n_vocab || id == kUnknownToken,
                     "a token that is not in the vocabulary");
        n_known = id == kUnknownToken ? 0 : n_known + 1;
        if (file.loads()) token = id;
    }
    for (uint32_t i = 0; i < m_model->config().n_vocab && file.ok(); i++) {
        float logit = m_logits[i];
        file.value(logit);
        if (file.loads()) m_logits[i] = logit;
    }
    return std::min(n_known, m_plan.context);
}

// Describes the file once for saving, checking and loading. Checking changes nothing in the
// session.
void Session::transfer(StateFile& file, SavedState& with, SavedRung& saved)
{
    constexpr uint32_t kMaxText = 1 << 12;
    uint64_t fingerprint = m_model->m_fingerprint;
    std::string name = m_model->config().name.substr(0, kMaxText), recipe = rung().recipe_text;
    if (!m_plan.ladder.empty() && has_slots(rung().recipe)) recipe = text_with_slots(rung());
    uint32_t context = m_plan.context, n_tokens = m_n_tokens, logits_after = m_logits_after;
    file.value(fingerprint);
    file.list(name, kMaxText);
    if (fingerprint != m_model->m_fingerprint)
        file.refuse(Code::invalid,
                    "was saved with another model file (its name is '" + printable(name) + "')");
    file.list(recipe, kMaxText);
    if (!file.ok()) return;
    file.value(context);
    if (!find_rung(recipe, context, saved))
        return file.refuse(Code::unsupported, "was saved with another recipe: with " +
                                                  printable(recipe, 160) + ", not " +
                                                  m_plan.recipe_text);
    file.value(n_tokens);
    file.value(logits_after);
    const PlanRung& first = m_plan.rungs[0];
    if (m_plan.rungs.size() > 1 && saved.same && saved.rung == 0 && n_tokens > first.slots) {
        saved.same = false;
        saved.recipe = first.recipe;
    }
    check_context(file, context, n_tokens, saved);

    const uint32_t n_known = transfer_text(file, context, n_tokens);
    file.value(with.sampler.seed);
    file.value(with.sampler.n_draws);
    file.list(with.sampler.recent, Sampler::kMaxRepeatLastN);
    for (uint32_t id : with.sampler.recent)
        file.require(id < m_model->config().n_vocab, "a token that is not in the vocabulary");
    file.list(with.note, SavedState::kMaxNoteBytes);
    if (!file.ok()) return;
    if (!saved.same) place_saved(file, saved, n_known, n_tokens);
    if (file.loads() && saved.same) m_rung = saved.rung;
    if (file.loads()) m_n_tokens = n_tokens;
    if (file.loads() && saved.read_again) {
        uint64_t lost[2] = {}; // evicted and merged
        file.value(lost);
        file.value(saved.n_pinned);
        return file.skip();
    }
    (saved.same ? m_caches[saved.rung] : saved.cache).transfer(file, n_tokens);
    m_state.transfer(file, n_tokens);
    if (!file.loads()) return;
    m_logits_after = logits_after;
    m_in_prompt = false;
    m_n_climbs = saved.rung;
    m_climb_seconds = 0;
}

// Brings a loaded cache to a rung of this session.
Status Session::settle(SavedRung& saved)
{
    const uint32_t n = m_n_tokens, last = uint32_t(saved.plan.rungs.size() - 1);
    if (saved.same) return {};
    if (saved.read_again) {
        clear();
        KS_TRY(pin(saved.n_pinned));
        return read_again(0, n);
    }
    climb(saved.cache.evicted() ? last : rung_for(saved.plan, saved.rung, std::max(1u, n)),
          &saved.plan, m_first_part, &saved.cache);
    m_n_climbs = m_rung;
    account();
    return device().sync();
}

// A different context is accepted if the stored state does not depend on it.
void Session::check_context(StateFile& file, uint32_t context, uint32_t n_tokens,
                            const SavedRung& saved) const
{
    const PlanRung& rung = m_plan.rungs[saved.same ? saved.rung : 0];
    const bool evicts = !(saved.same ? rung.recipe : saved.recipe).exact();
    const uint32_t holds = evicts || !saved.same ? kMaxTokens : rung.slots;
    const uint32_t mine = m_plan.context, original = m_model->config().rope_original_context;
    const std::string contexts = "was saved with a context of " + std::to_string(context) +
                                 " tokens, this session's has " + std::to_string(mine);
    if (n_tokens > holds)
        file.refuse(Code::no_fit, contexts + ", its cache holds " + std::to_string(holds) +
                                      " tokens and the file has " + std::to_string(n_tokens));
    if ((context > original) != (mine > original))
        file.refuse(Code::unsupported, contexts + ", for which RoPE has other frequencies");
    if (n_tokens > context && mine > context)
        file.refuse(Code::unsupported, contexts + ", of which it does not have all: one of " +
                                           std::to_string(context) + " would do");
    file.require(n_tokens <= (evicts ? kMaxTokens : context), "more tokens than it can have read");
}

Status Session::save(const SavedState& with, const std::string& path, bool sync)
{
    std::lock_guard<FairMutex> guard(m_model->m_mutex);
    SavedState copy = with;
    SavedRung rung;
    StateFile file(StateFile::Mode::save, path);
    transfer(file, copy, rung);
    KS_TRY(device().sync());
    return file.finish(sync);
}

Status Session::load(const std::string& path, SavedState* with)
{
    std::lock_guard<FairMutex> guard(m_model->m_mutex);
    SavedState loaded;
    const auto clear_it = [](Session* s) { s->clear(); };
    for (StateFile::Mode mode : {StateFile::Mode::check, StateFile::Mode::load}) {
        StateFile file(mode, path);
        SavedRung saved;
        // Loading clears the session on failure: if the file changed after the check, or if the
        // heap is exhausted.
        std::unique_ptr<Session, decltype(clear_it)> changing(file.loads() ? this : nullptr,
                                                              clear_it);
        transfer(file, loaded, saved);
        KS_TRY(file.finish());
        KS_TRY(device().sync());
        if (file.loads()) KS_TRY(settle(saved));
        changing.release();
    }
    *with = std::move(loaded);
    return {};
}

} // namespace ks
