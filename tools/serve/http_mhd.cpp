// The HTTP server where libmicrohttpd is installed.
#ifdef KS_HTTP
#include "tools/serve/http.h"
#include "tools/serve/http_head.h"
#include "tools/serve/listen.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <microhttpd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <unordered_map>

namespace ks::serve
{

using Clock = std::chrono::steady_clock;
constexpr int kTickMs = 100;
constexpr uint32_t kSpareConnections = 8; // for those that are closed to make room

namespace
{

struct Connection {
    MHD_Connection* mhd = nullptr;
    int fd = -1;
    bool suspended = false, complete = false; // complete: the request was read
    bool discards = false;                    // the body is too large
    uint64_t body_bytes = 0;                  // counted in m_request_bytes
    Clock::time_point since;                  // of the connection, or of the last answer
    bool ended = false;                       // the client closed its side
    std::shared_ptr<Exchange> exchange;       // null: the head was not read yet
};

class MhdServer : public HttpServer
{
public:
    MhdServer(const HttpOptions& options, HttpHandler& handler)
        : m_options(options), m_handler(handler)
    {
    }
    ~MhdServer() override
    {
        if (m_daemon) MHD_stop_daemon(m_daemon);
        if (m_listener.fd >= 0) close(m_listener.fd);
        if (!m_options.unix_path.empty() && m_listener.fd >= 0) unlink(m_options.unix_path.c_str());
        if (m_wake_fd >= 0) close(m_wake_fd);
    }
    Status open();
    std::string address() const override { return m_listener.address; }
    void run() override;
    void wake() override
    {
        const uint64_t one = 1;
        (void)!write(m_wake_fd, &one, sizeof one);
    }
    uint32_t n_connections() const override { return uint32_t(m_connections.size()); }
    uint32_t n_unsent() const override { return uint32_t(m_by_exchange.size()); }

    MHD_Result access(Connection& c, const char* url, const char* method, const char* version,
                      const char* data, size_t* bytes);
    ssize_t read(Connection& c, char* out, size_t most);
    void open_connection(MHD_Connection* mhd, void** context);
    void close_connection(Connection* c);
    void end_request(Connection& c);

private:
    HttpError begin_request(Connection& c, const char* url, const char* method,
                            const char* version);
    MHD_Result respond(Connection& c);
    void count_body(Connection& c, uint64_t bytes)
    {
        m_request_bytes += bytes - c.body_bytes;
        c.body_bytes = bytes;
    }
    void watch(std::vector<pollfd>& fds, std::vector<Connection*>& watched);
    void resume_ready();
    void resume(Connection& c);
    void end_of_client(Connection& c);
    void close_slow();
    void close_ended();
    void close_oldest();

    const HttpOptions m_options;
    HttpHandler& m_handler;
    Listener m_listener;
    MHD_Daemon* m_daemon = nullptr;
    int m_wake_fd = -1;
    uint64_t m_n_requests = 0;
    uint64_t m_request_bytes = 0; // of all bodies
    std::vector<Connection*> m_connections;
    std::unordered_map<Exchange*, Connection*> m_by_exchange;
    std::mutex m_ready_mutex;
    std::vector<Exchange*> m_ready;
};

MHD_Result on_access(void* self, MHD_Connection* mhd, const char* url, const char* method,
                     const char* version, const char* data, size_t* bytes, void** request)
{
    const MHD_ConnectionInfo* info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    Connection& c = *static_cast<Connection*>(info->socket_context);
    *request = &c;
    return static_cast<MhdServer*>(self)->access(c, url, method, version, data, bytes);
}

void on_end(void* self, MHD_Connection*, void** request, MHD_RequestTerminationCode)
{
    if (*request) static_cast<MhdServer*>(self)->end_request(*static_cast<Connection*>(*request));
    *request = nullptr;
}

void on_connection(void* self, MHD_Connection* mhd, void** context,
                   MHD_ConnectionNotificationCode code)
{
    MhdServer* server = static_cast<MhdServer*>(self);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) return server->open_connection(mhd, context);
    server->close_connection(static_cast<Connection*>(*context));
    *context = nullptr;
}

struct Stream {
    MhdServer* server;
    Connection* connection;
};

ssize_t on_read(void* stream, uint64_t, char* out, size_t most)
{
    Stream* s = static_cast<Stream*>(stream);
    return s->server->read(*s->connection, out, most);
}

void free_stream(void* stream)
{
    delete static_cast<Stream*>(stream);
}

void no_log(void*, const char*, va_list) {}

} // namespace

Status MhdServer::open()
{
    m_wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    Result<Listener> listener = open_listener(m_options);
    if (!listener.ok()) return listener.status();
    m_listener = listener.value();
    m_daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, nullptr, nullptr,
        on_access, this, MHD_OPTION_EXTERNAL_LOGGER, no_log, nullptr, MHD_OPTION_LISTEN_SOCKET,
        m_listener.fd, MHD_OPTION_CONNECTION_MEMORY_LIMIT, size_t(kConnectionBytes),
        MHD_OPTION_CONNECTION_LIMIT, unsigned(m_options.n_connections + kSpareConnections),
        MHD_OPTION_CONNECTION_TIMEOUT, unsigned(kIdleSeconds), MHD_OPTION_NOTIFY_COMPLETED, on_end,
        this, MHD_OPTION_NOTIFY_CONNECTION, on_connection, this, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, nullptr, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
        MHD_OPTION_END);
    if (!m_daemon)
        return fail(Code::io, "serve: libmicrohttpd %s does not start: %s", MHD_get_version(),
                    strerror(errno));
    return {};
}

void MhdServer::open_connection(MHD_Connection* mhd, void** context)
{
    Connection* c = new Connection;
    c->mhd = mhd;
    c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    c->since = Clock::now();
    *context = c;
    m_connections.push_back(c);
    if (m_connections.size() > m_options.n_connections) close_oldest();
}

void MhdServer::close_connection(Connection* c)
{
    end_request(*c);
    m_connections.erase(std::find(m_connections.begin(), m_connections.end(), c));
    delete c;
}

void MhdServer::end_request(Connection& c)
{
    c.since = Clock::now();
    if (!c.exchange) return;
    count_body(c, 0);
    m_by_exchange.erase(c.exchange.get());
    c.exchange->set_gone();
    m_handler.close(*c.exchange);
    c.exchange.reset();
    c.complete = c.discards = c.suspended = false;
}

// Makes the exchange of a request whose head was read.
HttpError MhdServer::begin_request(Connection& c, const char* url, const char* method,
                                   const char* version)
{
    Exchange::Head head;
    head.method = method;
    uint64_t length = 0;
    HttpError error = read_head(c.mhd, url, version, &head, &length);
    if (!error) error = check_length(length, m_options);
    if (!error && m_request_bytes + length > m_options.request_bytes)
        error = {429,    "rate_limit_error",
                 "busy", "other requests fill the memory for requests; try again",
                 "",     1};
    char id[32];
    snprintf(id, sizeof id, "req_%016llx",
             (unsigned long long)(uint64_t(Clock::now().time_since_epoch().count()) ^
                                  (++m_n_requests << 40)));
    c.exchange = std::make_shared<Exchange>(std::move(head), id, [this](Exchange& exchange) {
        {
            std::lock_guard<std::mutex> guard(m_ready_mutex);
            if (std::find(m_ready.begin(), m_ready.end(), &exchange) != m_ready.end()) return;
            m_ready.push_back(&exchange);
        }
        wake();
    });
    m_by_exchange[c.exchange.get()] = &c;
    // Where a request ends is not sure, so none can follow.
    if (error.status == 400) c.exchange->add_header("Connection", "close");
    if (!error) error = m_handler.admit(*c.exchange);
    if (!error && length) {
        c.exchange->body.reserve(length);
        count_body(c, length);
    }
    return error;
}

MHD_Result MhdServer::access(Connection& c, const char* url, const char* method,
                             const char* version, const char* data, size_t* bytes)
{
    if (!c.exchange) {
        const HttpError error = begin_request(c, url, method, version);
        if (!error) return MHD_YES;
        c.complete = true;
        c.exchange->fail(error);
        return respond(c);
    }
    Exchange& exchange = *c.exchange;
    if (*bytes) {
        const uint64_t size = exchange.body.size() + *bytes;
        const uint64_t more = size > c.body_bytes ? size - c.body_bytes : 0;
        c.discards |=
            size > m_options.body_bytes || m_request_bytes + more > m_options.request_bytes;
        if (!c.discards) {
            exchange.body.append(data, *bytes);
            count_body(c, std::max<uint64_t>(c.body_bytes, exchange.body.capacity()));
        }
        *bytes = 0;
        return MHD_YES;
    }
    if (exchange.gone()) return MHD_NO;
    if (!c.complete) {
        c.complete = true;
        if (c.discards)
            exchange.fail({413, "invalid_request_error", "body_too_large",
                           "the body is longer than " + std::to_string(m_options.body_bytes) +
                               " bytes, or other requests fill the memory for requests",
                           ""});
        else
            m_handler.handle(c.exchange);
    }
    if (exchange.has_answer()) return respond(c);
    MHD_suspend_connection(c.mhd);
    c.suspended = true;
    return MHD_YES;
}

MHD_Result MhdServer::respond(Connection& c)
{
    m_handler.add_headers(*c.exchange);
    int status = 0;
    MHD_Response* response = c.exchange->with_answer([&](Exchange::Answer& answer) {
        status = answer.status;
        MHD_Response* made =
            answer.streams ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 8 << 10, on_read,
                                                               new Stream{this, &c}, free_stream)
                           : MHD_create_response_from_buffer(answer.text.size(), &answer.text[0],
                                                             MHD_RESPMEM_PERSISTENT);
        if (!made) return made;
        MHD_add_response_header(made, "Content-Type", answer.type.c_str());
        for (const auto& header : answer.headers)
            MHD_add_response_header(made, header.first.c_str(), header.second.c_str());
        if (answer.streams) {
            MHD_add_response_header(made, "Cache-Control", "no-cache");
            MHD_add_response_header(made, "X-Accel-Buffering", "no");
        }
        return made;
    });
    if (!response) return MHD_NO;
    MHD_set_connection_option(c.mhd, MHD_CONNECTION_OPTION_TIMEOUT, unsigned(kStallSeconds));
    const MHD_Result queued = MHD_queue_response(c.mhd, unsigned(status), response);
    MHD_destroy_response(response);
    return queued;
}

ssize_t MhdServer::read(Connection& c, char* out, size_t most)
{
    if (!c.exchange || c.exchange->gone()) return MHD_CONTENT_READER_END_WITH_ERROR;
    return c.exchange->with_answer([&](Exchange::Answer& answer) -> ssize_t {
        const size_t n = std::min(most, answer.text.size());
        if (n) {
            memcpy(out, answer.text.data(), n);
            answer.text.erase(0, n);
            return ssize_t(n);
        }
        if (answer.finished)
            return answer.complete ? MHD_CONTENT_READER_END_OF_STREAM
                                   : MHD_CONTENT_READER_END_WITH_ERROR;
        MHD_suspend_connection(c.mhd);
        c.suspended = true;
        return 0;
    });
}

void MhdServer::end_of_client(Connection& c)
{
    c.ended = true;
    if (!c.complete) return;
    c.exchange->set_gone();
    m_handler.close(*c.exchange);
    resume(c);
}

void MhdServer::resume(Connection& c)
{
    if (!c.suspended) return;
    c.suspended = false;
    MHD_resume_connection(c.mhd);
}

void MhdServer::resume_ready()
{
    std::vector<Exchange*> ready;
    {
        std::lock_guard<std::mutex> guard(m_ready_mutex);
        ready.swap(m_ready);
    }
    for (Exchange* exchange : ready)
        if (const auto found = m_by_exchange.find(exchange); found != m_by_exchange.end())
            resume(*found->second);
}

// A connection that sends its head or its body too slowly is closed.
void MhdServer::close_slow()
{
    const Clock::time_point now = Clock::now();
    for (Connection* c : m_connections) {
        const std::chrono::seconds most(c->exchange ? kBodySeconds : kIdleSeconds);
        if (!c->complete && now - c->since > most) shutdown(c->fd, SHUT_RDWR);
    }
}

// libmicrohttpd does not see the end of a connection that arrives with a part of a request.
void MhdServer::close_ended()
{
    for (Connection* c : m_connections) {
        int n_unread = 0;
        if (c->ended && !c->complete && ioctl(c->fd, FIONREAD, &n_unread) == 0 && n_unread == 0)
            shutdown(c->fd, SHUT_RDWR);
    }
}

// Makes room by closing the connection that is the longest without a complete head. New ones have
// a second to send theirs.
void MhdServer::close_oldest()
{
    Connection* oldest = nullptr;
    for (Connection* c : m_connections)
        if (!c->exchange && (!oldest || c->since < oldest->since)) oldest = c;
    if (oldest && Clock::now() - oldest->since > std::chrono::seconds(1))
        shutdown(oldest->fd, SHUT_RDWR);
}

// Looks for clients that close their connections. One whose answer is being made cancels it.
void MhdServer::watch(std::vector<pollfd>& fds, std::vector<Connection*>& watched)
{
    const MHD_DaemonInfo* info = MHD_get_daemon_info(m_daemon, MHD_DAEMON_INFO_EPOLL_FD);
    fds = {{info->epoll_fd, POLLIN, 0}, {m_wake_fd, POLLIN, 0}};
    watched.clear();
    for (Connection* c : m_connections) {
        if (c->ended) continue;
        fds.push_back({c->fd, POLLRDHUP, 0});
        watched.push_back(c);
    }
}

void MhdServer::run()
{
    std::vector<pollfd> fds;
    std::vector<Connection*> watched;
    Clock::time_point last_tick;
    for (;;) {
        MHD_UNSIGNED_LONG_LONG most = kTickMs;
        if (MHD_get_timeout(m_daemon, &most) != MHD_YES || most > kTickMs) most = kTickMs;
        watch(fds, watched);
        (void)poll(fds.data(), fds.size(), int(most));
        uint64_t n = 0;
        while (fds[1].revents && ::read(m_wake_fd, &n, sizeof n) > 0) {
        }
        for (size_t i = 0; i < watched.size(); i++)
            if (fds[i + 2].revents & (POLLRDHUP | POLLHUP | POLLERR)) end_of_client(*watched[i]);
        resume_ready();
        MHD_run(m_daemon);
        close_ended();
        if (!m_handler.tick()) return;
        const Clock::time_point now = Clock::now();
        if (now - last_tick < std::chrono::milliseconds(kTickMs)) continue;
        last_tick = now;
        close_slow();
        if (m_connections.size() > m_options.n_connections) close_oldest();
    }
}

Status HttpServer::check_built()
{
    return {};
}

Result<std::unique_ptr<HttpServer>> HttpServer::open(const HttpOptions& options,
                                                     HttpHandler& handler)
{
    auto server = std::make_unique<MhdServer>(options, handler);
    KS_TRY(server->open());
    return std::unique_ptr<HttpServer>(std::move(server));
}

} // namespace ks::serve
#else
#include "tools/serve/http.h"

namespace ks::serve
{

Status HttpServer::check_built()
{
    return fail(Code::unsupported, "serve: this build has no HTTP server; install libmicrohttpd "
                                   "(apt-get install libmicrohttpd-dev) and build again");
}

Result<std::unique_ptr<HttpServer>> HttpServer::open(const HttpOptions&, HttpHandler&)
{
    return check_built();
}

} // namespace ks::serve
#endif
