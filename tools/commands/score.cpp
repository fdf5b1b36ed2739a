// score: the log probability of every token of a text.
#include "tools/json.h"
#include "tools/option_groups.h"
#include "tools/program.h"
#include "tools/scores.h"

#include <algorithm>
#include <cmath>

namespace ks
{

struct ScoreOptions : SessionFlags, PromptFlags, SeedFlag {
    uint32_t n_decode = 0; // the last tokens, fed one by one
    bool json = false;

    void add_to(OptionTable& table)
    {
        add_session(table);
        add_file(table);
        table.add_flag("--ids", "the file of -f holds token ids separated by white space", &ids);
        table.add_number("--decode",
                         "feed the last N tokens one by one, like generated ones; default: 0", 0,
                         INT32_MAX, &n_decode);
        add_seed(table, "accepted as in `knapsack run`; no effect here");
        add_json(table, &json);
    }
    Status finish()
    {
        KS_TRY(finish_session("score"));
        return has_prompt ? Status() : fail(Code::usage, "score: no text given; use -f FILE");
    }
};

static void print_json(const Session& session, const std::vector<uint32_t>& ids,
                       const std::vector<double>& logprob, const std::vector<uint32_t>& top)
{
    Json shown = Json::array().push({}); // null: the first token has none
    for (size_t i = 0; i + 1 < ids.size(); i++) shown.push(logprob[i]);
    Json json = Json::object({{"ids", ids}, {"logprob", shown}, {"top", top}});
    json.set({{"plan_bytes", session.plan().total_bytes},
              {"peak_bytes", session.model().ledger().peak_bytes()}});
    json.set({{"evicted", session.evicted()}, {"merged", session.merged()}});
    json.set({{"recipe", session.plan().recipe_text}, {"device", session.plan().device}});
    json.print();
}

static void print_summary(const std::vector<uint32_t>& ids, const std::vector<double>& logprob,
                          double seconds)
{
    double sum = 0;
    for (double l : logprob) sum += l;
    double mean = logprob.empty() ? 0 : sum / double(logprob.size());
    printf("%s tokens, mean log probability %.4f, perplexity %.4f, %.1f tokens/s\n",
           grouped(ids.size()).c_str(), mean, std::exp(-mean), double(ids.size()) / seconds);
}

static Status score(const ScoreOptions& options)
{
    ProgressLine progress;
    Result<std::unique_ptr<Session>> opened = open_session(options.session, progress);
    if (!opened.ok()) return opened.status();
    Session& session = *opened.value();
    std::vector<uint32_t> ids;
    KS_TRY(read_prompt(options, session.model().tokenizer(), false, ids));
    if (ids.size() > session.n_free_tokens())
        return fail(Code::no_fit,
                    "the text has %zu tokens, the context holds %u; raise -c or --memory",
                    ids.size(), session.plan().context);

    const size_t n = ids.size();
    size_t at = n - std::min<size_t>(n, options.n_decode); // the tokens that are fed at once
    std::vector<double> logprob(n - 1);
    std::vector<uint32_t> top(n);
    progress.begin_prompt(n);
    Stopwatch clock;
    if (at > 0)
        KS_TRY(feed_scored(session, ids.data(), at, ids.data() + 1, std::min(at, n - 1),
                           logprob.data(), top.data()));
    for (; at < n; at++)
        KS_TRY(feed_scored(session, &ids[at], 1, ids.data() + at + 1, at + 1 < n,
                           logprob.data() + at, &top[at]));
    progress.end();
    if (options.json)
        print_json(session, ids, logprob, top);
    else
        print_summary(ids, logprob, clock.seconds());
    return {};
}

extern const Command command_score = {
    "score", "print the log probability of every token of a text", "-m MODEL -f FILE [options]",
    "Without --json only the mean and the perplexity are printed.",
    start_command<ScoreOptions, score>};

} // namespace ks
