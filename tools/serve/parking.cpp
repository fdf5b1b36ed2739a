#include "tools/serve/parking.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <utime.h>

namespace ks::serve
{

static constexpr std::string_view kEnd = ".session";

Result<Parking> Parking::open(const std::string& folder, uint64_t most_bytes)
{
    Parking parking;
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
        return fail(Code::io, "serve: cannot make the folder %s: %s",
                    printable(folder, 200).c_str(), strerror(errno));
    if (access(folder.c_str(), R_OK | W_OK | X_OK) != 0)
        return fail(Code::io, "serve: cannot write to the folder %s: %s",
                    printable(folder, 200).c_str(), strerror(errno));
    parking.m_folder = folder;
    parking.m_most_bytes = most_bytes;
    parking.make_room();
    return parking;
}

std::string Parking::path_of(const ChainHash& tip) const
{
    return m_folder + "/" + tip.text() + std::string(kEnd);
}

size_t Parking::find(const Chain& chain) const
{
    size_t n = on() ? chain.size() : 0;
    while (n && access(path_of(chain[n - 1]).c_str(), R_OK) != 0) n--;
    return n;
}

// Counts the files, and removes the oldest ones.
void Parking::make_room()
{
    std::vector<std::tuple<int64_t, std::string, uint64_t>> files; // time, path, bytes
    m_n_bytes = 0;
    DIR* folder = opendir(m_folder.c_str());
    for (dirent* entry; folder && (entry = readdir(folder));) {
        const std::string name = entry->d_name, path = m_folder + "/" + name;
        struct stat info;
        if (name.size() != 32 + kEnd.size() || name.substr(32) != kEnd ||
            stat(path.c_str(), &info) != 0)
            continue;
        files.emplace_back(int64_t(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec,
                           path, info.st_size);
        m_n_bytes += uint64_t(info.st_size);
    }
    if (folder) closedir(folder);
    std::sort(files.begin(), files.end());
    m_n_files = uint32_t(files.size());
    for (const auto& [time, path, bytes] : files) {
        if (m_n_bytes <= m_most_bytes) break;
        if (unlink(path.c_str()) != 0) continue;
        m_n_bytes -= bytes;
        m_n_files--;
    }
}

Status Parking::save(const ChainHash& tip, Session& session, const Conversation& conversation)
{
    SavedState state;
    state.note = conversation.save_history();
    if (state.note.size() > SavedState::kMaxNoteBytes)
        return fail(Code::no_fit, "its text has %zu bytes, more than a session file holds",
                    state.note.size());
    KS_TRY(session.save(state, path_of(tip), false));
    make_room();
    return {};
}

Status Parking::load(const ChainHash& tip, Session& session, Conversation& conversation)
{
    SavedState state;
    const std::string path = path_of(tip);
    KS_TRY(session.load(path, &state));
    utime(path.c_str(), nullptr); // the last use
    if (conversation.load_history(state.note)) return {};
    session.clear();
    return fail(Code::invalid, "%s: its note is no history of a conversation",
                printable(path, 200).c_str());
}

void Parking::remove(const ChainHash& tip)
{
    struct stat info;
    const std::string path = path_of(tip);
    if (stat(path.c_str(), &info) != 0 || unlink(path.c_str()) != 0) return;
    m_n_files--;
    m_n_bytes -= std::min(m_n_bytes, uint64_t(info.st_size));
}

} // namespace ks::serve
