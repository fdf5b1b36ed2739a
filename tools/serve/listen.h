// A listening socket: TCP on IPv4 and IPv6, a path of the file system, or one of systemd.
#pragma once

#include "tools/serve/http.h"

namespace ks::serve
{

struct Listener {
    int fd = -1;
    std::string address; // for people
};
Result<Listener> open_listener(const HttpOptions& options);

} // namespace ks::serve
