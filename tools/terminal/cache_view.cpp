#include "tools/terminal/cache_view.h"

#include "tools/cache_statistics.h"
#include "tools/program.h"
#include "tools/terminal/memory_view.h"

#include <algorithm>
#include <cmath>
#include <utf8proc.h>

namespace ks
{

constexpr int kBarColumns = 32, kShareColumns = 10;
constexpr int kTextColumns = 60;   // of a row before the words of a turn
constexpr size_t kTurnsShown = 12; // older turns share a row

struct Tier {
    const char *name, *block, *letter;
    uint64_t CacheTiers::*slots;
};
static const Tier kTiers[] = {{"pinned", "\u2588", "#", &CacheTiers::pinned},
                              {"kept", "\u2593", "=", &CacheTiers::kept},
                              {"merged", "\u259a", "%", &CacheTiers::merged},
                              {"recent", "\u2592", "-", &CacheTiers::recent},
                              {"free", "\u2591", ".", &CacheTiers::free}};

// A tier that is not empty gets at least one column, at the expense of the largest tier.
static std::string tier_bar(const CacheTiers& tiers, uint64_t n_slots)
{
    int columns[std::size(kTiers)], left = kBarColumns, largest = 0;
    for (size_t i = 0; i < std::size(kTiers); i++) {
        const double share = double(tiers.*kTiers[i].slots) / double(n_slots);
        columns[i] = share > 0 ? std::max(1, int(std::lround(share * kBarColumns))) : 0;
        left -= columns[i];
        if (columns[i] > columns[largest]) largest = int(i);
    }
    columns[largest] += left;
    std::string bar;
    for (size_t i = 0; i < std::size(kTiers); i++)
        for (int k = 0; k < columns[i]; k++)
            bar += has_unicode() ? kTiers[i].block : kTiers[i].letter;
    return bar;
}

// Prints how many slots of each tier a head has on average. local: of the layers that see a window;
// else of the layers that see all tokens.
static void print_tiers(FILE* out, const Session& session, bool local)
{
    const Cache& cache = session.cache();
    CacheTiers tiers;
    uint64_t heads = 0, n_slots = 0, n_layers = 0;
    bool bounded = false;
    for (uint32_t il = 0; il < cache.n_layers(); il++) {
        if (cache.layer(il).spec.local != local) continue;
        const CacheTiers of_layer = tiers_of(cache, il, session.n_tokens());
        for (const Tier& tier : kTiers) {
            tiers.*tier.slots += of_layer.*tier.slots;
            n_slots += of_layer.*tier.slots;
        }
        heads += cache.layer(il).spec.n_kv_heads;
        bounded |= cache.layer(il).spec.bounded;
        n_layers++;
    }
    if (!n_layers) return;
    const std::string name = grouped(n_layers) + (n_layers == 1 ? " layer" : " layers");
    fprintf(out, "  %-14s %s  %s slots in each head%s\n  %-14s", name.c_str(),
            tier_bar(tiers, n_slots).c_str(), grouped(n_slots / heads).c_str(),
            !local    ? ""
            : bounded ? ", a shorter window"
                      : ", the model's window",
            "");
    const char* gap = "";
    for (const Tier& tier : kTiers) {
        const uint64_t n = tiers.*tier.slots;
        if (!n) continue;
        fprintf(out, "%s %s %s %s", gap, has_unicode() ? tier.block : tier.letter,
                n < heads ? "<1" : grouped(n / heads).c_str(), tier.name);
        gap = " ";
    }
    fputc('\n', out);
}

// The beginning of a text in at most `columns` columns. Control characters become blanks.
static std::string beginning(const std::string& text, int columns)
{
    std::string shown;
    int used = 0;
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    for (size_t at = 0; at < text.size();) {
        utf8proc_int32_t c = 0;
        const utf8proc_ssize_t n =
            utf8proc_iterate(bytes + at, utf8proc_ssize_t(text.size() - at), &c);
        const utf8proc_category_t category = n > 0 ? utf8proc_category(c) : UTF8PROC_CATEGORY_CC;
        const bool visible =
            (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ZS) &&
            (c < 0x80 || has_unicode());
        const int width = visible ? utf8proc_charwidth(c) : 1;
        if (used + width > columns) return shown + "...";
        used += width;
        shown += visible ? text.substr(at, size_t(n)) : std::string(" ");
        at += size_t(std::max<utf8proc_ssize_t>(n, 1));
    }
    return shown;
}

// Prints how many of the tokens [first, end) have a slot in any head, and the mean share of heads.
static void print_left(FILE* out, const Session& session, const std::string& name, uint32_t first,
                       uint32_t end, const std::string& words)
{
    if (first >= end) return;
    std::vector<uint32_t> holders(end - first);
    const uint64_t heads =
        count_holders(session.cache(), session.n_tokens(), first, end - first, holders.data());
    uint64_t held = 0, slots = 0;
    for (uint32_t n : holders) {
        held += n > 0;
        slots += n;
    }
    const double share = double(slots) / double(heads * (end - first));
    std::string bar;
    for (int i = 0; i < kShareColumns; i++)
        bar += share * kShareColumns > i ? (has_unicode() ? "\u2588" : "#")
                                         : (has_unicode() ? "\u2591" : ".");
    const int columns =
        is_terminal(fileno(out)) ? terminal_columns(fileno(out)) - kTextColumns : 40;
    fprintf(out, "  %-14s %9s %12s  %s %3.0f%%  %s\n", name.c_str(), grouped(end - first).c_str(),
            held == end - first ? "all" : grouped(held).c_str(), bar.c_str(),
            std::floor(share * 100), columns < 8 ? "" : beginning(words, columns - 3).c_str());
}

static void print_turns(FILE* out, const Session& session, const std::vector<TurnBegin>& turns)
{
    uint32_t n_pinned = 0, unused = 0;
    for (uint32_t il = 0; il < session.cache().n_layers(); il++)
        n_pinned = std::max(n_pinned, session.cache().layer(il).spec.n_pinned);
    const uint32_t heads = count_holders(session.cache(), session.n_tokens(), 0, 0, &unused);
    fprintf(out,
            "\n  Each of the %u heads of all layers chooses the tokens that it keeps. What is left "
            "of the conversation:\n  %-14s %9s %12s  %s\n",
            heads, "", "tokens", "in any head", "share of heads");
    print_left(out, session, "opening", 0, turns[0].position,
               "system prompt, " + grouped(n_pinned) + " tokens pinned");
    const size_t before = turns.size() > kTurnsShown ? turns.size() - kTurnsShown : 0;
    if (before)
        print_left(out, session, "turns 1 to " + std::to_string(before), turns[0].position,
                   turns[before].position, "");
    for (size_t i = before; i < turns.size(); i++) {
        const uint32_t end = i + 1 < turns.size() ? turns[i + 1].position : session.n_tokens();
        print_left(out, session, "turn " + std::to_string(i + 1), turns[i].position, end,
                   turns[i].words);
    }
}

void print_cache(FILE* out, const Session& session, const std::vector<TurnBegin>& turns)
{
    for (bool local : {false, true}) print_tiers(out, session, local);
    uint64_t heads = 0; // of layers that evict
    for (uint32_t il = 0; il < session.cache().n_layers(); il++) {
        const CacheLayerSpec& spec = session.cache().layer(il).spec;
        heads += spec.bounded ? spec.n_kv_heads : 0;
    }
    if (heads == 0) return;
    const uint64_t gone = session.evicted() / heads, merged = session.merged() / heads;
    if (gone == 0) {
        fprintf(out, "  %-14s nothing yet\n", "evicted");
    } else {
        fprintf(out, "  %-14s %s of %s tokens in each head, on average", "evicted",
                grouped(gone - merged).c_str(), grouped(session.n_tokens()).c_str());
        if (session.merged())
            fprintf(out, ", and merged %s into others", merged ? grouped(merged).c_str() : "<1");
        fputc('\n', out);
    }
    if (!turns.empty()) print_turns(out, session, turns);
}

} // namespace ks
