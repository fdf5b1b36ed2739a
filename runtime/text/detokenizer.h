// Streaming detokenization: takes the bytes of each token, returns whole characters, and ends at a
// stop string.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ks
{

// Number of trailing bytes that begin a UTF-8 character which later bytes may complete.
size_t open_character(std::string_view text);

// The output does not depend on how the text is split into pieces. A partial character or a partial
// stop string is held back. Invalid UTF-8 passes through unchanged. It allocates only at
// construction if no piece is longer than max_piece_bytes.
class Detokenizer
{
public:
    // Empty stop strings never match.
    Detokenizer(size_t max_piece_bytes, std::vector<std::string> stops);

    // Returns the text that is certain by now; valid until the next call. After a stop string the
    // result is always empty.
    std::string_view feed(std::string_view piece);
    // Ends the stream and returns the text that was held back.
    std::string_view flush();
    // The stop string that ended the text, or null. The output does not contain it. Of several that
    // end at the same byte it is the longest.
    const std::string* stopped_by() const
    {
        return m_stop < m_stops.size() ? &m_stops[m_stop] : nullptr;
    }
    void reset(); // starts a new stream with the same stop strings

private:
    static constexpr size_t kNoStop = ~size_t(0);
    std::string_view give(size_t n);
    // Start of a stop string that ends at `end`; npos if there is none.
    size_t stop_begin(size_t end);
    size_t certain_bytes() const;

    std::vector<std::string> m_stops;
    std::string m_held;
    size_t m_given = 0; // bytes of m_held that the last call returned
    size_t m_stop = kNoStop;
};

} // namespace ks
