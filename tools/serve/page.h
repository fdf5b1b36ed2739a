// The web page of `knapsack serve`. cmake/page.cmake makes its definitions from page.html.
#pragma once
#include <cstddef>

namespace ks
{
extern const char kPage[]; // HTML in UTF-8
extern const size_t kPageBytes;
extern const char kPageTag[];    // for ETag, in its quotes
extern const char kPagePolicy[]; // for Content-Security-Policy
} // namespace ks
