// The contents of a saved session; runtime/base/state_file.h defines the container. In order:
//   fingerprint and name of the model, recipe, context, number of tokens read, number of tokens
//   before the logits; the last tokens read, as many as the context holds; the logits; the state of
//   the sampler, a note of the program; the cache (runtime/kv/cache_file.cpp); the state of
//   recurrent layers and its snapshots (runtime/kv/recurrent.cpp).
// Strings and lists are preceded by a 32-bit length.
#include "runtime/api/session.h"

#include "runtime/base/hash.h"
#include "runtime/base/state_file.h"
#include "runtime/model/gguf.h"

#include <algorithm>

namespace ks
{

// Hashes the header and some bytes of every tensor, so models differ in it without reading the
// whole file.
Status Session::take_fingerprint(const Gguf& gguf)
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

// Describes the file once for saving, checking and loading. Checking changes nothing in the
// session.
void Session::transfer(StateFile& file, SavedState& with)
{
    constexpr uint32_t kMaxText = 1 << 12;
    uint64_t fingerprint = m_fingerprint;
    std::string name = m_config.name.substr(0, kMaxText), recipe = rung().recipe_text;
    uint32_t context = m_plan.context, n_tokens = m_n_tokens, logits_after = m_logits_after;
    file.value(fingerprint);
    file.list(name, kMaxText);
    if (fingerprint != m_fingerprint)
        file.refuse(Code::invalid,
                    "was saved with another model file (its name is '" + printable(name) + "')");
    file.list(recipe, kMaxText);
    uint32_t rung = 0;
    while (rung + 1 < m_plan.rungs.size() && recipe != m_plan.rungs[rung].recipe_text) rung++;
    if (recipe != m_plan.rungs[rung].recipe_text)
        file.refuse(Code::unsupported, "was saved with another recipe: with " +
                                           printable(recipe, 160) + ", not " + m_plan.recipe_text);
    if (file.loads()) m_model.set_rung(rung);
    file.value(context);
    file.value(n_tokens);
    file.value(logits_after);
    check_context(file, context, n_tokens, rung);

    const uint32_t n_ids = std::min(n_tokens, context);
    for (uint32_t i = 0; i < n_ids && file.ok(); i++) {
        // Of a text longer than the context, only the last tokens.
        uint32_t& token = m_tokens[(n_tokens - n_ids + i) % m_plan.context];
        uint32_t id = token;
        file.value(id);
        file.require((id & ~kTemplateToken) < m_config.n_vocab,
                     "a token that is not in the vocabulary");
        if (file.loads()) token = id;
    }
    for (uint32_t i = 0; i < m_config.n_vocab && file.ok(); i++) {
        float logit = m_logits[i];
        file.value(logit);
        if (file.loads()) m_logits[i] = logit;
    }
    file.value(with.sampler.seed);
    file.value(with.sampler.n_draws);
    file.list(with.sampler.recent, Sampler::kMaxRepeatLastN);
    for (uint32_t id : with.sampler.recent)
        file.require(id < m_config.n_vocab, "a token that is not in the vocabulary");
    file.list(with.note, SavedState::kMaxNoteBytes);
    m_model.cache_of(rung).transfer(file, n_tokens);
    m_model.state().transfer(file, n_tokens);
    if (!file.loads()) return;
    m_n_tokens = n_tokens;
    m_logits_after = logits_after;
    m_n_climbs = rung;
}

// A different context is accepted if the stored state does not depend on it.
void Session::check_context(StateFile& file, uint32_t context, uint32_t n_tokens,
                            uint32_t rung) const
{
    const bool evicts = !m_plan.rungs[rung].recipe.exact();
    const uint32_t holds = evicts ? kMaxTokens : m_plan.rungs[rung].slots;
    const uint32_t mine = m_plan.context, original = m_config.rope_original_context;
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

Status Session::save(const SavedState& with, const std::string& path)
{
    SavedState copy = with;
    StateFile file(StateFile::Mode::save, path);
    transfer(file, copy);
    KS_TRY(m_backend->sync());
    return file.finish();
}

Status Session::load(const std::string& path, SavedState* with)
{
    SavedState loaded;
    const auto clear_it = [](Session* s) { s->clear(); };
    for (StateFile::Mode mode : {StateFile::Mode::check, StateFile::Mode::load}) {
        StateFile file(mode, path);
        // Loading clears the session on failure: if the file changed after the check, or if the
        // heap is exhausted.
        std::unique_ptr<Session, decltype(clear_it)> changing(file.loads() ? this : nullptr,
                                                              clear_it);
        transfer(file, loaded);
        KS_TRY(file.finish());
        KS_TRY(m_backend->sync());
        changing.release();
    }
    *with = std::move(loaded);
    return {};
}

} // namespace ks
