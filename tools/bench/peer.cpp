#include "tools/bench/peer.h"

#include "tools/json.h"
#include "tools/program.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ks
{
namespace
{

constexpr size_t kMostOutput = 16 << 20;

std::string shown(const std::string& command)
{
    return "--versus: '" + printable(command, 120) + "'";
}

Status cannot_start(const std::string& command, int error)
{
    return fail(Code::io, "%s: cannot start: %s", shown(command).c_str(), strerror(error));
}

// A shell process. Its standard output is a pipe, its standard error a temporary file.
class Child
{
public:
    ~Child()
    {
        if (m_output >= 0) close(m_output);
        if (m_errors) fclose(m_errors);
        if (m_pid <= 0) return;
        kill(m_pid, SIGTERM);
        wait();
    }

    Status start(const std::string& command)
    {
        int ends[2];
        m_errors = tmpfile();
        if (!m_errors || pipe2(ends, O_CLOEXEC) != 0) return cannot_start(command, errno);
        m_output = ends[0];
        posix_spawn_file_actions_t files;
        posix_spawn_file_actions_init(&files);
        posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&files, fileno(m_errors), STDERR_FILENO);
        char shell[] = "sh", option[] = "-c";
        char* args[] = {shell, option, const_cast<char*>(command.c_str()), nullptr};
        const int error = posix_spawn(&m_pid, "/bin/sh", &files, nullptr, args, environ);
        posix_spawn_file_actions_destroy(&files);
        close(ends[1]);
        if (error == 0) return {};
        m_pid = 0;
        return cannot_start(command, error);
    }

    // Reads all output. false: interrupted, or more than kMostOutput bytes.
    bool read_all(std::string* out)
    {
        char part[4096];
        ssize_t n = 0;
        while (!interrupt::pending() && out->size() <= kMostOutput) {
            n = ::read(m_output, part, sizeof part);
            if (n == 0 || (n < 0 && errno != EINTR)) return true;
            if (n > 0) out->append(part, size_t(n));
        }
        return false;
    }

    int wait() // returns the status of waitpid
    {
        int status = 0;
        while (waitpid(m_pid, &status, 0) < 0 && errno == EINTR) {
        }
        m_pid = 0;
        return status;
    }

    std::string last_error() // the last line on its standard error
    {
        char end[2048];
        fseek(m_errors, 0, SEEK_END);
        fseek(m_errors, -std::min(ftell(m_errors), long(sizeof end)), SEEK_CUR);
        std::string text(end, fread(end, 1, sizeof end, m_errors));
        text.erase(text.find_last_not_of(" \r\n") + 1);
        return text.substr(text.find_last_of("\r\n") + 1); // npos + 1 is 0
    }

private:
    pid_t m_pid = 0;
    int m_output = -1;
    FILE* m_errors = nullptr;
};

Status run(const std::string& command, std::string* out)
{
    Child child;
    KS_TRY(child.start(command));
    const bool whole = child.read_all(out);
    if (interrupt::pending()) return Status(Code::interrupted, "interrupted while measuring");
    if (!whole)
        return fail(Code::io, "%s: printed more than %zu bytes", shown(command).c_str(),
                    kMostOutput);
    const int status = child.wait();
    if (interrupt::pending()) return Status(Code::interrupted, "interrupted while measuring");
    if (status == 0) return {};
    std::string how = WIFSIGNALED(status)
                          ? "killed by signal " + std::to_string(WTERMSIG(status))
                          : "failed with exit code " + std::to_string(WEXITSTATUS(status));
    const std::string error = child.last_error();
    if (!error.empty()) how += ", last error line: '" + printable(error, 120) + "'";
    return fail(Code::io, "%s: %s", shown(command).c_str(), how.c_str());
}

// The tokens per second of a result. 0: it belongs to another test.
double speed_of(const Json& result, const BenchTest& test)
{
    if (result.has("avg_ts")) { // llama-bench; before 2025 without n_depth
        const bool same = result.number(test.decode ? "n_gen" : "n_prompt") == test.n &&
                          result.number(test.decode ? "n_prompt" : "n_gen") == 0 &&
                          result.number("n_depth") == test.depth;
        return same ? result.number("avg_ts") : 0;
    }
    const bool same = result.text("test") == (test.decode ? "tg" : "pp") &&
                      result.number("n") == test.n && result.number("depth") == test.depth;
    return same ? result.member("tokens_per_second").number("median") : 0;
}

} // namespace

Result<double> peer_tokens_per_second(const std::string& command, const BenchTest& test)
{
    char tests[96];
    snprintf(tests, sizeof tests, " -p %u -n %u -d %u -r 1", test.decode ? 0 : test.n,
             test.decode ? test.n : 0, test.depth);
    if (test.n_sessions > 1)
        snprintf(tests + strlen(tests), sizeof tests - strlen(tests), " --sessions %u",
                 test.n_sessions);
    std::string out;
    KS_TRY(run(command + tests, &out));
    const std::vector<Json> results = Json::find_objects(out);
    if (results.empty())
        return fail(Code::usage,
                    "%s: expected results as JSON (llama-bench needs -o json, knapsack bench "
                    "--json), found '%s'",
                    shown(command + tests).c_str(), printable(out, 40).c_str());
    double speed = 0;
    size_t n_same = 0;
    for (const Json& result : results) {
        const double its = speed_of(result, test);
        if (!(its > 0)) continue;
        speed = its;
        n_same++;
    }
    if (n_same == 1) return speed;
    return fail(Code::usage, "%s: expected one result of %s, found %zu among %zu results",
                shown(command + tests).c_str(), test.name().c_str(), n_same, results.size());
}

} // namespace ks
