#include "runtime/text/pretokenizer.h"

#include "runtime/text/unicode.h"

namespace ks
{

// clang-format off
static const PreTokenizer kPreTokenizers[] = {
    {"", PreTokenizer::plain}, {"default", PreTokenizer::plain}, {"gpt-2", PreTokenizer::gpt2},
    {"phi-2", PreTokenizer::gpt2}, {"mpt", PreTokenizer::gpt2}, {"olmo", PreTokenizer::gpt2},
    {"jais", PreTokenizer::gpt2}, {"trillion", PreTokenizer::gpt2},
    {"granite-docling", PreTokenizer::gpt2}, {"gigachat", PreTokenizer::gpt2},
    {"a.x-4.0", PreTokenizer::gpt2}, {"mellum", PreTokenizer::gpt2},
    {"exaone4", PreTokenizer::gpt2}, {"smollm", PreTokenizer::smollm},
    {"starcoder", PreTokenizer::smollm}, {"refact", PreTokenizer::smollm},
    {"command-r", PreTokenizer::smollm}, {"codeshell", PreTokenizer::smollm},
    {"exaone", PreTokenizer::smollm}, {"minerva-7b", PreTokenizer::smollm},
    {"llama-bpe", PreTokenizer::llama3, true, true}, {"llama3", PreTokenizer::llama3, true, true},
    {"llama-v3", PreTokenizer::llama3, true, true}, {"falcon3", PreTokenizer::llama3, true, true},
    {"falcon-h1", PreTokenizer::llama3, true, true}, {"pixtral", PreTokenizer::llama3, true, true},
    {"midm-2.0", PreTokenizer::llama3, true, true}, {"lfm2", PreTokenizer::llama3, true, true},
    {"dbrx", PreTokenizer::llama3}, {"smaug-bpe", PreTokenizer::llama3},
    {"qwen2", PreTokenizer::qwen2}, {"deepseek-r1-qwen", PreTokenizer::qwen2},
    {"megrez", PreTokenizer::qwen2}, {"kormo", PreTokenizer::qwen2},
    {"f2llmv2", PreTokenizer::qwen2}, {"stablelm2", PreTokenizer::qwen2},
};
// clang-format on

const PreTokenizer* find_pre_tokenizer(std::string_view name)
{
    for (const PreTokenizer& row : kPreTokenizers)
        if (name == row.name) return &row;
    return nullptr;
}

const char* pre_tokenizer_kind(PreTokenizer::Kind kind)
{
    static const char* const names[] = {"BPE (default)", "BPE (gpt-2)", "BPE (smollm)",
                                        "BPE (llama-3)", "BPE (qwen2)"};
    return names[kind];
}

namespace
{

// A text that ends at `end` or before a character of the kind `border`.
struct Scanner {
    const char* end;
    CharKind border = CharKind::none;

    // Punctuation counts as `other`. Only one pre-tokenizer distinguishes the two, and it does so
    // by `border`.
    Char at(const char* p) const
    {
        Char c = char_at(p, end);
        if (c.kind == border) return {CharKind::none, 0};
        return {c.kind == CharKind::punctuation ? CharKind::other : c.kind, c.bytes};
    }

    const char* skip(const char* p, CharKind kind) const
    {
        for (Char c = at(p); c.kind == kind; c = at(p)) p += c.bytes;
        return p;
    }
};

bool is_newline(const char* p)
{
    return *p == '\r' || *p == '\n';
}

// Length of 's 't 'm 'd 're 've 'll at p, else 0.
size_t contraction(const char* p, const char* end, bool any_case)
{
    auto letter = [&](int i) {
        char c = p[i];
        return any_case && c >= 'A' && c <= 'Z' ? char(c | 0x20) : c;
    };
    if (*p != '\'' || end - p < 2) return 0;
    char first = letter(1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    if (end - p < 3) return 0;
    char second = letter(2);
    return (second == 'e' && (first == 'r' || first == 'v')) || (first == 'l' && second == 'l') ? 3
                                                                                                : 0;
}

// Length of a run of spaces. Before a word the last space is excluded: it belongs to the word. With
// `newlines`, the run ends after its last newline.
size_t spaces(const Scanner& text, const char* p, bool newlines)
{
    const char *q = p, *last = p, *behind_newline = nullptr;
    Char c = text.at(q);
    for (; c.kind == CharKind::space; c = text.at(q)) {
        last = q;
        q += c.bytes;
        if (is_newline(last)) behind_newline = q;
    }
    if (newlines && behind_newline) return size_t(behind_newline - p);
    return size_t((last > p && c.kind != CharKind::none ? last : q) - p);
}

size_t gpt2_word(const Scanner& text, const char* p)
{
    if (size_t n = contraction(p, text.end, false)) return n;
    const char* q = p + (*p == ' ');
    Char c = text.at(q);
    if (c.kind == CharKind::space || c.kind == CharKind::none) return spaces(text, p, false);
    return size_t(text.skip(q, c.kind) - p);
}

size_t llama3_word(const Scanner& text, const char* p, int most_digits)
{
    if (size_t n = contraction(p, text.end, true)) return n;
    Char c = text.at(p);
    const char* q = p + c.bytes;
    if (c.kind == CharKind::number) {
        for (int i = 1; i < most_digits && (c = text.at(q)).kind == CharKind::number; i++)
            q += c.bytes;
        return size_t(q - p);
    }
    if (!is_newline(p) && (c.kind == CharKind::letter || text.at(q).kind == CharKind::letter))
        return size_t(text.skip(q, CharKind::letter) - p);

    q = p + (*p == ' ');
    if (text.at(q).kind != CharKind::other) return spaces(text, p, true);
    q = text.skip(q, CharKind::other);
    while (q < text.end && is_newline(q)) q++;
    return size_t(q - p);
}

size_t plain_word(const char* p, const char* end)
{
    auto kind = [&](const char* q) { return char_at(q, end).kind; };
    auto three_digits = [&](const char* q) {
        for (int i = 0; i < 3; i++)
            if (end - q <= i || q[i] < '0' || q[i] > '9') return false;
        return true;
    };
    if (kind(p) == CharKind::punctuation) {
        const char* q = p;
        for (Char c = char_at(q, end); c.kind == CharKind::punctuation; c = char_at(q, end))
            q += c.bytes;
        return size_t(q - p);
    }
    if (kind(p) == CharKind::number) {
        if (three_digits(p)) return 3;
        const char* q = p;
        for (Char c = char_at(q, end); c.kind == CharKind::number && !three_digits(q);
             c = char_at(q, end))
            q += c.bytes;
        return size_t(q - p);
    }
    if (*p == ' ' && kind(p + 1) == CharKind::number) return 1;
    return gpt2_word({end, CharKind::punctuation}, p);
}

} // namespace

size_t next_word(PreTokenizer::Kind kind, const char* at, const char* end)
{
    switch (kind) {
    case PreTokenizer::plain:
        return plain_word(at, end);
    case PreTokenizer::gpt2:
        return gpt2_word({end}, at);
    case PreTokenizer::smollm: {
        Char c = char_at(at, end);
        return c.kind == CharKind::number ? c.bytes : gpt2_word({end, CharKind::number}, at);
    }
    case PreTokenizer::llama3:
        return llama3_word({end}, at, 3);
    case PreTokenizer::qwen2:
        return llama3_word({end}, at, 1);
    }
    return 1;
}

} // namespace ks
