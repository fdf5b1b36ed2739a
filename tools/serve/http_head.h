// The head of a request, as libmicrohttpd has parsed it.
#pragma once

#include "tools/serve/http.h"

struct MHD_Connection;

namespace ks::serve
{

// *length: of the body, as Content-Length says. The error is that of the head's form.
HttpError read_head(MHD_Connection* mhd, const char* url, const char* version, Exchange::Head* head,
                    uint64_t* length);
HttpError check_length(uint64_t length, const HttpOptions& options);
// For MHD_OPTION_UNESCAPE_CALLBACK: read_head() does it.
size_t keep_escapes(void*, MHD_Connection*, char* text);

} // namespace ks::serve
