// One question, one answer in C++: a smart pointer closes the session.
// Usage: ask_cpp MODEL MIB QUESTION
#include <knapsack.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

struct Close {
    void operator()(ks_session* session) const { ks_close(session); }
};
using Session = std::unique_ptr<ks_session, Close>;

int main(int argc, char** argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: ask_cpp MODEL MIB QUESTION\n");
        return KS_USAGE;
    }
    ks_options options = {};
    options.struct_size = sizeof options;
    options.model_path = argv[1];
    options.memory_bytes = strtoull(argv[2], nullptr, 10) << 20;
    options.log = [](void*, const char* sentence) { fprintf(stderr, "%s\n", sentence); };

    char error[400];
    ks_session* opened = nullptr;
    int code = ks_open(&options, &opened, error, sizeof error);
    if (code != KS_OK) {
        fprintf(stderr, "ask_cpp: %s\n", error);
        return code;
    }
    Session session(opened);
    code = ks_feed_turn(session.get(), nullptr, argv[3]);
    uint32_t id = 0;
    for (int i = 0; i < 64 && code == KS_OK && ks_sample(session.get(), &id) == KS_OK &&
                    !ks_is_end(session.get(), id);
         i++) {
        char piece[256];
        const size_t bytes = ks_piece(session.get(), id, piece, sizeof piece);
        fwrite(piece, 1, bytes < sizeof piece ? bytes : sizeof piece, stdout);
        code = ks_feed(session.get(), &id, 1);
    }
    if (code != KS_OK) fprintf(stderr, "ask_cpp: %s\n", ks_error(session.get()));
    putchar('\n');
    return code;
}
