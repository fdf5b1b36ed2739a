// Whether a sanitizer is active. It makes tests ten times slower, so they skip cases or statistics
// over many values.
#pragma once

namespace ks
{

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature) // clang
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

} // namespace ks
