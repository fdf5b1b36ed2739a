#include "tools/serve/answers.h"

namespace ks::serve
{

Json timings_json(const AnswerState& state)
{
    const double n_read = state.n_prompt - state.n_cached,
                 n_made = state.ids.empty() ? 0 : double(state.ids.size() - 1); // after the first
    const auto ratio = [](double a, double b) { return b > 0 ? a / b : 0; };
    Json json = Json::object({{"cache_n", state.n_cached},
                              {"prompt_n", state.n_prompt - state.n_cached},
                              {"prompt_ms", state.prompt_ms},
                              {"prompt_per_token_ms", ratio(state.prompt_ms, n_read)},
                              {"prompt_per_second", ratio(n_read * 1e3, state.prompt_ms)}});
    json.set({{"predicted_n", uint64_t(state.ids.size())},
              {"predicted_ms", state.answer_ms},
              {"predicted_per_token_ms", ratio(state.answer_ms, n_made)},
              {"predicted_per_second", ratio(n_made * 1e3, state.answer_ms)}});
    return json;
}

Json knapsack_json(const AnswerState& state)
{
    return Json::object({{"seat", state.seat},
                         {"conversation", state.conversation},
                         {"slots", state.slots},
                         {"text_tokens", state.n_text},
                         {"forgotten", state.forgotten},
                         {"rung", state.rung},
                         {"climbs", state.n_climbs},
                         {"from", state.from},
                         {"seed", state.seed},
                         {"held", Json(state.held)}});
}

Json usage_json(const AnswerState& state)
{
    const uint64_t n_made = state.ids.size();
    return Json::object(
        {{"prompt_tokens", state.n_prompt},
         {"completion_tokens", n_made},
         {"total_tokens", state.n_prompt + n_made},
         {"prompt_tokens_details", Json::object({{"cached_tokens", state.n_cached}})},
         {"completion_tokens_details", Json::object({{"reasoning_tokens", 0}})}});
}

static Json choice_json(const TokenReport::Choice& choice)
{
    std::vector<uint32_t> bytes;
    for (char c : choice.bytes) bytes.push_back(uint8_t(c));
    return Json::object({{"id", choice.id},
                         {"token", choice.bytes},
                         {"bytes", Json(bytes)},
                         {"logprob", double(choice.logprob)}});
}

Json logprobs_json(const TokenReports& tokens)
{
    Json list = Json::array();
    for (const TokenReport& token : tokens) {
        Json top = Json::array();
        for (const TokenReport::Choice& choice : token.top) top.push(choice_json(choice));
        list.push(choice_json(token.chosen).set("top_logprobs", top));
    }
    return list;
}

// A float with the digits that it was given with.
static double short_real(float value)
{
    char text[32];
    snprintf(text, sizeof text, "%.7g", double(value));
    return strtod(text, nullptr);
}

Json sampling_json(const SamplerOptions& sampling)
{
    Json json = Json::object({{"seed", sampling.seed},
                              {"temperature", short_real(sampling.temperature)},
                              {"top_k", sampling.top_k},
                              {"top_p", short_real(sampling.top_p)},
                              {"min_p", short_real(sampling.min_p)},
                              {"typical_p", short_real(sampling.typical_p)}});
    return json.set({{"repeat_last_n", sampling.repeat_last_n},
                     {"repeat_penalty", short_real(sampling.repeat_penalty)},
                     {"presence_penalty", short_real(sampling.presence_penalty)},
                     {"frequency_penalty", short_real(sampling.frequency_penalty)}});
}

Json progress_json(const AnswerState& state)
{
    return Json::object({{"total", state.n_prompt},
                         {"cache", state.n_cached},
                         {"processed", state.n_read},
                         {"time_ms", uint64_t(state.prompt_ms)}});
}

const char* finish_reason(const AnswerState& state)
{
    return state.stop == StopReason::length  ? "length"
           : state.stop == StopReason::calls ? "tool_calls"
                                             : "stop";
}

void EventWriter::begin(const AnswerState& state)
{
    if (!state.conversation.empty())
        m_exchange->add_header("X-Conversation-Id", printable(state.conversation, 64));
    if (!m_streams) return;
    m_exchange->begin_stream("text/event-stream");
    m_begun = true;
    first_events(state);
}

void EventWriter::send(const Json& data, const char* name)
{
    m_exchange->write((name ? "event: " + std::string(name) + "\n" : "") + "data: " + data.text() +
                      "\n\n");
}

void EventWriter::fail(const HttpError& error)
{
    if (!m_begun) return m_exchange->fail(error);
    m_exchange->write("data: {\"error\":" + error.json() + "}\n\n");
    m_exchange->finish(false);
}

void WholeAnswer::add(const AnswerEvent& event, const TokenReports& more)
{
    tokens.insert(tokens.end(), more.begin(), more.end());
    if (event.kind == AnswerEvent::Kind::content) content += event.text;
    if (event.kind == AnswerEvent::Kind::reasoning) reasoning += event.text;
    if (event.kind != AnswerEvent::Kind::call) return;
    n_calls++;
    calls.push(Json::object(
        {{"id", event.id},
         {"type", "function"},
         {"function", Json::object({{"name", event.name}, {"arguments", event.text}})}}));
}

} // namespace ks::serve
