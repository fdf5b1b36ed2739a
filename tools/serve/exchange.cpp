#include "tools/serve/exchange.h"

#include "tools/json.h"

namespace ks::serve
{

std::string HttpError::json() const
{
    Json error = Json::object({{"code", status},
                               {"message", message},
                               {"type", type},
                               {"param", param.empty() ? Json() : Json(param)},
                               {"reason", reason}});
    if (n_ctx) error.set({{"n_prompt_tokens", n_prompt_tokens}, {"n_ctx", n_ctx}});
    return error.text();
}

HttpError bad_field(std::string param, std::string message)
{
    return {400, "invalid_request_error", "bad_field", std::move(message), std::move(param)};
}

HttpError unsupported_field(std::string param, std::string message)
{
    return {400, "invalid_request_error", "unsupported_field", std::move(message),
            std::move(param)};
}

HttpError draining()
{
    return {503, "unavailable_error", "draining", "the server is stopping", "", 1};
}

HttpError device_lost()
{
    return {503, "unavailable_error", "device_lost", "the device failed", "", 30};
}

const std::string& Exchange::header(const std::string& lower_case_name) const
{
    static const std::string kNone;
    const auto found = m_head.headers.find(lower_case_name);
    return found == m_head.headers.end() ? kNone : found->second;
}

std::string Exchange::query(std::string_view name) const
{
    std::string_view left = m_head.query;
    while (!left.empty()) {
        const std::string_view pair = left.substr(0, left.find('&'));
        left.remove_prefix(std::min(left.size(), pair.size() + 1));
        if (pair.substr(0, pair.find('=')) == name)
            return std::string(pair.substr(std::min(pair.size(), name.size() + 1)));
    }
    return {};
}

void Exchange::add_header(std::string name, std::string value)
{
    std::lock_guard<std::mutex> guard(m_mutex);
    m_answer.headers.emplace_back(std::move(name), std::move(value));
}

void Exchange::answer(int status, std::string text, std::string type)
{
    {
        std::lock_guard<std::mutex> guard(m_mutex);
        if (m_answer.status) return;
        m_answer.status = status;
        m_answer.text = std::move(text);
        m_answer.type = std::move(type);
        m_answer.finished = true;
    }
    m_wake(*this);
}

void Exchange::fail(const HttpError& error, std::string text)
{
    if (error.retry_after) {
        add_header("Retry-After", std::to_string(error.retry_after));
        if (error.status == 429) add_header("x-should-retry", "true");
    }
    answer(error.status, text.empty() ? "{\"error\":" + error.json() + "}" : std::move(text));
}

void Exchange::begin_stream(std::string type)
{
    {
        std::lock_guard<std::mutex> guard(m_mutex);
        if (m_answer.status) return;
        m_answer.status = 200;
        m_answer.streams = true;
        m_answer.type = std::move(type);
    }
    m_wake(*this);
}

void Exchange::write(std::string_view text)
{
    {
        std::lock_guard<std::mutex> guard(m_mutex);
        m_answer.text += text;
    }
    m_wake(*this);
}

void Exchange::finish(bool complete)
{
    {
        std::lock_guard<std::mutex> guard(m_mutex);
        m_answer.finished = true;
        m_answer.complete = complete;
    }
    m_wake(*this);
}

bool Exchange::has_answer()
{
    std::lock_guard<std::mutex> guard(m_mutex);
    return m_answer.status != 0;
}

size_t Exchange::unsent()
{
    std::lock_guard<std::mutex> guard(m_mutex);
    return m_answer.streams ? m_answer.text.size() : 0;
}

} // namespace ks::serve
