#include "tools/serve/listen.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace ks::serve
{

static constexpr int kBacklog = 128;

static Status fail_listen(const std::string& where, const char* why)
{
    return fail(Code::io, "serve: cannot listen on %s: %s", printable(where, 200).c_str(), why);
}

static Result<Listener> open_unix(const std::string& path)
{
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    if (path.size() >= sizeof name.sun_path)
        return fail_listen(path, "the path of a socket has at most 107 bytes");
    memcpy(name.sun_path, path.c_str(), path.size() + 1);
    struct stat info;
    if (stat(path.c_str(), &info) == 0) {
        if (!S_ISSOCK(info.st_mode)) return fail_listen(path, "there is a file that is no socket");
        const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const bool in_use = connect(probe, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0;
        close(probe);
        if (in_use) return fail_listen(path, "another program listens there");
        unlink(path.c_str());
    }
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const mode_t old = umask(0177);
    const bool bound = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0;
    umask(old);
    if (!bound || listen(fd, kBacklog) != 0) return fail_listen(path, strerror(errno));
    return Listener{fd, "unix:" + path};
}

static std::string name_of(int fd, const std::string& host)
{
    sockaddr_storage name = {};
    socklen_t bytes = sizeof name;
    char port[16] = "?";
    getsockname(fd, reinterpret_cast<sockaddr*>(&name), &bytes);
    getnameinfo(reinterpret_cast<sockaddr*>(&name), bytes, nullptr, 0, port, sizeof port,
                NI_NUMERICSERV);
    const bool bare_ipv6 = host.find(':') != std::string::npos && host[0] != '[';
    return "http://" + (bare_ipv6 ? "[" + host + "]" : host) + ":" + port;
}

static Result<Listener> open_tcp(const std::string& host, uint16_t port)
{
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    const std::string service = std::to_string(port), where = host + ":" + service;
    const std::string name =
        host.size() > 2 && host[0] == '[' ? host.substr(1, host.size() - 2) : host;
    if (const int error = getaddrinfo(name.c_str(), service.c_str(), &hints, &found))
        return fail_listen(where, gai_strerror(error));
    int why = 0;
    for (addrinfo* a = found; a; a = a->ai_next) {
        const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        const int yes = 1;
        if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, kBacklog) == 0) {
            freeaddrinfo(found);
            return Listener{fd, name_of(fd, host)};
        }
        why = errno;
        if (fd >= 0) close(fd);
    }
    freeaddrinfo(found);
    return fail_listen(where, strerror(why));
}

Result<Listener> open_listener(const HttpOptions& options)
{
    const char *n = getenv("LISTEN_FDS"), *pid = getenv("LISTEN_PID");
    if (n && pid && atoi(n) == 1 && atol(pid) == long(getpid()))
        return Listener{3, "a socket of systemd"};
    if (!options.unix_path.empty()) return open_unix(options.unix_path);
    return open_tcp(options.host, options.port);
}

} // namespace ks::serve
