// Session files of idle conversations in one folder. A file is named by the chain of the messages
// in it, so that any server of the same model finds it.
#pragma once

#include "tools/serve/chain.h"

#include "runtime/api/conversation.h"

namespace ks::serve
{

class Parking
{
public:
    Parking() = default; // off
    // Fails if the folder cannot be made or written. The folder is for this user alone.
    static Result<Parking> open(const std::string& folder, uint64_t most_bytes);

    bool on() const { return !m_folder.empty(); }
    // The most messages of the chain that a file holds; 0: none.
    size_t find(const Chain& chain) const;
    // Removes the oldest files beyond most_bytes. On failure nothing is parked.
    Status save(const ChainHash& tip, Session& session, const Conversation& conversation);
    // On success the session and the conversation are those of the file.
    Status load(const ChainHash& tip, Session& session, Conversation& conversation);
    void remove(const ChainHash& tip);

    uint32_t n_files() const { return m_n_files; }
    uint64_t n_bytes() const { return m_n_bytes; }
    uint64_t most_bytes() const { return m_most_bytes; }

private:
    std::string path_of(const ChainHash& tip) const;
    void make_room();

    std::string m_folder;
    uint64_t m_most_bytes = 0, m_n_bytes = 0;
    uint32_t m_n_files = 0;
};

} // namespace ks::serve
