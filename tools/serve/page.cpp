// GET /: the page.
#include "tools/serve/page.h"
#include "tools/serve/router.h"

namespace ks::serve
{

HttpError Router::page(const std::shared_ptr<Exchange>& exchange)
{
    if (!m_options.page)
        return {404, "not_found_error", "no_such_path", "this server was started with --no-ui", ""};
    exchange->add_header("ETag", kPageTag);
    exchange->add_header("Cache-Control", "no-cache");
    if (exchange->header("if-none-match") == kPageTag)
        return exchange->answer(304, ""), HttpError();
    exchange->add_header("Content-Security-Policy", kPagePolicy);
    exchange->add_header("Referrer-Policy", "no-referrer");
    exchange->answer(200, std::string(kPage, kPageBytes), "text/html; charset=utf-8");
    return {};
}

} // namespace ks::serve
