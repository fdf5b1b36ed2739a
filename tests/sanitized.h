// Whether the sanitizers watch: they take ten times as long, so what is asked of them is whether memory is touched as it should be, and
// statistics of many values are left to the other builds, which run all of it.
#pragma once

namespace ks
{

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature) // clang's way to say it
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

} // namespace ks
