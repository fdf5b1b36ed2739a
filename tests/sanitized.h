// Whether the sanitizers watch: they take ten times as long, so what is asked of them is whether memory is touched as it should be, and
// statistics of many values are left to the other builds, which run all of it.
#pragma once

namespace ks
{

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

} // namespace ks
