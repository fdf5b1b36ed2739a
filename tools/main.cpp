// The knapsack program: finds the command, runs it, turns its Status into one sentence and an exit code.
#include "tools/program.h"

#include "runtime/api/knapsack.h"

#include <cerrno>
#include <clocale>
#include <cstring>
#include <exception>
#include <new>
#include <set>
#include <unistd.h>

using namespace ks;

static Status print_version()
{
    std::set<std::string> backends;
    for (const DeviceInfo& device : list_devices()) backends.insert(device.backend);
#ifdef __clang__
    const char* compiler = "clang " __clang_version__;
#else
    const char* compiler = "gcc " __VERSION__;
#endif
    printf("knapsack %s\nbuilt with %s\nbackends:", ks_version(), compiler);
    for (const std::string& backend : backends) printf(" %s", backend.c_str());
    printf("\n");
    return {};
}

static Status run_command(Command command, const Options& options)
{
    switch (command) {
    case Command::chat:
        return cmd_chat(options);
    case Command::run:
        return cmd_run(options);
    case Command::score:
        return cmd_score(options);
    case Command::plan:
        return cmd_plan(options);
    case Command::inspect:
        return cmd_inspect(options);
    case Command::tokenize:
        return cmd_tokenize(options);
    case Command::devices:
        return cmd_devices(options);
    case Command::bench:
        return cmd_bench(options);
    case Command::eval:
        return cmd_eval(options);
    case Command::report:
        return cmd_report(options);
    case Command::count:
        break;
    }
    return Status(Code::usage, "no such command");
}

static Status run_program(int argc, char** argv)
{
    std::string names;
    for (uint32_t i = 0; i < uint32_t(Command::count); i++) names += std::string(i ? " " : "") + command_info(Command(i)).name;
    if (argc < 2) return fail(Code::usage, "no command given; there are %s (`knapsack --help` says more)", names.c_str());
    if (!strcmp(argv[1], "--version")) return print_version();
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_help();
        return {};
    }
    Command command = Command::count;
    if (!find_command(argv[1], &command))
        return fail(Code::usage, "unknown command '%s'; there are %s", printable(argv[1]).c_str(), names.c_str());
    Options options;
    KS_TRY(parse_options(command, argc - 2, argv + 2, options));
    if (options.help) {
        print_help(command);
        return {};
    }
    interrupt::install();
    return run_command(command, options);
}

int main(int argc, char** argv)
{
    static char buffer[1 << 16]; // so that the first write allocates nothing
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    setlocale(LC_CTYPE, "");
    Status status;
    try {
        status = run_program(argc, argv);
    } catch (const std::bad_alloc&) {
        status = Status(Code::no_fit, "the system has no memory left");
    } catch (const std::exception& e) { // a thread that the system refuses
        status = fail(Code::device, "the system refused: %s", e.what());
    }
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (status.ok() && !written) status = fail(Code::io, "standard output cannot be written: %s", strerror(errno));
    if (!status.message().empty()) fprintf(stderr, "knapsack: %s\n", printable(status.message(), 380).c_str());
    return int(status.code());
}
