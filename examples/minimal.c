/* The smallest use of Knapsack: continues a text greedily inside a budget.
 * Usage: minimal MODEL MIB TEXT */
#include <knapsack.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: minimal MODEL MIB TEXT\n");
        return KS_USAGE;
    }
    ks_model_options options = {.struct_size = sizeof options};
    options.model_path = argv[1];
    options.memory_bytes = strtoull(argv[2], NULL, 10) << 20;

    char error[400];
    ks_model* model;
    ks_session* session;
    int code = ks_model_open(&options, &model, error, sizeof error);
    if (code == KS_OK) code = ks_session_open(model, &session, error, sizeof error);
    if (code != KS_OK) {
        fprintf(stderr, "minimal: %s\n", error);
        return code;
    }

    uint32_t ids[512], id;
    size_t n = ks_tokenize(model, argv[3], strlen(argv[3]), 0, ids, 512);
    code = ks_feed(session, ids, n < 512 ? n : 512);
    for (int i = 0; i < 32 && code == KS_OK; i++) {
        ks_sample(session, &id);
        if (ks_is_end(model, id)) break;
        char piece[256];
        size_t bytes = ks_piece(model, id, piece, sizeof piece);
        fwrite(piece, 1, bytes < sizeof piece ? bytes : sizeof piece, stdout);
        code = ks_feed(session, &id, 1);
    }
    if (code != KS_OK) fprintf(stderr, "minimal: %s\n", ks_error(session));
    putchar('\n');
    ks_session_close(session);
    ks_model_close(model);
    return code;
}
