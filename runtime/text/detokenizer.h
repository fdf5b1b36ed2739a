// Streaming text: takes the bytes of one token after the other, gives back whole characters, and ends at a stop string.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ks
{

// What it gives back does not depend on where the borders between pieces are: never part of a character that may still
// be completed, never what may still become a stop string. Bytes that are no UTF-8 come out as they are. It allocates
// only at construction, as long as no piece is longer than max_piece_bytes.
class Detokenizer
{
public:
    Detokenizer(size_t max_piece_bytes, std::vector<std::string> stops); // empty stop strings never match

    // The text that is certain now; a view that the next call ends. After a stop string: empty, whatever comes.
    std::string_view feed(std::string_view piece);
    // At the end of the stream: what was held back.
    std::string_view flush();
    // The stop string that has ended the text, which is without it. Null: none. Of several that end with the same byte
    // it is the longest.
    const std::string* stopped_by() const { return m_stop < m_stops.size() ? &m_stops[m_stop] : nullptr; }
    void reset(); // for a new stream with the same stop strings

private:
    static constexpr size_t kNoStop = ~size_t(0);
    std::string_view give(size_t n);
    size_t stop_begin(size_t end); // where a stop string begins that ends at `end`, npos if there is none
    size_t certain_bytes() const;

    std::vector<std::string> m_stops;
    std::string m_held;
    size_t m_given = 0; // bytes of m_held that the last call gave out
    size_t m_stop = kNoStop;
};

} // namespace ks
