// The command line. A command lists its options as rows. The parser, the environment variables and
// --help follow from these rows.
#pragma once

#include "runtime/base/status.h"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ks
{

// The text given to an option or an environment variable. Each reader fails with one sentence if
// the text is not what it expects.
struct Value {
    const char* option;
    const char* text; // null: a flag

    Status wrong(const char* expected) const;
    Status number(int64_t low, int64_t high, int64_t* out) const;
    template <class T>
    Status number(int64_t low, int64_t high, T* out) const
    {
        int64_t value = 0;
        KS_TRY(number(low, high, &value));
        *out = T(value);
        return {};
    }
    Status real(float low, float high, float* out) const;
    Status bytes(uint64_t* out) const;
    Status seed(uint64_t* out) const; // -1: a random one
    Status list(int64_t low, int64_t high, std::vector<uint32_t>* out) const;
    Status names(std::vector<std::string>* out) const;
    Status percents(std::vector<double>* out) const;
    Status bias(std::vector<std::pair<uint32_t, float>>* out) const; // appends
    Status string(std::string* out) const;
    Status filled(const char* expected, std::string* out) const; // not empty
};

struct Option {
    const char* names;    // separated by spaces
    const char* argument; // its name in --help; null: a flag
    std::string help;     // ends with the default
    std::function<Status(const Value&)> read;
    const char* environment = nullptr;
};

// The options of one command, in the order of --help.
class OptionTable
{
public:
    void add(Option option) { m_options.push_back(std::move(option)); }
    void add_flag(const char* names, const char* help, bool* out)
    {
        add({names, nullptr, help, [out](const Value&) { return *out = true, Status(); }});
    }
    void add_text(const char* names, const char* argument, const char* help, std::string* out,
                  const char* environment = nullptr)
    {
        add({names, argument, help, [out](const Value& v) { return v.string(out); }, environment});
    }
    template <class T>
    void add_number(const char* names, const char* help, int64_t low, int64_t high, T* out)
    {
        add({names, "N", help, [=](const Value& v) { return v.number(low, high, out); }});
    }
    void add_real(const char* names, const char* help, float low, float high, float* out)
    {
        add({names, "X", help, [=](const Value& v) { return v.real(low, high, out); }});
    }
    void add_list(const char* names, const char* help, int64_t low, int64_t high,
                  std::vector<uint32_t>* out)
    {
        add({names, "N,...", help, [=](const Value& v) { return v.list(low, high, out); }});
    }

    // The command line overrides the environment, which overrides the default. Stops as soon as
    // `stop` is true.
    Status parse(const char* command, int n_args, char** args, const bool& stop) const;
    void print() const;

private:
    const Option* find(const std::string& name) const;

    std::vector<Option> m_options;
};

struct Command {
    const char* name;
    const char* summary;
    const char* usage; // the text after the name
    const char* notes; // lines below the options, wrapped when printed; may be empty
    Status (*start)(const Command& command, int n_args, char** args);
};

void print_help(const Command& command, const OptionTable& table);

// Implements Command::start for a command with its own `Options`. add_to(OptionTable&) lists the
// rows; finish() checks and completes the parsed values.
template <class Options, Status (*run)(const Options&)>
Status start_command(const Command& command, int n_args, char** args)
{
    Options options;
    bool help = false;
    OptionTable table;
    options.add_to(table);
    table.add_flag("-h --help", "print this help", &help);
    KS_TRY(table.parse(command.name, n_args, args, help));
    if (help) {
        print_help(command, table);
        return {};
    }
    KS_TRY(options.finish());
    return run(options);
}

} // namespace ks
