// devices: the devices of this machine.
#include "tools/json.h"
#include "tools/option_groups.h"
#include "tools/program.h"

namespace ks
{

struct DevicesOptions {
    bool json = false;

    void add_to(OptionTable& table) { add_json(table, &json); }
    Status finish() const { return {}; }
};

static Status devices(const DevicesOptions& options)
{
    std::vector<std::string> refused;
    std::vector<DeviceInfo> devices = list_devices(&refused);
    if (options.json) {
        Json json = Json::array();
        for (const DeviceInfo& d : devices)
            json.push(Json::object({{"id", d.id},
                                    {"name", d.name},
                                    {"backend", d.backend},
                                    {"memory_bytes", d.memory_bytes},
                                    {"free_bytes", d.free_bytes},
                                    {"unified", d.unified},
                                    {"paths", d.paths}}));
        json.print();
        return {};
    }
    printf("  %-12s %-12s %12s %12s  %s\n", "--device", "backend", "memory", "free", "name");
    for (const DeviceInfo& d : devices) {
        printf("  %-12s %-12s %12s %12s  %s%s\n", d.id.c_str(), d.backend.c_str(),
               human_bytes(d.memory_bytes).c_str(), human_bytes(d.free_bytes).c_str(),
               printable(d.name, 200).c_str(), d.unified ? ", memory shared with the host" : "");
        for (const std::string& path : d.paths)
            printf("  %-12s %s\n", "", printable(path, 200).c_str());
    }
    for (const BackendState& backend : list_backends()) {
        if (!backend.built_in)
            printf("  %s: not built in\n", backend.name.c_str());
        else if (!backend.missing.empty())
            printf("  %s: built in, %s\n", backend.name.c_str(),
                   printable(backend.missing, 200).c_str());
    }
    for (const std::string& sentence : refused)
        printf("  not usable: %s\n", printable(sentence, 400).c_str());
    return {};
}

extern const Command command_devices = {"devices", "list the ids that --device accepts",
                                        "[options]", "", start_command<DevicesOptions, devices>};

} // namespace ks
