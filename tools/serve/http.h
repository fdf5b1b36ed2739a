// HTTP/1.1 over libmicrohttpd: one thread with its own poll loop.
#pragma once

#include "tools/serve/exchange.h"

#include "runtime/base/status.h"

#include <memory>
#include <string>

namespace ks::serve
{

struct HttpOptions {
    std::string host = "127.0.0.1";
    uint16_t port = 8080;
    std::string unix_path; // instead of host and port
    uint32_t n_connections = 64;
    uint64_t body_bytes = 4 << 20;    // of one request
    uint64_t request_bytes = 8 << 20; // of all requests
};

constexpr uint64_t kConnectionBytes = 32 << 10; // that libmicrohttpd may use for a connection
constexpr int kBodySeconds = 60, kIdleSeconds = 60, kStallSeconds = 30;

// What the program does with requests. Called by the HTTP thread; must not block.
class HttpHandler
{
public:
    virtual ~HttpHandler() = default;
    // The head was read. An error answers without reading the body.
    virtual HttpError admit(Exchange& exchange) = 0;
    // The request is complete. The answer may come later, from another thread.
    virtual void handle(const std::shared_ptr<Exchange>& exchange) = 0;
    // The answer was sent or its connection is closed.
    virtual void close(Exchange& exchange) = 0;
    // After each turn of the loop, at least ten times a second. False: leave it.
    virtual bool tick() = 0;
    virtual void add_headers(Exchange& exchange) = 0; // of every answer
};

class HttpServer
{
public:
    static Status check_built(); // unsupported: the build has no libmicrohttpd
    static Result<std::unique_ptr<HttpServer>> open(const HttpOptions& options,
                                                    HttpHandler& handler);
    virtual ~HttpServer() = default;
    virtual std::string address() const = 0; // "http://127.0.0.1:8080"
    virtual void run() = 0;                  // until tick() returns false
    virtual void wake() = 0;                 // from any thread or a signal handler
    virtual uint32_t n_connections() const = 0;
    virtual uint32_t n_unsent() const = 0; // requests whose answer is not sent yet
};

} // namespace ks::serve
