/* Knapsack runs a language model inside a fixed memory budget. This header is the whole interface
 * and its manual. It is valid C99 and C++11.
 *
 *     ks_model_options options = {.struct_size = sizeof options};
 *     options.model_path = "model.gguf";
 *     options.memory_bytes = 256u << 20;
 *     ks_model* model;
 *     ks_session* session;
 *     char error[400];
 *     int code = ks_model_open(&options, &model, error, sizeof error);
 *     if (code == KS_OK) code = ks_session_open(model, &session, error, sizeof error);
 *     if (code != KS_OK) { puts(error); return code; }
 *     ks_feed_turn(session, NULL, "Why is the sky blue?");
 *     uint32_t id;
 *     while (ks_sample(session, &id) == KS_OK && !ks_is_end(model, id)) {
 *         char piece[256];
 *         size_t bytes = ks_piece(model, id, piece, sizeof piece);
 *         fwrite(piece, 1, bytes < sizeof piece ? bytes : sizeof piece, stdout);
 *         ks_feed(session, &id, 1);
 *     }
 *     ks_session_close(session);
 *     ks_model_close(model);
 *
 * A model is a file that is opened once, on one device and in one budget. It has the weights, the
 * tokenizer and all memory. A session is one text: what it holds of the cache, its position, its
 * sampler. A model has as many sessions as ks_model_options.n_sessions says, and the plan has the
 * memory of all of them. Their texts do not influence each other. ks_step() reads tokens of several
 * sessions together, for which the weights are read once.
 *
 * Units. Sizes are in bytes. Lengths and positions are in tokens. A token is a number below n_vocab
 * (see ks_get_stats()). Strings are UTF-8. Text to tokenize may hold any bytes.
 *
 * Errors. A call that can fail returns KS_OK or another code of the enum below. A failure also sets
 * one sentence of printable ASCII: what is wrong, what was expected and what was found.
 * Calls with `error` write the sentence there, which may be NULL; the sentence is truncated to
 * error_bytes. Other calls keep it in the session for ks_error(). The library never throws
 * and prints nothing. Only a bug in the library aborts the program; it then prints the values
 * involved to standard error. Pointers must be valid. A pointer may be NULL only where this header
 * says so. A struct whose struct_size does not match this version is refused with KS_USAGE.
 *
 * Ownership. Every argument is read or copied before the call returns. The exceptions are `memory`,
 * `user` and the callbacks of ks_model_options: these must stay valid until the model and its
 * sessions are closed, in any order: a session keeps what it needs of its model. A pointer that a
 * call returns belongs to the session.
 *
 * Threads. Any thread may use a session, but only one at a time. Threads may use sessions of one
 * model at once: they compute in turns, a chunk of a prompt or a token at a time, in the order in
 * which they ask. ks_step() uses the sessions of its inputs. The exception is ks_cancel(): any
 * thread or signal handler may call it at any time while the session is open. Models share no
 * mutable state: any number may live and compute at once in one process. Callbacks run on the
 * thread that called the library. A model owns n_threads - 1 worker threads, which sleep while
 * nothing is computed. They end when the model does. ks_model_open() loads with up to seven more,
 * which end before it returns. Threads do not exist in the child of a fork().
 *
 * Memory. ks_model_open() allocates what the plan lists, in a few large blocks. ks_step(),
 * ks_feed(), ks_logits(), ks_sample() and ks_piece() allocate nothing afterwards, unless a cache is
 * encoded anew. (ks_session_open(), ks_session_copy(), ks_tokenize(), ks_feed_turn(), ks_rewind(),
 * ks_set_sampling(), ks_set_grammar(), ks_save() and ks_load() use the heap; so does ks_piece()
 * when the buffer is too small for the token.) The plan does not count small objects of a model and
 * its sessions (some tens of KiB each), the stacks of its threads, and what a GPU driver allocates.
 */
#ifndef KNAPSACK_H
#define KNAPSACK_H

#include <stddef.h>
#include <stdint.h>

/* Semantic versioning. While the major version is 0, a new minor version may change this interface.
 * A new patch version never does. */
#define KS_VERSION_MAJOR 0
#define KS_VERSION_MINOR 2
#define KS_VERSION_PATCH 0

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

enum {
    KS_OK = 0,
    KS_USAGE = 1,       /* invalid call; nothing was changed */
    KS_INVALID = 2,     /* the file is unreadable or malformed */
    KS_UNSUPPORTED = 3, /* this build cannot run the architecture, format or recipe */
    KS_NO_FIT = 4,      /* not enough memory or context */
    KS_DEVICE = 5, /* no such device, or the device failed: then the model can only be closed */
    KS_IO = 6,     /* a file cannot be written */
    KS_INTERRUPTED = 130, /* stopped by ks_cancel() or by the progress callback */
};

typedef struct ks_model ks_model;     /* an open file */
typedef struct ks_session ks_session; /* a text that a model has read */

/* Zero selects the default of every field. Start from
 * `ks_model_options o = {.struct_size = sizeof o};`
 * (in C++ `{sizeof o}`). */
typedef struct ks_model_options {
    size_t struct_size;     /* sizeof(ks_model_options) */
    const char* model_path; /* a GGUF file, or the first file of a split set; required */
    const char* device;     /* an id of ks_get_device(): "cpu", "reference", "cuda", "vulkan:1";
                               default: the best device */
    const char* recipe;    /* how the KV cache holds tokens, see docs/recipes.md; default: "auto" */
    uint64_t memory_bytes; /* hard limit of the total; default: the free memory of the device */
    uint64_t kv_memory_bytes; /* hard limit of the KV caches; default: none */
    int64_t context;   /* in tokens; 0: as many as fit, at most the model's context; -1: the model's
                          context (-c 0 of the program). Only the "exact" cache refuses tokens
                          beyond the context */
    int32_t n_threads; /* default: one per core */
    uint32_t n_sessions;   /* that can be open at once, at most 256; default: 1 */
    uint32_t fixed_shares; /* 1: every session has an equal part of the KV caches. 0: with the
                              recipe "auto" a session that is alone has the bytes of all, and gives
                              of them when others open: see ks_session_open() */
    uint32_t constrained;  /* 1: plan memory for ks_set_grammar() */
    void* memory;       /* a block that the model uses instead of allocating; the caller owns it and
                           keeps it until all is closed. On a GPU it holds the host's part only */
    size_t memory_size; /* bytes of `memory`: the plan plus 3 * 4096 for alignment, or plus 2 * 4096
                           if `memory` is aligned to 4096 */
    /* Called after each piece of work. `stage` is "loading weights" (done and total in bytes) or
     * "reading prompt" (in tokens). Returning 0 interrupts the call. The callback must not throw.
     * Of this model it may call only ks_cancel(). */
    int (*progress)(void* user, const char* stage, uint64_t done, uint64_t total);
    /* Receives diagnostics, one sentence a call: the device and plan that ks_model_open() chose, or
     * that the text must be read again. `sentence` is valid during the call. The rules of
     * `progress` apply. */
    void (*log)(void* user, const char* sentence);
    void* user; /* passed to both callbacks */
} ks_model_options;

typedef struct ks_stats {
    size_t struct_size;    /* sizeof(ks_stats) */
    uint64_t budget_bytes; /* memory_bytes, or the free memory of the device */
    uint64_t plan_bytes;   /* total of the plan; if it does not fit, this and the following describe
                              the smallest plan that works */
    uint64_t peak_bytes;   /* most bytes held at any time; equals plan_bytes once open; 0 from
                              ks_plan() */
    uint64_t smallest_bytes;    /* smallest budget that works with these options */
    uint64_t bytes_per_token;   /* bytes of the KV cache for each slot */
    uint64_t bytes_per_session; /* what one session more costs */
    uint32_t n_sessions;        /* planned */
    uint32_t fits;              /* 1 if the plan fits the budget, else 0 */
    uint32_t context;           /* planned tokens; a cache that evicts also reads longer texts */
    uint32_t slots;    /* slots per layer and KV head; equals context if nothing is evicted */
    uint32_t n_tokens; /* tokens in the text; 0 from ks_plan(), like n_vocab, evicted and merged */
    uint32_t n_vocab;
    uint64_t evicted; /* evicted slots, over all layers and heads */
    uint64_t merged;  /* evicted slots that were merged into another slot */
    char device[32];  /* "cpu" */
    char recipe[256]; /* in full, with what "auto" chose: "exact,k=f16,v=f16" */
} ks_stats;

typedef struct ks_bias {
    uint32_t id;
    float bias; /* added to the logit of the token; -INFINITY: the token is never chosen */
} ks_bias;

/* The magnitude of the temperature and of each penalty is at most 1e6. top_p, min_p and typical_p
 * are in [0, 1]. */
typedef struct ks_sampling {
    size_t struct_size; /* sizeof(ks_sampling) */
    float temperature;  /* 0: greedy, the lower id on ties */
    uint32_t top_k;     /* keep the k most probable tokens; 0: off */
    float top_p; /* keep the most probable tokens whose probabilities sum to top_p; 0 or 1: off */
    float min_p; /* keep tokens with at least min_p times the highest probability; 0: off */
    float typical_p;      /* locally typical sampling; 0 or 1: off */
    float repeat_penalty; /* divides positive and multiplies negative logits of recent tokens; 0 or
                             1: off */
    float presence_penalty;  /* subtracted from the logits of recent tokens */
    float frequency_penalty; /* the same, times the number of occurrences */
    uint32_t repeat_last_n;  /* number of recent tokens, counting only tokens chosen by ks_sample();
                                0: none; at most 2^20 */
    uint64_t seed;           /* equal seeds, options and logits give equal tokens */
    const ks_bias* biases;   /* array of n_biases */
    size_t n_biases;
} ks_sampling;

/* A device that ks_model_open() can use. */
typedef struct ks_device {
    size_t struct_size; /* sizeof(ks_device) */
    char id[32];        /* for ks_model_options.device: "cpu", "vulkan:1" */
    char name[128];
    uint64_t memory_bytes; /* total */
    uint64_t free_bytes;   /* free now; the default of ks_model_options.memory_bytes */
    uint32_t unified;      /* 1: device and host share one memory */
} ks_device;

/* The version of the library, "0.2.0". The macros above are the version of the header. */
const char* ks_version(void);

/* Describes the n-th device of this machine, counted from 0. Device 0 is the default. KS_DEVICE:
 * there are at most n devices. */
int ks_get_device(uint32_t n, ks_device* out, char* error, size_t error_bytes);

/* Computes what ks_model_open() would allocate with these options. Reads only the header of the
 * model. If the plan does not fit, the call returns KS_OK with fits = 0, and smallest_bytes is the
 * budget that would be enough. The call is cheap: compare several recipes and contexts before
 * opening one. `memory` and the callbacks are ignored. */
int ks_plan(const ks_model_options* options, ks_stats* out, char* error, size_t error_bytes);

/* Allocates the memory and reads the weights. On failure *out is NULL and nothing stays allocated.
 * KS_NO_FIT: the sentence names the smallest budget that works. The model does not need its file
 * afterwards, unless a step reads rows of it (Gemma 3n). */
int ks_model_open(const ks_model_options* options, ks_model** out, char* error, size_t error_bytes);
/* The memory is freed when the sessions are closed, too. NULL is allowed. */
void ks_model_close(ks_model* model);

/* Opens a session with an empty text. KS_NO_FIT: as many as n_sessions are open. With the recipe
 * "auto" and without fixed_shares, the first session has the bytes of all KV caches. The next one
 * takes what is free; if nothing is, one session gives up half of its bytes, as a smaller budget
 * would do: the one whose last step is the oldest, on a tie the largest. A session that is about to
 * encode its cache in fewer bits, or to evict, first takes free bytes beside its own. */
int ks_session_open(ks_model* model, ks_session** out, char* error, size_t error_bytes);
void ks_session_close(ks_session* session); /* NULL is allowed */
/* Makes a session a copy of another one of its model: its text, cache and logits, bit for bit as if
 * it had read the same. What several conversations begin with, such as a system prompt, is so read
 * once. The settings of ks_set_sampling() and ks_set_grammar() stay. KS_NO_FIT: the session has
 * fewer bytes for its cache, and the text does not fit; nothing was changed. If the system has no
 * memory left, the session is empty afterwards. */
int ks_session_copy(ks_session* session, ks_session* from);
/* The model of a session, for calls that need one; the caller does not close it. */
const ks_model* ks_session_model(const ks_session* session);

/* The error sentence of the last call on this session that returned a code; "" after KS_OK. Valid
 * until the next such call. */
const char* ks_error(const ks_session* session);
/* Describes a session and its model. Writes nothing if out->struct_size is wrong. */
void ks_get_stats(const ks_session* session, ks_stats* out);

/* Text and tokens */

enum {
    /* Parse control tokens in the text. Do not set this for text that a user wrote. */
    KS_TOKENIZE_SPECIAL = 1,
    /* The text continues other tokens: add neither BOS nor EOS. Without this flag, BOS and EOS are
     * added if the model wants them. */
    KS_TOKENIZE_NO_BOS = 2,
};
/* Writes at most `capacity` ids and returns the number of tokens in the text. `ids` may be NULL if
 * capacity is 0. Returns 0 if the heap is exhausted. */
size_t ks_tokenize(const ks_model* model, const char* text, size_t text_bytes, uint32_t flags,
                   uint32_t* ids, size_t capacity);
/* Writes at most `capacity` bytes of the text of a token and returns its length in bytes. `out` may
 * be NULL if capacity is 0. The text is not terminated. It may end inside a UTF-8 character, which
 * the next token completes. Control tokens and ids beyond the vocabulary have no text. */
size_t ks_piece(const ks_model* model, uint32_t id, char* out, size_t capacity);
/* Returns 1 if the token ends the answer of the model. It need not be fed. */
int ks_is_end(const ks_model* model, uint32_t id);

/* Reading. After KS_OK the logits of the next token are available. KS_NO_FIT: the context of the
 * exact cache is full; nothing was read. KS_USAGE: an id is not in the vocabulary; nothing was
 * read. KS_INTERRUPTED: a part was read, and ks_stats.n_tokens counts it. Then either feed the rest
 * or call ks_rewind(). */

/* Appends n tokens to the text; n = 0 changes nothing. One call with many tokens is much faster
 * than one call for each token. */
int ks_feed(ks_session* session, const uint32_t* ids, size_t n);
/* The next tokens of one session. */
typedef struct ks_step_input {
    ks_session* session;
    const uint32_t* ids; /* (n) */
    size_t n;
    /* Set by ks_step(): how many tokens were read; the next step goes on behind them. */
    size_t n_read;
    /* Set by ks_step(): what ks_feed() would return for this session alone, see ks_error(). */
    int code;
} ks_step_input;
/* Reads tokens of several sessions of one model together, each at most once. It reads all inputs
 * of one token, and chunks of the others, the first ones first, as far as it has room: at least one
 * chunk. Logits follow the last token of an input. Each text reads the same chunks, and on the CPU
 * gets the same bits, as with ks_feed() alone and the same part of the caches. An input that fails
 * by itself does not stop others. Other failures concern all, and nothing was read: of the device,
 * or KS_USAGE for an input without a session, with one of another model or with one that has an
 * input before it. */
int ks_step(ks_model* model, ks_step_input* inputs, size_t n, char* error, size_t error_bytes);
/* Appends a turn of a conversation in the chat template of the model: the end of the previous
 * answer, the message `user`, and the beginning of the next answer. In an empty text the system
 * prompt comes first: `system`, or if NULL the default of the template, if any. Both strings end
 * with a NUL byte. Nothing in them becomes a control token. A cache that evicts pins the system
 * prompt, up to a quarter of the slots. It keeps or evicts the template text between two messages
 * as a whole. KS_UNSUPPORTED: the model has no chat template. KS_INVALID: the template is wrong, or
 * it refuses. */
int ks_feed_turn(ks_session* session, const char* system, const char* user);
/* Makes the text the prompt for the next answer of a conversation. `request` is an object in JSON:
 * "messages" (a list of objects with "role" and "content", and what else the chat template knows:
 * "reasoning_content", "tool_calls"), and if needed "tools" (a list of definitions) and "options"
 * (variables of the template, such as {"enable_thinking": false}). Tokens that the session holds
 * already are kept up to the first difference; the rest is forgotten and read. An answer that the
 * model generated stays as it is if the template would only trim it, or if an evicting cache
 * cannot go back. Nothing in a message becomes a control token. KS_USAGE: the request is
 * malformed. KS_UNSUPPORTED: the model has no chat template. KS_INVALID: the template is wrong, or
 * it refuses; the same if the request is no JSON. */
int ks_feed_chat(ks_session* session, const char* request, size_t request_bytes);
/* Forgets all but the first n_tokens tokens; 0 starts a new text. The remaining text is read again,
 * as by ks_feed(), if the cache no longer holds what it held after n_tokens. Logits may be missing
 * until a token is fed. KS_USAGE: the text is shorter than n_tokens. KS_NO_FIT: the text would have
 * to be read again but is longer than the context; nothing was changed. */
int ks_rewind(ks_session* session, uint32_t n_tokens);
/* Changes the budget of a model whose recipe is "auto", between two calls, by what this session
 * holds; other sessions keep what they have. A smaller one encodes the cache in fewer bits, or
 * gives slots up when there are none fewer; a larger one keeps the codes and has more slots. The
 * text stays. KS_NO_FIT: it is above the budget at open, or leaves no slots. KS_UNSUPPORTED: the
 * recipe is fixed, or the budget at open holds every token as it is. On failure the budget and the
 * text are as before. */
int ks_session_set_memory(ks_session* session, uint64_t bytes);
/* Makes the running ks_feed(), ks_feed_turn() or ks_rewind() return KS_INTERRUPTED after its
 * current chunk of tokens. If none of them is running, the next one is interrupted, so a request
 * between two calls is not lost. Returning KS_INTERRUPTED clears the request, and so does
 * ks_clear_cancel(). */
void ks_cancel(ks_session* session);
void ks_clear_cancel(ks_session* session);

/* Choosing the next token */

/* The n_vocab logits after the last token. NULL if there are none: before a token is fed, after
 * ks_rewind(), after an interrupted call. Valid until the next call that reads or forgets tokens.
 */
const float* ks_logits(const ks_session* session);
/* Sets how ks_sample() draws. Restarts its random stream and clears the recent tokens. Before the
 * first call ks_sample() is greedy. KS_USAGE: a value is out of range, or a bias names no token;
 * the previous settings stay. */
int ks_set_sampling(ks_session* session, const ks_sampling* sampling);
enum {
    KS_GBNF = 1,        /* a grammar as in llama.cpp; its rule `root` is the answer */
    KS_JSON_SCHEMA = 2, /* the answer is JSON that the schema allows. Properties are written in the
                           order of the schema, undeclared ones only if additionalProperties asks
                           for them */
};
/* From now on ks_sample() chooses only tokens that continue a text of this grammar, which begins
 * anew with each call. It chooses an end token only where the text may end. `text` = NULL: any
 * token again. KS_USAGE: ks_model_options.constrained was 0. KS_INVALID: the sentence says where
 * the grammar is wrong, or which keyword of the schema is not supported; the previous grammar
 * stays. */
int ks_set_grammar(ks_session* session, uint32_t kind, const char* text, size_t text_bytes);
/* Chooses the next token without feeding it. KS_USAGE: there are no logits. KS_UNSUPPORTED: the
 * grammar allows no token of this vocabulary. */
int ks_sample(ks_session* session, uint32_t* id);

/* Saving and loading. A file holds the text, the cache as it is, and the position of ks_sample() in
 * its random stream. ks_save() writes a new file and replaces the old one only when the new one is
 * complete and on disk. ks_load() needs the same model and recipe; the device may differ. The
 * session then continues as if it had never been closed. With the recipe "auto" the budgets may
 * differ: codes are kept where they fit; where they do not, the text is read again. The settings of
 * ks_set_sampling() are not in the file: set the same ones. KS_INVALID: the file is unreadable,
 * damaged or of another model. KS_UNSUPPORTED: it has another recipe, or the contexts do not match.
 * KS_NO_FIT: its text is longer than the context, or cannot be read again. After these three the
 * session is unchanged. KS_INTERRUPTED: it was being read again, and the session is empty. Another
 * version of the library may refuse a file. */
int ks_save(ks_session* session, const char* path);
int ks_load(ks_session* session, const char* path);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#endif
