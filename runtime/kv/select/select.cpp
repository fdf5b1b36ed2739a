#include "runtime/kv/select/select.h"

#include "kernels/common/args.h"

namespace ks
{

static const Selector kSelectors[] = {
    // name, kind, unit, first, dense, prompts, reuse, by_head, signal
    {"all", select_soft, 1, 0, 0, false, 1, false, signal_none},
    {"tokenselect", select_soft, 1, 128, 0, true, 0.9f, false, signal_none},
    // the ablations of TokenSelect's vote: only the device reference has them
    {"hardvote", select_hard, 1, 128, 0, true, 0.9f, false, signal_none},
    {"topk", select_sum, 1, 128, 0, true, 0.9f, false, signal_none},
    {"quest", select_pages, select_page, 0, 2, false, 1, true, signal_none},
    {"infllm", select_blocks, 128, 128, 0, true, 1, false, signal_sum},
};

const Selector* find_selector(std::string_view name)
{
    for (const Selector& selector : kSelectors)
        if (name == selector.name) return &selector;
    return nullptr;
}

std::string selector_names()
{
    std::string names;
    for (const Selector& selector : kSelectors) names += (names.empty() ? "" : " ") + std::string(selector.name);
    return names;
}

} // namespace ks
