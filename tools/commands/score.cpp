// score: how probable the model finds every token of a text.
#include "tools/json.h"
#include "tools/program.h"

#include <algorithm>
#include <cmath>

namespace ks
{

static void print_json(const Session& session, const std::vector<uint32_t>& ids, const std::vector<double>& logprob,
                       const std::vector<uint32_t>& top)
{
    Json json;
    json.open('{').array("ids", ids).key("logprob").open('[').null();
    for (size_t i = 0; i + 1 < ids.size(); i++) json.value(logprob[i]);
    json.close(']').array("top", top);
    json.member("plan_bytes", session.plan().total_bytes).member("peak_bytes", session.peak_bytes());
    json.member("evicted", session.evicted()).member("merged", session.merged());
    json.member("recipe", session.plan().recipe_text).member("device", session.plan().device).close('}').print();
}

static void print_summary(const std::vector<uint32_t>& ids, const std::vector<double>& logprob, double seconds)
{
    double sum = 0;
    for (double l : logprob) sum += l;
    double mean = logprob.empty() ? 0 : sum / double(logprob.size());
    printf("%s tokens, mean log probability %.4f, perplexity %.4f, %.1f tokens/s\n", grouped(ids.size()).c_str(), mean, std::exp(-mean),
           double(ids.size()) / seconds);
}

Status cmd_score(const Options& options)
{
    ProgressLine progress;
    Result<std::unique_ptr<Session>> opened = open_session(options.session, progress);
    if (!opened.ok()) return opened.status();
    Session& session = *opened.value();
    std::vector<uint32_t> ids;
    KS_TRY(read_prompt(options, session.tokenizer(), false, ids));
    if (ids.size() > session.room())
        return fail(Code::no_fit, "the text has %zu tokens, the context holds %u: raise -c or --memory", ids.size(),
                    session.plan().context);

    size_t n = ids.size(), at = n - std::min<size_t>(n, options.n_decode); // the prompt's part first
    std::vector<double> logprob(n - 1);
    std::vector<uint32_t> top(n);
    progress.begin_prompt(n);
    Stopwatch clock;
    if (at > 0) KS_TRY(session.score(ids.data(), at, ids.data() + 1, std::min(at, n - 1), logprob.data(), top.data()));
    for (; at < n; at++) KS_TRY(session.score(&ids[at], 1, ids.data() + at + 1, at + 1 < n, logprob.data() + at, &top[at]));
    progress.end();
    if (options.json)
        print_json(session, ids, logprob, top);
    else
        print_summary(ids, logprob, clock.seconds());
    return {};
}

} // namespace ks
