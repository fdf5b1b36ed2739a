// Plans several recipes before loading anything. Opens the first that holds TOKENS tokens, else the
// one with the most slots. Usage: budget MODEL MIB TOKENS TEXT
#include <knapsack.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace
{

// From lossless to lossy. All but the first accept texts of any length: they evict tokens when
// their slots are full.
const char* const kRecipes[] = {"exact", "q8", "turbo4,v=turbo3", "turbo2"};

double mib(uint64_t bytes)
{
    return double(bytes) / (1 << 20);
}

ks_model_options options_for(char** argv, const char* recipe)
{
    ks_model_options options = {};
    options.struct_size = sizeof options;
    options.model_path = argv[1];
    options.memory_bytes = strtoull(argv[2], nullptr, 10) << 20;
    options.context = strtoll(argv[3], nullptr, 10);
    options.recipe = recipe;
    return options;
}

// Reads the text and generates up to 32 tokens.
int run(const ks_model_options& options, const char* text)
{
    char error[400], piece[256];
    ks_model* model = nullptr;
    ks_session* session = nullptr;
    int code = ks_model_open(&options, &model, error, sizeof error);
    if (code == KS_OK) code = ks_session_open(model, &session, error, sizeof error);
    if (code != KS_OK) {
        fprintf(stderr, "budget: %s\n", error);
        return code;
    }
    std::vector<uint32_t> ids(ks_tokenize(model, text, strlen(text), 0, nullptr, 0));
    ks_tokenize(model, text, strlen(text), 0, ids.data(), ids.size());
    code = ks_feed(session, ids.data(), ids.size());
    for (int i = 0; i < 32 && code == KS_OK; i++) {
        uint32_t id = 0;
        code = ks_sample(session, &id);
        if (code != KS_OK || ks_is_end(model, id)) break;
        const size_t bytes = ks_piece(model, id, piece, sizeof piece);
        fwrite(piece, 1, bytes < sizeof piece ? bytes : sizeof piece, stdout);
        code = ks_feed(session, &id, 1);
    }
    putchar('\n');
    if (code != KS_OK) fprintf(stderr, "budget: %s\n", ks_error(session));
    ks_stats stats = {};
    stats.struct_size = sizeof stats;
    ks_get_stats(session, &stats);
    const bool kept =
        stats.peak_bytes == stats.plan_bytes && stats.peak_bytes <= options.memory_bytes;
    fprintf(stderr, "held %llu bytes of %llu: %s\n", (unsigned long long)stats.peak_bytes,
            (unsigned long long)options.memory_bytes, kept ? "as planned" : "not as planned");
    ks_session_close(session);
    ks_model_close(model);
    return code != KS_OK ? code : kept ? 0 : KS_NO_FIT;
}

} // namespace

int main(int argc, char** argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: budget MODEL MIB TOKENS TEXT\n");
        return KS_USAGE;
    }
    fprintf(stderr, "%-24s %9s %9s %9s %11s\n", "recipe", "smallest", "plan", "slots",
            "bytes/token");
    const char* chosen = nullptr;
    uint32_t most = 0;
    for (const char* recipe : kRecipes) {
        char error[400];
        ks_stats s = {};
        s.struct_size = sizeof s;
        const ks_model_options options = options_for(argv, recipe);
        const int code = ks_plan(&options, &s, error, sizeof error);
        if (code != KS_OK) {
            fprintf(stderr, "budget: %s: %s\n", recipe, error);
            if (code == KS_UNSUPPORTED) continue; // for example because of the model's head size
            return code;
        }
        fprintf(stderr, "%-24s %6.1fMiB %6.1fMiB %9u %11llu%s\n", recipe, mib(s.smallest_bytes),
                mib(s.plan_bytes), s.slots, (unsigned long long)s.bytes_per_token,
                s.fits ? "" : "  does not fit");
        if (!s.fits || s.slots <= most) continue;
        chosen = recipe;
        most = s.slots;
        if (most >= s.context) break; // every token has a slot
    }
    if (!chosen) {
        fprintf(stderr, "budget: nothing fits; see the column `smallest`\n");
        return KS_NO_FIT;
    }
    fprintf(stderr, "taken: %s\n", chosen);
    return run(options_for(argv, chosen), argv[4]);
}
