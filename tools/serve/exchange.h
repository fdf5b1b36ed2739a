// One request and its answer. The HTTP thread owns the connection; any thread may write the answer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ks::serve
{

// An error as clients see it.
struct HttpError {
    int status = 0; // 0: no error
    const char* type = "";
    const char* reason = ""; // a word for programs
    std::string message;
    std::string param; // the field that is wrong
    int retry_after = 0;
    uint64_t n_prompt_tokens = 0, n_ctx = 0; // of a prompt that is too long

    explicit operator bool() const { return status != 0; }
    std::string json() const; // the value of "error"
};
HttpError bad_field(std::string param, std::string message);
HttpError unsupported_field(std::string param, std::string message);
HttpError draining();    // the server stops
HttpError device_lost(); // the device failed

constexpr uint64_t kUnsentBytes = 64 << 10; // of an answer; with more, its seat is paused

class Exchange
{
public:
    struct Head {
        std::string method, path, query;
        std::map<std::string, std::string> headers; // names in lower case
    };
    using Wake = std::function<void(Exchange&)>; // asks the HTTP thread to look at it

    Exchange(Head head, std::string id, Wake wake)
        : m_head(std::move(head)), m_id(std::move(id)), m_wake(std::move(wake))
    {
    }
    const Head& head() const { return m_head; }
    const std::string& method() const { return m_head.method; }
    const std::string& path() const { return m_head.path; }
    const std::string& header(const std::string& lower_case_name) const; // "": there is none
    std::string query(std::string_view name) const;                      // "": there is none
    const std::string& id() const { return m_id; }                       // x-request-id
    std::string body;                                                    // of the request
    uint64_t key = 0;                                                    // hash of the API key
    const std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
    bool counted = false; // in the metrics

    // The answer: either whole, or a stream of pieces.
    void add_header(std::string name, std::string value);
    void answer(int status, std::string text, std::string type = "application/json");
    void fail(const HttpError& error, std::string text = ""); // text: its form, if another
    void begin_stream(std::string type);
    void write(std::string_view text);
    void finish(bool complete = true); // else the client sees that the stream broke

    // For the HTTP thread.
    struct Answer {
        int status = 0; // 0: none yet
        bool streams = false;
        std::string type, text; // of a stream: what was not sent yet
        std::vector<std::pair<std::string, std::string>> headers;
        bool finished = false, complete = true;
    };
    template <class F> // under the lock
    auto with_answer(F use)
    {
        std::lock_guard<std::mutex> guard(m_mutex);
        return use(m_answer);
    }
    bool has_answer();
    size_t unsent(); // bytes of a stream

    // The client closed its connection: nobody reads the answer.
    void set_gone() { m_gone.store(true); }
    bool gone() const { return m_gone.load(); }

private:
    const Head m_head;
    const std::string m_id;
    const Wake m_wake;
    std::mutex m_mutex;
    Answer m_answer;
    std::atomic<bool> m_gone{false};
};

} // namespace ks::serve
