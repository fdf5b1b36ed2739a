/* Knapsack: a language model inside a fixed number of bytes.
 *
 *     ks_options options = {sizeof options};
 *     options.model_path = "model.gguf";
 *     options.memory_bytes = 256u << 20;
 *     ks_session* session;
 *     char error[400];
 *     if (ks_open(&options, &session, error, sizeof error) != KS_OK) { puts(error); return 1; }
 *
 * Calls return KS_OK or one of the codes below; the sentence that explains it is in the `error` buffer (before there is a
 * session) or in ks_error(). Strings are UTF-8. A session is used by one thread at a time; only ks_cancel() may be called
 * from any thread or a signal handler. Sessions share nothing: any number may live in one process.
 * Everything is allocated by ks_open(); feeding and sampling tokens allocate nothing.
 */
#ifndef KNAPSACK_H
#define KNAPSACK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    KS_OK = 0,
    KS_USAGE = 1,       /* a call that makes no sense */
    KS_INVALID = 2,     /* the model file is unreadable or invalid */
    KS_UNSUPPORTED = 3, /* architecture, format or recipe that this build cannot run */
    KS_NO_FIT = 4,      /* more memory or context needed than there is */
    KS_DEVICE = 5,
    KS_IO = 6,
    KS_INTERRUPTED = 130, /* by ks_cancel() or the progress callback */
};

typedef struct ks_session ks_session;

/* Zero means the default everywhere, so `ks_options o = {sizeof o};` is enough to start from. */
typedef struct ks_options {
    size_t struct_size;       /* sizeof(ks_options) */
    const char* model_path;   /* a GGUF file, or the first of a split set */
    const char* device;       /* "cpu", "reference"; default: the best that is there */
    const char* recipe;       /* how the cache holds tokens, as --kv; default "auto" */
    uint64_t memory_bytes;    /* hard total; default: what the device has free */
    uint64_t kv_memory_bytes; /* hard limit of the cache alone; default: none */
    int64_t context;          /* tokens; 0: as many as fit, at most the model's; -1: the model's. Only "exact" is full then */
    int32_t n_threads;        /* default: one per core */
    void* memory;             /* a block to live in, instead of the system's; owned by the caller, outlives the session */
    size_t memory_size;       /* its bytes; the plan plus two pages of alignment are needed */
    int (*progress)(void* user, const char* stage, uint64_t done, uint64_t total); /* 0 interrupts */
    void* user;
} ks_options;

typedef struct ks_stats {
    size_t struct_size; /* sizeof(ks_stats) */
    uint64_t budget_bytes;
    uint64_t plan_bytes;     /* what the plan said */
    uint64_t peak_bytes;     /* what was ever held; equals plan_bytes once open. 0 from ks_plan() */
    uint64_t smallest_bytes; /* the smallest budget that works with these options */
    uint64_t bytes_per_token;
    uint32_t fits;     /* 0 or 1 */
    uint32_t context;  /* tokens that are counted on; a cache that gives up slots reads on beyond */
    uint32_t n_tokens; /* tokens in it now */
    uint32_t n_vocab;
    uint64_t evicted, merged; /* slots that the text has given up, and how many of them live on in another */
} ks_stats;

typedef struct ks_sampling {
    size_t struct_size;   /* sizeof(ks_sampling) */
    float temperature;    /* 0: the most probable token */
    uint32_t top_k;       /* 0: off */
    float top_p;          /* 0 or 1: off */
    float min_p;          /* 0: off */
    float typical_p;      /* 0 or 1: off */
    float repeat_penalty; /* 0 or 1: off */
    float presence_penalty, frequency_penalty;
    uint32_t repeat_last_n; /* tokens that the penalties look back on */
    uint64_t seed;
} ks_sampling;

enum {
    KS_TOKENIZE_SPECIAL = 1, /* control tokens in the text become those tokens: never for text that a user wrote */
    KS_TOKENIZE_NO_BOS = 2,
};

const char* ks_version(void);

/* Reads the model's header only and says what ks_open() would take. A plan that does not fit is KS_OK with fits = 0. */
int ks_plan(const ks_options* options, ks_stats* out, char* error, size_t error_bytes);

int ks_open(const ks_options* options, ks_session** out, char* error, size_t error_bytes);
void ks_close(ks_session* session); /* NULL is fine */

/* The sentence of the last call that failed; valid until the next call. */
const char* ks_error(const ks_session* session);
void ks_get_stats(const ks_session* session, ks_stats* out);

/* Writes up to `capacity` ids; returns how many the text has. Any bytes are a text. */
size_t ks_tokenize(const ks_session* session, const char* text, size_t text_bytes, uint32_t flags, uint32_t* ids, size_t capacity);
/* Writes up to `capacity` bytes of a token's text (not terminated, perhaps part of a character); returns how many it has. */
size_t ks_piece(const ks_session* session, uint32_t id, char* out, size_t capacity);
int ks_is_end(const ks_session* session, uint32_t id); /* 1: the model ends its turn with this token */

/* Appends tokens to the text. KS_NO_FIT: the exact cache's context is full, nothing was read. */
int ks_feed(ks_session* session, const uint32_t* ids, size_t n);
/* n_vocab values after the last token fed; valid until the next ks_feed(). */
const float* ks_logits(const ks_session* session);
/* How ks_sample() draws, from now on; restarts its random stream and its memory of tokens. Default: greedy. */
int ks_set_sampling(ks_session* session, const ks_sampling* sampling);
int ks_sample(ks_session* session, uint32_t* id); /* does not feed it */
/* Forgets the tokens from n_tokens on; 0 begins anew. */
int ks_rewind(ks_session* session, uint32_t n_tokens);
/* A session in a file: the text, its cache as it is, and where ks_sample() stands in its random stream. ks_save() puts a new file
 * into the old one's place when it is whole and on the disk. ks_load() wants the same model and recipe, on whichever device, and
 * goes on as if nothing had been between; what ks_set_sampling() said stays, so say the same. KS_INVALID, KS_UNSUPPORTED,
 * KS_NO_FIT: the file is damaged or of another model, of another recipe, or longer than the context; the session is as before. */
int ks_save(ks_session* session, const char* path);
int ks_load(ks_session* session, const char* path);
void ks_cancel(ks_session* session); /* the running ks_feed() returns KS_INTERRUPTED at its next chunk */

#ifdef __cplusplus
}
#endif
#endif
