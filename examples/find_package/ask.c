/* One question, one answer.
 * Usage: ask MODEL MIB QUESTION */
#include <knapsack.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: ask MODEL MIB QUESTION\n");
        return KS_USAGE;
    }
    ks_model_options options = {.struct_size = sizeof options};
    options.model_path = argv[1];
    options.memory_bytes = strtoull(argv[2], NULL, 10) << 20;

    char error[400], piece[256];
    ks_model* model;
    ks_session* session;
    int code = ks_model_open(&options, &model, error, sizeof error);
    if (code == KS_OK) code = ks_session_open(model, &session, error, sizeof error);
    if (code != KS_OK) {
        fprintf(stderr, "ask: %s\n", error);
        return code;
    }
    code = ks_feed_turn(session, NULL, argv[3]);
    for (int i = 0; i < 64 && code == KS_OK; i++) {
        uint32_t id;
        ks_sample(session, &id);
        if (ks_is_end(model, id)) break;
        size_t bytes = ks_piece(model, id, piece, sizeof piece);
        fwrite(piece, 1, bytes < sizeof piece ? bytes : sizeof piece, stdout);
        code = ks_feed(session, &id, 1);
    }
    if (code != KS_OK) fprintf(stderr, "ask: %s\n", ks_error(session));
    putchar('\n');
    ks_session_close(session);
    ks_model_close(model);
    return code;
}
