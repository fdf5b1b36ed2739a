#include "runtime/kv/select/select.h"

#include "kernels/common/args.h"

namespace ks
{

// A row of the table: a name, how units are scored, and properties that differ from the defaults.
struct SelectorRow : Selector {
    constexpr SelectorRow(const char* its_name, uint32_t its_kind)
    {
        name = its_name;
        kind = its_kind;
    }
    constexpr SelectorRow in_units_of(uint32_t n) const { return with(&Selector::unit, n); }
    constexpr SelectorRow reads_first(uint32_t n) const { return with(&Selector::first, n); }
    constexpr SelectorRow from_layer(uint32_t il) const { return with(&Selector::dense, il); }
    constexpr SelectorRow for_prompts() const { return with(&Selector::prompts, true); }
    constexpr SelectorRow reuses_from(float cosine) const { return with(&Selector::reuse, cosine); }
    constexpr SelectorRow head_by_head() const { return with(&Selector::by_head, true); }
    constexpr SelectorRow reads_probabilities() const
    {
        return with(&Selector::scores, scores_sum);
    }

private:
    template <class T>
    constexpr SelectorRow with(T Selector::*field, T value) const
    {
        SelectorRow row = *this;
        row.*field = value;
        return row;
    }
};

static const SelectorRow kSelectors[] = {
    SelectorRow("all", select_soft),
    SelectorRow("tokenselect", select_soft).reads_first(128).for_prompts().reuses_from(0.9f),
    // Ablations of TokenSelect's vote, which only the device reference implements.
    SelectorRow("hardvote", select_hard).reads_first(128).for_prompts().reuses_from(0.9f),
    SelectorRow("topk", select_sum).reads_first(128).for_prompts().reuses_from(0.9f),
    SelectorRow("quest", select_pages).in_units_of(select_page).from_layer(2).head_by_head(),
    SelectorRow("infllm", select_blocks)
        .in_units_of(128)
        .reads_first(128)
        .for_prompts()
        .reads_probabilities(),
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
    for (const Selector& selector : kSelectors)
        names += (names.empty() ? "" : " ") + std::string(selector.name);
    return names;
}

} // namespace ks
