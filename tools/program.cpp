#include "tools/program.h"

#include "runtime/base/hash.h"

#include <atomic>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/ioctl.h>
#include <unistd.h>

namespace ks
{

static std::atomic<Session*> g_session{nullptr};
static volatile sig_atomic_t g_interrupted = 0;

static void on_interrupt(int)
{
    if (g_interrupted) _exit(int(Code::interrupted));
    g_interrupted = 1;
    if (Session* session = g_session.load()) session->cancel();
}

void interrupt::install()
{
    struct sigaction action = {};
    action.sa_handler = on_interrupt;
    sigaction(SIGINT, &action, nullptr); // no SA_RESTART: read() returns EINTR
}

void interrupt::watch(Session* session)
{
    g_session.store(session);
}

bool interrupt::pending()
{
    return g_interrupted != 0;
}

void interrupt::clear()
{
    g_interrupted = 0;
    if (Session* session = g_session.load()) session->clear_cancel();
}

void ProgressLine::show(const char* stage, uint64_t done, uint64_t total)
{
    if (!is_terminal(STDERR_FILENO) || total == 0) return;
    auto now = std::chrono::steady_clock::now();
    if (m_percent < 0) m_begin = now;
    int percent = int(double(done) / double(total) * 100);
    bool early = !m_shown && now - m_begin < std::chrono::milliseconds(300);
    if (!early && percent != m_percent) {
        fprintf(stderr, "\r\033[K%s %d%%", stage, percent);
        m_shown = true;
    }
    m_percent = percent;
}

void ProgressLine::begin_prompt(size_t n_tokens)
{
    m_shown = n_tokens > kLongPrompt && is_terminal(STDERR_FILENO);
    show("reading prompt", 0, n_tokens);
}

void ProgressLine::end()
{
    if (m_shown) fprintf(stderr, "\r\033[K");
    m_shown = false;
    m_percent = -1;
}

Status with_flags(const Status& status, Code code, const char* flags)
{
    return status.code() == code ? Status(code, status.message() + " (" + flags + ")") : status;
}

Result<std::unique_ptr<Session>> open_session(const ModelOptions& options, ProgressLine& progress,
                                              bool quiet)
{
    ModelOptions with_progress = options;
    with_progress.progress = [&progress](const char* stage, uint64_t done, uint64_t total) {
        progress.show(stage, done, total);
        return !interrupt::pending();
    };
    Result<std::shared_ptr<Model>> model = Model::open(with_progress);
    progress.end();
    if (!model.ok()) return with_flags(model.status(), Code::no_fit, "--memory, --kv-memory, -c");
    Result<std::unique_ptr<Session>> session = model.value()->open_session();
    if (!session.ok()) return session;
    interrupt::watch(session.value().get());
    if (options.device.empty() && !quiet)
        fprintf(stderr, "device: %s\n", printable(model.value()->device_name(), 200).c_str());
    return session;
}

Status read_file(const std::string& path, std::string* out)
{
    constexpr size_t kMostBytes = 256 << 20;
    const char* name = path == "-" ? "standard input" : path.c_str();
    FILE* file = path == "-" ? stdin : fopen(path.c_str(), "rb");
    if (!file)
        return fail(Code::io, "%s: cannot open: %s", printable(name, 200).c_str(), strerror(errno));
    out->clear();
    size_t n = 0;
    do {
        size_t had = out->size();
        out->resize(had + (1 << 16));
        n = fread(&(*out)[had], 1, 1 << 16, file);
        out->resize(had + n);
    } while (n > 0 && out->size() <= kMostBytes);
    Status status;
    if (ferror(file))
        status =
            fail(Code::io, "%s: cannot read: %s", printable(name, 200).c_str(), strerror(errno));
    else if (out->size() > kMostBytes)
        status = fail(Code::io, "%s: longer than %zu bytes, the limit",
                      printable(name, 200).c_str(), kMostBytes);
    if (file != stdin) fclose(file);
    return status;
}

static Status parse_ids(const std::string& text, const std::string& path,
                        std::vector<uint32_t>& out)
{
    for (size_t at = 0; at < text.size();) {
        if (isspace(uint8_t(text[at]))) {
            at++;
            continue;
        }
        uint64_t id = 0;
        size_t begin = at;
        while (at < text.size() && isdigit(uint8_t(text[at])) && id <= UINT32_MAX)
            id = id * 10 + uint64_t(text[at++] - '0');
        bool ends = at == text.size() || isspace(uint8_t(text[at]));
        if (at == begin || !ends || id > UINT32_MAX)
            return fail(Code::usage,
                        "%s: expected token ids separated by white space, found '%s' at byte %zu",
                        printable(path, 200).c_str(),
                        printable(std::string_view(text).substr(begin, 20)).c_str(), begin);
        out.push_back(uint32_t(id));
    }
    return {};
}

Status read_prompt(const PromptFlags& options, const Tokenizer& tokenizer, bool continues,
                   std::vector<uint32_t>& out)
{
    std::string text = options.prompt;
    if (options.from_file) KS_TRY(read_file(options.file, &text));
    if (options.ids) {
        KS_TRY(parse_ids(text, options.file, out));
        for (size_t i = 0; i < out.size(); i++)
            if (out[i] >= tokenizer.n_vocab())
                return fail(Code::usage,
                            "%s: token %u at index %zu is not in the vocabulary of %u tokens",
                            printable(options.file, 200).c_str(), out[i], i, tokenizer.n_vocab());
    } else {
        EncodeOptions encoding;
        encoding.add_bos = !continues;
        tokenizer.encode(text, encoding, out);
    }
    if (out.empty() && !continues)
        return Status(Code::usage, "the text has no tokens; at least one is needed");
    return {};
}

Status check_sampling(const SamplerOptions& options, uint32_t n_vocab)
{
    for (const auto& bias : options.logit_bias)
        if (bias.first >= n_vocab)
            return fail(Code::usage, "--logit-bias: token %u is not in the vocabulary of %u tokens",
                        bias.first, n_vocab);
    return {};
}

LoadedTokenizer::~LoadedTokenizer()
{
    MemorySource().release(memory, bytes);
}

Result<std::unique_ptr<LoadedTokenizer>> load_tokenizer(const VocabSource& vocab)
{
    Result<uint64_t> bytes = Tokenizer::bytes_needed(vocab);
    if (!bytes.ok()) return bytes.status();
    Result<void*> memory = MemorySource().take(bytes.value());
    if (!memory.ok()) return memory.status();
    auto loaded = std::make_unique<LoadedTokenizer>();
    loaded->memory = memory.value();
    loaded->bytes = bytes.value();
    KS_TRY(loaded->tokenizer.load(vocab, loaded->memory, loaded->bytes));
    return loaded;
}

bool is_terminal(int fd)
{
    return isatty(fd) == 1;
}

int terminal_columns(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

bool has_colour(int fd)
{
    const char* no = getenv("NO_COLOR");
    const char* term = getenv("TERM");
    return is_terminal(fd) && !(no && *no) && !(term && !strcmp(term, "dumb"));
}

std::string grouped(uint64_t number)
{
    std::string text = std::to_string(number);
    for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
    return text;
}

std::string bytes_hash(const void* bytes, size_t n)
{
    char text[20];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)fnv_bytes(bytes, n));
    return text;
}

std::string logits_hash(const float* logits, uint32_t n)
{
    return bytes_hash(logits, 4ull * n);
}

std::string file_name(const std::string& path)
{
    return printable(path.substr(path.rfind('/') + 1), 100);
}

} // namespace ks
