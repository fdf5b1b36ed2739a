/* Two conversations on one model, whose weights are there once. Each step reads the next token of
 * both answers together.
 * Usage: two_conversations MODEL MIB QUESTION QUESTION */
#include <knapsack.h>

#include <stdio.h>
#include <stdlib.h>

enum { N = 2, MAX_TOKENS = 32 };

struct conversation {
    ks_session* session;
    uint32_t id; /* the last token of the answer */
    int ended;
    char answer[4096];
    size_t bytes;
};

/* Chooses the next token. Returns 0 at the end of the answer. */
static int choose(const ks_model* model, struct conversation* c)
{
    c->ended = ks_sample(c->session, &c->id) != KS_OK || ks_is_end(model, c->id);
    if (c->ended) return 0;
    size_t room = sizeof c->answer - c->bytes;
    size_t bytes = ks_piece(model, c->id, c->answer + c->bytes, room);
    c->bytes += bytes < room ? bytes : room;
    return 1;
}

/* Writes the answers to the questions. */
static int answer(ks_model* model, struct conversation* all, char** questions, char* error,
                  size_t error_bytes)
{
    for (int i = 0; i < N; i++) {
        int code = ks_session_open(model, &all[i].session, error, error_bytes);
        if (code != KS_OK) return code;
        code = ks_feed_turn(all[i].session, NULL, questions[i]);
        if (code != KS_OK) {
            snprintf(error, error_bytes, "%s", ks_error(all[i].session));
            return code;
        }
    }
    for (int t = 0; t < MAX_TOKENS; t++) {
        ks_step_input inputs[N];
        size_t n = 0; /* answers that go on */
        for (int i = 0; i < N; i++) {
            struct conversation* c = &all[i];
            if (!c->ended && choose(model, c))
                inputs[n++] = (ks_step_input){.session = c->session, .ids = &c->id, .n = 1};
        }
        if (n == 0) break;
        int code = ks_step(model, inputs, n, error, error_bytes);
        if (code != KS_OK) return code;
        for (size_t i = 0; i < n; i++) { /* an input may fail by itself: its context is full */
            if (inputs[i].code == KS_OK) continue;
            snprintf(error, error_bytes, "%s", ks_error(inputs[i].session));
            return inputs[i].code;
        }
    }
    return KS_OK;
}

int main(int argc, char** argv)
{
    if (argc != 3 + N) {
        fprintf(stderr, "usage: two_conversations MODEL MIB QUESTION QUESTION\n");
        return KS_USAGE;
    }
    ks_model_options options = {.struct_size = sizeof options};
    options.model_path = argv[1];
    options.memory_bytes = strtoull(argv[2], NULL, 10) << 20;
    options.n_sessions = N;

    char error[400];
    ks_model* model;
    static struct conversation all[N];
    int code = ks_model_open(&options, &model, error, sizeof error);
    if (code == KS_OK) code = answer(model, all, argv + 3, error, sizeof error);
    if (code != KS_OK) fprintf(stderr, "two_conversations: %s\n", error);
    for (int i = 0; i < N; i++) {
        if (all[i].session) {
            printf("%s\n", argv[3 + i]);
            fwrite(all[i].answer, 1, all[i].bytes, stdout);
            printf("\n");
        }
        ks_session_close(all[i].session);
    }
    ks_model_close(model);
    return code;
}
