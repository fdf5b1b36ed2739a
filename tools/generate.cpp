#include "tools/generate.h"

#include "tools/alloc_count.h"

#include <algorithm>
#include <unistd.h>

namespace ks
{

const char* stop_name(Stop stop)
{
    static const char* const kNames[] = {"length", "eos", "string", "interrupted"};
    return kNames[int(stop)];
}

void write_text(std::string_view text)
{
    static const bool terminal = is_terminal(STDOUT_FILENO);
    if (!terminal) fwrite(text.data(), 1, text.size(), stdout);
    for (size_t i = 0; terminal && i < text.size(); i++) {
        uint8_t c = uint8_t(text[i]);
        putchar((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f ? '?' : c);
    }
    fflush(stdout);
}

Status generate(Session& session, Sampler& sampler, TokenText& text, uint64_t limit,
                const Emit& emit, Generated& out)
{
    Stopwatch clock;
    uint64_t allocations_before = 0;
    while (out.ids.size() < limit) {
        uint32_t id = sampler.sample(session.logits());
        if (session.tokenizer().is_end(id)) {
            out.stop = Stop::eos;
            break;
        }
        out.ids.push_back(id);
        emit(text.push(id));
        if (text.stopped()) {
            out.stop = Stop::string;
            break;
        }
        if (out.ids.size() == 1) allocations_before = allocation_count();
        if (out.ids.size() == limit) break;
        Status status = interrupt::pending() ? Status(Code::interrupted, "") : session.feed(&id, 1);
        if (status.code() == Code::interrupted) {
            out.stop = Stop::interrupted;
            break;
        }
        KS_TRY(status);
    }
    emit(text.finish());
    if (!out.ids.empty()) out.allocations = allocation_count() - allocations_before;
    out.seconds = clock.seconds();
    return {};
}

} // namespace ks
