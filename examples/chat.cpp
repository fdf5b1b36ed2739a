// A conversation in a terminal, inside a budget. Each line is a message. Ctrl-C stops an answer,
// Ctrl-D quits. Usage: chat MODEL MIB [RECIPE [SEED]]
#include <knapsack.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

namespace
{

ks_session* g_session = nullptr; // the session that Ctrl-C interrupts

void on_interrupt(int)
{
    if (g_session) ks_cancel(g_session); // the one call that a signal handler may make
}

int show_progress(void*, const char* stage, uint64_t done, uint64_t total)
{
    fprintf(stderr, "\r%s %u%%%s", stage, unsigned(100 * done / total), done == total ? "\n" : "");
    return 1;
}

// Streams an answer of at most n tokens; returns the code of the last call.
int answer(ks_session* session, uint32_t n)
{
    const ks_model* model = ks_session_model(session);
    std::string piece(256, 0);
    int code = KS_OK;
    uint32_t id = 0;
    while (code == KS_OK && n-- > 0 && (code = ks_sample(session, &id)) == KS_OK &&
           !ks_is_end(model, id)) {
        const size_t bytes = ks_piece(model, id, &piece[0], piece.size());
        if (bytes > piece.size()) { // longer than any piece before
            piece.resize(bytes);
            ks_piece(model, id, &piece[0], bytes);
        }
        std::cout.write(piece.data(), std::streamsize(bytes)).flush();
        code = ks_feed(session, &id, 1);
    }
    std::cout << std::endl;
    return code;
}

// Talks until the end of the input. Returns true if an error ended it.
bool talk(ks_session* session)
{
    std::string message;
    while (std::cerr << "> " << std::flush, std::getline(std::cin, message)) {
        ks_stats before = {};
        before.struct_size = sizeof before;
        ks_get_stats(session, &before);
        ks_clear_cancel(session); // clears a Ctrl-C from after the last answer
        int code = ks_feed_turn(session, nullptr, message.c_str());
        if (code == KS_OK)
            code = answer(session, before.context);
        else if (code == KS_INTERRUPTED)
            ks_rewind(session, before.n_tokens); // drops the interrupted message
        if (code == KS_OK || code == KS_INTERRUPTED) continue;
        fprintf(stderr, "chat: %s\n", ks_error(session));
        if (code != KS_NO_FIT) return true;
        fprintf(stderr, "chat: starting a new conversation\n");
        ks_rewind(session, 0);
    }
    return false;
}

} // namespace

int main(int argc, char** argv)
{
    if (argc < 3 || argc > 5) {
        fprintf(stderr, "usage: chat MODEL MIB [RECIPE [SEED]]\n");
        return KS_USAGE;
    }
    ks_model_options options = {};
    options.struct_size = sizeof options;
    options.model_path = argv[1];
    options.memory_bytes = strtoull(argv[2], nullptr, 10) << 20;
    options.recipe = argc > 3 ? argv[3] : nullptr;
    options.progress = show_progress;

    char error[400];
    ks_model* model = nullptr;
    int code = ks_model_open(&options, &model, error, sizeof error);
    if (code == KS_OK) code = ks_session_open(model, &g_session, error, sizeof error);
    if (code != KS_OK) {
        fprintf(stderr, "chat: %s\n", error);
        return code;
    }
    ks_sampling sampling = {};
    sampling.struct_size = sizeof sampling;
    sampling.temperature = argc > 4 ? 0.8f : 0; // without a seed: greedy, the same answer each time
    sampling.min_p = 0.05f;
    sampling.seed = argc > 4 ? strtoull(argv[4], nullptr, 10) : 0;
    ks_set_sampling(g_session, &sampling);
    signal(SIGINT, on_interrupt);

    const bool failed = talk(g_session);
    ks_stats stats = {};
    stats.struct_size = sizeof stats;
    ks_get_stats(g_session, &stats);
    fprintf(stderr, "%u tokens in %llu bytes, %s\n", stats.n_tokens,
            (unsigned long long)stats.peak_bytes, stats.recipe);
    signal(SIGINT, SIG_DFL);
    ks_session_close(g_session);
    ks_model_close(model);
    return failed;
}
