// The C API: choosing the next token.
#include "runtime/api/handles.h"

#include <cmath>

using namespace ks;

int ks_set_sampling(ks_session* session, const ks_sampling* sampling)
{
    return guarded(session, [&]() -> Status {
        if (!sampling || sampling->struct_size != sizeof(ks_sampling))
            return Status(Code::usage, "ks_sampling.struct_size is not set");
        const ks_sampling& s = *sampling;
        const auto within = [](float value, float most) { return value >= 0 && value <= most; };
        const bool fine = within(s.temperature, 1e6f) && within(s.top_p, 1) && within(s.min_p, 1) &&
                          within(s.typical_p, 1) && within(s.repeat_penalty, 1e6f) &&
                          within(std::fabs(s.presence_penalty), 1e6f) &&
                          within(std::fabs(s.frequency_penalty), 1e6f) &&
                          s.repeat_last_n <= Sampler::kMaxRepeatLastN;
        if (!fine || (s.n_biases && !s.biases))
            return Status(Code::usage, "ks_sampling: a number is beyond what knapsack.h allows");
        auto or_off = [](float value) { return value == 0 ? 1.f : value; };
        SamplerOptions o;
        o.temperature = s.temperature;
        o.top_k = s.top_k;
        o.top_p = or_off(s.top_p);
        o.min_p = s.min_p;
        o.typical_p = or_off(s.typical_p);
        o.repeat_penalty = or_off(s.repeat_penalty);
        o.presence_penalty = s.presence_penalty;
        o.frequency_penalty = s.frequency_penalty;
        o.repeat_last_n = s.repeat_last_n;
        o.seed = s.seed;
        const uint32_t n_vocab = session->session->model().config().n_vocab;
        for (size_t i = 0; i < s.n_biases; i++) {
            const ks_bias& b = s.biases[i];
            if (b.id >= n_vocab || std::isnan(b.bias))
                return fail(Code::usage, "a bias of %g for token %u of %u", double(b.bias), b.id,
                            n_vocab);
            o.logit_bias.push_back({b.id, b.bias});
        }
        session->sampler.reset(new Sampler(o, n_vocab, session->session->sampler_memory()));
        return {};
    });
}

int ks_set_grammar(ks_session* session, uint32_t kind, const char* text, size_t text_bytes)
{
    return guarded(session, [&]() -> Status {
        const Session& s = *session->session;
        if (!s.constraint_memory())
            return Status(Code::usage, "ks_set_grammar: ks_model_options.constrained is not set");
        if (!text) {
            session->constrains = false;
            return {};
        }
        if (kind != KS_GBNF && kind != KS_JSON_SCHEMA)
            return fail(Code::usage, "ks_set_grammar: %u is no kind of grammar", kind);
        const std::string_view given(text, text_bytes);
        Result<Grammar> grammar = kind == KS_GBNF ? parse_gbnf(given) : parse_json_schema(given);
        if (!grammar.ok()) return grammar.status();
        if (!session->constraint)
            session->constraint.reset(new Constraint(
                s.model().tokenizer(), s.model().config().n_vocab, s.constraint_memory()));
        session->grammar = std::move(grammar.value());
        session->constraint->begin(session->grammar);
        session->constrains = true;
        return {};
    });
}

int ks_sample(ks_session* session, uint32_t* id)
{
    return guarded(session, [&]() -> Status {
        if (!session->session->has_logits())
            return Status(Code::usage, "ks_sample: there is no next token before one is fed");
        const float* logits = session->session->logits();
        if (session->constrains) return session->constraint->sample(*session->sampler, logits, id);
        *id = session->sampler->sample(logits);
        return {};
    });
}
