// One question, one answer in C++: smart pointers close the model and the session.
// Usage: ask_cpp MODEL MIB QUESTION
#include <knapsack.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

struct Close {
    void operator()(ks_model* model) const { ks_model_close(model); }
    void operator()(ks_session* session) const { ks_session_close(session); }
};
using Model = std::unique_ptr<ks_model, Close>;
using Session = std::unique_ptr<ks_session, Close>;

int main(int argc, char** argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: ask_cpp MODEL MIB QUESTION\n");
        return KS_USAGE;
    }
    ks_model_options options = {};
    options.struct_size = sizeof options;
    options.model_path = argv[1];
    options.memory_bytes = strtoull(argv[2], nullptr, 10) << 20;
    options.log = [](void*, const char* sentence) { fprintf(stderr, "%s\n", sentence); };

    char error[400];
    ks_model* model = nullptr;
    ks_session* opened = nullptr;
    int code = ks_model_open(&options, &model, error, sizeof error);
    const Model owned(model);
    if (code == KS_OK) code = ks_session_open(model, &opened, error, sizeof error);
    if (code != KS_OK) {
        fprintf(stderr, "ask_cpp: %s\n", error);
        return code;
    }
    const Session session(opened);
    code = ks_feed_turn(session.get(), nullptr, argv[3]);
    uint32_t id = 0;
    for (int i = 0;
         i < 64 && code == KS_OK && ks_sample(session.get(), &id) == KS_OK && !ks_is_end(model, id);
         i++) {
        char piece[256];
        const size_t bytes = ks_piece(model, id, piece, sizeof piece);
        fwrite(piece, 1, bytes < sizeof piece ? bytes : sizeof piece, stdout);
        code = ks_feed(session.get(), &id, 1);
    }
    if (code != KS_OK) fprintf(stderr, "ask_cpp: %s\n", ks_error(session.get()));
    putchar('\n');
    return code;
}
