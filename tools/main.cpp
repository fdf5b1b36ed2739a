// The knapsack program. Runs the command; its Status becomes one sentence and the exit code.
#include "tools/commands/list.h"
#include "tools/program.h"

#include "runtime/api/knapsack.h"

#include <cerrno>
#include <clocale>
#include <cstring>
#include <exception>
#include <new>
#include <unistd.h>

using namespace ks;

#define KS_DECLARE(name) extern const Command command_##name;
namespace ks
{
KS_COMMANDS(KS_DECLARE)
}
#define KS_ADDRESS(name) &command_##name,
static const Command* const kCommands[] = {KS_COMMANDS(KS_ADDRESS)};

static Status print_version()
{
#ifdef __clang__
    const char* compiler = "clang " __clang_version__;
#else
    const char* compiler = "gcc " __VERSION__;
#endif
    printf("knapsack %s\nbuilt with %s\nbackends:", ks_version(), compiler);
    const char* before = " ";
    for (const BackendState& backend : list_backends()) {
        printf("%s%s", before, backend.name.c_str());
        before = ", ";
        if (!backend.built_in)
            printf(" (not built in)");
        else if (!backend.missing.empty())
            printf(" (built in; %s)", printable(backend.missing, 200).c_str());
        else if (!backend.kernels.empty())
            printf(" (%s)", backend.kernels.c_str());
    }
    printf("\n");
    return {};
}

static void print_help()
{
    printf("knapsack: run a language model inside a fixed memory budget\n\n"
           "usage: knapsack COMMAND [options]\n\n");
    for (const Command* command : kCommands)
        printf("  %-10s %s\n", command->name, command->summary);
    printf(
        "\n`knapsack COMMAND --help` lists the options of a command. `knapsack --version` lists\n"
        "the backends of this build.\n");
    printf("\nexit: 0 success, 1 wrong usage, 2 model unreadable or invalid, 3 unsupported,\n"
           "4 does not fit, 5 device failed, 6 I/O error, 130 interrupted\n");
}

static Status run_program(int argc, char** argv)
{
    std::string names;
    for (const Command* command : kCommands)
        names += (names.empty() ? "" : " ") + std::string(command->name);
    if (argc < 2)
        return fail(Code::usage, "no command given; the commands are %s (see `knapsack --help`)",
                    names.c_str());
    if (!strcmp(argv[1], "--version")) return print_version();
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        print_help();
        return {};
    }
    for (const Command* command : kCommands) {
        if (strcmp(argv[1], command->name) != 0) continue;
        interrupt::install();
        return command->start(*command, argc - 2, argv + 2);
    }
    return fail(Code::usage, "unknown command '%s'; the commands are %s",
                printable(argv[1]).c_str(), names.c_str());
}

int main(int argc, char** argv)
{
    static char buffer[1 << 16]; // the first write would allocate one
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    setlocale(LC_CTYPE, "");
    Status status;
    try {
        status = run_program(argc, argv);
    } catch (const std::bad_alloc&) {
        status = Status(Code::no_fit, "the system is out of memory");
    } catch (const std::exception& e) { // for example, no more threads
        status = fail(Code::device, "the system refused: %s", e.what());
    }
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (status.ok() && !written)
        status = fail(Code::io, "standard output: cannot write: %s", strerror(errno));
    if (!status.message().empty())
        fprintf(stderr, "knapsack: %s\n", printable(status.message(), 380).c_str());
    return int(status.code());
}
