/* Knapsack: a language model inside a fixed number of bytes. This header is the whole interface, and its manual;
 * C99 and C++11 read it.
 *
 *     ks_options options = {.struct_size = sizeof options};
 *     options.model_path = "model.gguf";
 *     options.memory_bytes = 256u << 20;
 *     ks_session* session;
 *     char error[400];
 *     if (ks_open(&options, &session, error, sizeof error) != KS_OK) { puts(error); return 1; }
 *     ks_feed_turn(session, NULL, "Why is the sky blue?");
 *     for (uint32_t id; ks_sample(session, &id) == KS_OK && !ks_is_end(session, id); ks_feed(session, &id, 1)) {
 *         char piece[256];
 *         size_t bytes = ks_piece(session, id, piece, sizeof piece);
 *         fwrite(piece, 1, bytes < sizeof piece ? bytes : sizeof piece, stdout);
 *     }
 *     ks_close(session);
 *
 * Units. Sizes are in bytes, lengths and positions of a text in tokens. A token is a number below n_vocab (ks_get_stats()). Strings
 * are UTF-8; texts to tokenize may hold any bytes.
 *
 * Errors. A call that can fail returns KS_OK or one of the codes below, and one sentence of printable ASCII that names the thing, what
 * was expected and what was found: in the `error` buffer, which may be NULL and is cut to its size, or, where there is a session, from
 * ks_error(). Nothing is thrown across this interface, and the library prints nothing; only a bug in it ends the program, with the
 * values that show it on standard error. Pointers must be valid, and NULL only where it is said. A struct whose struct_size is not that
 * of this version is refused with KS_USAGE.
 *
 * Ownership. What is given to a call is read or copied before it returns; kept are only `memory` and what the callbacks are called
 * with, until ks_close(). What a call returns a pointer to belongs to the session.
 *
 * Threads. A session may be used from any thread, by one at a time. ks_cancel() alone may be called at any moment between ks_open() and
 * ks_close(), from any thread or a signal handler. Sessions share nothing that changes: any number may live in one process and compute
 * at once. Callbacks are called on the thread that called the library. A session has n_threads - 1 threads of its own, which sleep
 * while nothing is computed; none survives ks_close(), and none survives a fork() in the child.
 *
 * Memory. ks_open() takes what the plan says, in a few large blocks, and nothing later: ks_feed(), ks_logits(), ks_sample() and
 * ks_piece() allocate nothing. (ks_tokenize(), ks_feed_turn(), ks_rewind(), ks_set_sampling(), ks_save() and ks_load() use the heap, and
 * ks_piece() for a token that does not fit. Not in the plan: the session's small objects, some tens of KiB; the stacks of its
 * threads; what a GPU's driver takes.)
 */
#ifndef KNAPSACK_H
#define KNAPSACK_H

#include <stddef.h>
#include <stdint.h>

/* Semantic versioning: while the first number is 0, a new second one may change this interface; a new third one never does. */
#define KS_VERSION_MAJOR 0
#define KS_VERSION_MINOR 1
#define KS_VERSION_PATCH 0

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

enum {
    KS_OK = 0,
    KS_USAGE = 1,         /* a call that makes no sense; nothing was changed */
    KS_INVALID = 2,       /* the file is unreadable, or not what it claims to be */
    KS_UNSUPPORTED = 3,   /* architecture, format or recipe that this build cannot run */
    KS_NO_FIT = 4,        /* more memory or context needed than there is */
    KS_DEVICE = 5,        /* there is no such device, or it failed: then the session is of no more use than to be closed */
    KS_IO = 6,            /* a file cannot be written */
    KS_INTERRUPTED = 130, /* by ks_cancel() or the progress callback */
};

typedef struct ks_session ks_session; /* a model, open in its memory, and the text that it has read so far */

/* Zero means the default everywhere, so `ks_options o = {.struct_size = sizeof o};` (in C++ `{sizeof o}`) is enough to start from. */
typedef struct ks_options {
    size_t struct_size;     /* sizeof(ks_options) */
    const char* model_path; /* a GGUF file, or the first of a split set; needed */
    const char* device;     /* "cpu", "reference", "cuda", "vulkan:1", ... as ks_get_device() lists them; default: the best that is there */
    const char* recipe;     /* how the cache holds tokens, as docs/recipes.md says; default "auto" */
    uint64_t memory_bytes;  /* hard total; default: what the device has free */
    uint64_t kv_memory_bytes; /* hard limit of the cache alone; default: none */
    int64_t context;          /* tokens; 0: as many as fit, at most the model's; -1: the model's. Only "exact" is full then */
    int32_t n_threads;        /* default: one per core */
    void* memory;             /* a block to live in, instead of the system's; owned by the caller, outlives the session. On a GPU: the
                                 host's part */
    size_t memory_size;       /* its bytes: those of the plan and three pages of 4096 for alignment; two where it begins with a page */
    /* How far ks_open() ("loading weights", bytes) and the reading of several tokens ("reading prompt", tokens) are, after each piece of
     * work. Returning 0 interrupts. It may call ks_cancel(), no other function of this session, and throws nothing. */
    int (*progress)(void* user, const char* stage, uint64_t done, uint64_t total);
    /* What a person who looks for a fault wants to know: the device and the plan that ks_open() chose, a text that must be read again.
     * One sentence, valid during the call. The same rules. */
    void (*log)(void* user, const char* sentence);
    void* user; /* given to both */
} ks_options;

typedef struct ks_stats {
    size_t struct_size;       /* sizeof(ks_stats) */
    uint64_t budget_bytes;    /* memory_bytes, or what the device had free */
    uint64_t plan_bytes;      /* the whole plan. Where it does not fit, it and what follows are those of the smallest that would */
    uint64_t peak_bytes;      /* what was ever held; equals plan_bytes once open. 0 from ks_plan() */
    uint64_t smallest_bytes;  /* the smallest budget that works with these options */
    uint64_t bytes_per_token; /* of the cache, for each of its slots */
    uint32_t fits;            /* 0 or 1 */
    uint32_t context;         /* tokens that are counted on; a cache that gives up slots reads on beyond */
    uint32_t slots;           /* tokens that each head of a layer has room for; the context, where none is given up */
    uint32_t n_tokens;        /* tokens in the text now; 0 from ks_plan(), as the next three */
    uint32_t n_vocab;
    uint64_t evicted, merged; /* slots that the text has given up, over all layers and heads, and how many of them live on in another */
    char device[32];          /* "cpu" */
    char recipe[256];         /* in full, also what "auto" has chosen: "exact,k=f16,v=f16" */
} ks_stats;

typedef struct ks_bias {
    uint32_t id;
    float bias; /* is added to the token's logit; -INFINITY: it is never chosen */
} ks_bias;

/* Temperature and penalties have magnitudes of 1e6 at most, all others lie between 0 and 1. */
typedef struct ks_sampling {
    size_t struct_size;      /* sizeof(ks_sampling) */
    float temperature;       /* 0: the most probable token; the lower id where two are equal */
    uint32_t top_k;          /* draw from so many of the most probable; 0: off */
    float top_p;             /* from the most probable that make up so much together; 0 or 1: off */
    float min_p;             /* from those that are at least so many times as probable as the first; 0: off */
    float typical_p;         /* locally typical sampling; 0 or 1: off */
    float repeat_penalty;    /* divides the logits of recent tokens; 0 or 1: off */
    float presence_penalty;  /* is taken from the logits of recent tokens */
    float frequency_penalty; /* the same, times how often */
    uint32_t repeat_last_n;  /* how many tokens are recent: of those that ks_sample() chose. 0: none. At most 2^20 */
    uint64_t seed;           /* the same seed, options and logits give the same tokens */
    const ks_bias* biases;   /* n_biases of them */
    size_t n_biases;
} ks_sampling;

/* A device that ks_open() can take. */
typedef struct ks_device {
    size_t struct_size; /* sizeof(ks_device) */
    char id[32];        /* as ks_options.device names it: "cpu", "vulkan:1" */
    char name[128];
    uint64_t memory_bytes; /* all that it has */
    uint64_t free_bytes;   /* the default of ks_options.memory_bytes */
    uint32_t unified;      /* 1: the host's memory is its own */
} ks_device;

/* The library's version, "0.1.0"; the macros above are the header's. */
const char* ks_version(void);

/* The n-th device of this machine, from 0 on, the best one first: the one that is taken by default. KS_DEVICE: there are not so many. */
int ks_get_device(uint32_t n, ks_device* out, char* error, size_t error_bytes);

/* Reads the model's header only and says what ks_open() would take with these options. A plan that does not fit is KS_OK with fits = 0;
 * then smallest_bytes says what would. Cheap enough to ask for several recipes and contexts before one is opened. `memory` and the
 * callbacks are not used. */
int ks_plan(const ks_options* options, ks_stats* out, char* error, size_t error_bytes);

/* Takes the memory and reads the weights. On failure *out is NULL and everything is given back. KS_NO_FIT: the sentence says the
 * smallest budget that works. The model's file is not needed any more afterwards. */
int ks_open(const ks_options* options, ks_session** out, char* error, size_t error_bytes);
void ks_close(ks_session* session); /* gives everything back; NULL is fine */

/* The sentence of the last call that returned a code, "" where that was KS_OK; valid until the next such call. */
const char* ks_error(const ks_session* session);
void ks_get_stats(const ks_session* session, ks_stats* out); /* with another struct_size nothing is written */

/* Text and tokens */

enum {
    KS_TOKENIZE_SPECIAL = 1, /* control tokens in the text become those tokens: never for text that a user wrote */
    KS_TOKENIZE_NO_BOS = 2,  /* nothing around the text: what goes on after other tokens. Else the BOS that the model wants, if any */
};
/* Writes up to `capacity` ids (which may be NULL for 0) and returns how many the text has; 0 where the heap is exhausted, too. */
size_t ks_tokenize(const ks_session* session, const char* text, size_t text_bytes, uint32_t flags, uint32_t* ids, size_t capacity);
/* Writes up to `capacity` bytes (likewise) of a token's text and returns how many it has: not terminated, perhaps part of a character, of
 * which the next token has the rest. Control tokens and ids beyond the vocabulary have none. */
size_t ks_piece(const ks_session* session, uint32_t id, char* out, size_t capacity);
int ks_is_end(const ks_session* session, uint32_t id); /* 1: the model ends its turn with this token, which need not be fed */

/* Reading. After KS_OK there are the logits of the next token. KS_NO_FIT: the exact cache's context is full, and KS_USAGE: an id is not
 * in the vocabulary; nothing was read. KS_INTERRUPTED: n_tokens says how much was; go on, or ks_rewind(). */

/* Appends tokens to the text; 0 of them change nothing. Several at once are read many times faster than one by one. */
int ks_feed(ks_session* session, const uint32_t* ids, size_t n);
/* Appends a turn of a conversation in the model's own chat frame: the end of the answer before (or, to an empty text, its beginning with
 * `system`; NULL: the template's own, or none), the user's message, the beginning of the answer. Both are terminated, and nothing in
 * them becomes a control token. A cache that gives up slots keeps the system text, as far as it takes a quarter of them, and keeps what
 * the frame writes between two messages as a whole. KS_UNSUPPORTED: the model has no chat template, or none of the known ones. */
int ks_feed_turn(ks_session* session, const char* system, const char* user);
/* Forgets the tokens from n_tokens on; 0 begins anew. The text that is left may have to be read again, where the cache no longer holds
 * what it would have held then: as ks_feed() of it. There may be no logits until a token is fed. KS_USAGE: there are not so many tokens.
 * KS_NO_FIT: the text is longer than the context and would have to be read again; it is as before. */
int ks_rewind(ks_session* session, uint32_t n_tokens);
/* The ks_feed(), ks_feed_turn() or ks_rewind() that runs returns KS_INTERRUPTED after the chunk of tokens that it is at. Where none runs,
 * the next one does, so that a request between two tokens is not lost. Once returned it is forgotten, or by ks_clear_cancel(). */
void ks_cancel(ks_session* session);
void ks_clear_cancel(ks_session* session);

/* Choosing the next token */

/* n_vocab logits after the last token fed, or NULL where there are none: before one is fed, after ks_rewind(), or where reading was
 * interrupted. Valid until the next call that reads or forgets tokens. */
const float* ks_logits(const ks_session* session);
/* How ks_sample() draws, from now on; restarts its random stream and forgets which tokens are recent. Before the first call: greedy.
 * KS_USAGE: a number beyond its range, or a bias for no token; what was said before stays. */
int ks_set_sampling(ks_session* session, const ks_sampling* sampling);
/* Chooses a token, and does not feed it. KS_USAGE: there are no logits. */
int ks_sample(ks_session* session, uint32_t* id);

/* A session in a file: the text, its cache as it is, and where ks_sample() stands in its random stream. ks_save() puts a new file
 * into the old one's place when it is whole and on the disk. ks_load() wants the same model and recipe, on whichever device, and
 * goes on as if nothing had been between; what ks_set_sampling() said stays, so say the same. KS_INVALID, KS_UNSUPPORTED,
 * KS_NO_FIT: the file is unreadable, damaged or of another model, of another recipe, or longer than the context; the session is as
 * before. Another version of the library may refuse a file. */
int ks_save(ks_session* session, const char* path);
int ks_load(ks_session* session, const char* path);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#endif
