#include "runtime/text/chat_template.h"

#include <algorithm>

namespace ks
{
namespace
{

// The first matching row wins, so a specific template comes before a general one.
// clang-format off
const ChatTemplate kChatTemplates[] = {
    {"chatml", {"<|im_start|>", "<|im_end|>"},
     {"<|im_sep|>", "<|im_start|>assistant\n<think>", "'<think>\n'", "Knowledge Cutoff Date"},
     {"<|im_start|>system\n", "<|im_end|>\n"}, {"<|im_start|>user\n", "<|im_end|>\n"},
     {"<|im_start|>assistant\n", "<|im_end|>\n"},
     nullptr, "<|im_end|>", no_flags},

    // The template always writes the system turn. The date is its default when none is passed.
    {"llama-3.1", {"<|start_header_id|>", "Cutting Knowledge Date: December 2023", "26 Jul"}, {},
     {"<|start_header_id|>system<|end_header_id|>\n\n"
      "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n", "<|eot_id|>"},
     {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
     {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
     "", "<|eot_id|>", writes_bos | trims_system | trims_user | trims_assistant},

    {"llama-3", {"<|start_header_id|>", "<|eot_id|>"}, {"Cutting Knowledge Date", ">>>"},
     {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
     {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
     {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
     nullptr, "<|eot_id|>", writes_bos | trims_system | trims_user | trims_assistant},

    {"llama-2", {"bos_token + '[INST] '", "<<SYS>>"}, {},
     {"<<SYS>>\n", "\n<</SYS>>\n\n"}, {"<bos>[INST] ", " [/INST]"}, {" ", " <eos>"},
     nullptr, nullptr, folds_system | writes_bos | trims_user | trims_assistant | trims_joined},

    // Versions as Mistral numbers them. The v3 templates put the system prompt into the last turn.
    // Here it goes into the first one, because a cache keeps what it has read. The long default
    // system prompt of v7-tekken is left out.
    {"mistral-v7", {"[INST] ", "[SYSTEM_PROMPT] "}, {},
     {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"}, {"[INST] ", "[/INST]"}, {" ", "<eos>"},
     nullptr, nullptr, writes_bos},
    {"mistral-v7-tekken", {"[INST]", "[SYSTEM_PROMPT]"}, {},
     {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"}, {"[INST]", "[/INST]"}, {"", "<eos>"},
     nullptr, nullptr, writes_bos},
    {"mistral-v1", {" [INST] ", " [/INST]"}, {},
     {"", "\n\n"}, {" [INST] ", " [/INST]"}, {" ", "<eos>"},
     nullptr, nullptr, folds_system | writes_bos},
    {"mistral-v3", {"[INST] ", "[AVAILABLE_TOOLS]"}, {" [INST]"},
     {"", "\n\n"}, {"[INST] ", "[/INST]"}, {" ", "<eos>"},
     nullptr, nullptr, folds_system | writes_bos | trims_assistant},
    {"mistral-v3-tekken", {"[INST]", "[AVAILABLE_TOOLS]"}, {"[INST] "},
     {"", "\n\n"}, {"[INST]", "[/INST]"}, {"", "<eos>"},
     nullptr, nullptr, folds_system | writes_bos},
    {"mistral-v0.1", {"[INST] ", " [/INST]", "message['content'] + eos_token + ' '"},
     {"<<SYS>>", "[AVAILABLE_TOOLS]"},
     {"", "\n\n"}, {"[INST] ", " [/INST]"}, {"", "<eos> "},
     nullptr, nullptr, folds_system | writes_bos},
    {"mistral", {"[INST] ", " [/INST]", "message['content'] + eos_token"},
     {"<<SYS>>", "[AVAILABLE_TOOLS]"},
     {"", "\n\n"}, {"[INST] ", " [/INST]"}, {"", "<eos>"},
     nullptr, nullptr, folds_system | writes_bos},

    {"gemma", {"<start_of_turn>", "<end_of_turn>"}, {},
     {"", "\n\n"}, {"<start_of_turn>user\n", "<end_of_turn>\n"},
     {"<start_of_turn>model\n", "<end_of_turn>\n"},
     nullptr, "<end_of_turn>", folds_system | writes_bos | trims_user | trims_assistant},

    {"phi-3", {"<|assistant|>", "<|end|>"}, {"<|tool|>", "<|begin|>", "<|content|>"},
     {"<|system|>\n", "<|end|>\n"}, {"<|user|>\n", "<|end|>\n"}, {"<|assistant|>\n", "<|end|>\n"},
     nullptr, "<|end|>", no_flags},

    {"zephyr", {"<|user|>\n' + message['content'] + eos_token"}, {},
     {"<|system|>\n", "<eos>\n"}, {"<|user|>\n", "<eos>\n"}, {"<|assistant|>\n", "<eos>\n"},
     nullptr, nullptr, no_flags},
};
// clang-format on

constexpr size_t kMaxTemplateBytes = 1 << 20;
constexpr size_t kMaxSystemBytes = 4096;
constexpr const char* kSpace = " \t\n\v\f\r";

// Number of bytes of `text` at `at` that match `literal`; 0 if it does not match or is empty. A
// template may write a newline as \n, and single quotes as double ones.
size_t match_at(std::string_view text, size_t at, const char* literal)
{
    size_t i = at;
    for (; *literal; literal++, i++) {
        if (i >= text.size()) return 0;
        if (*literal == '\n' && text[i] == '\\' && i + 1 < text.size() && text[i + 1] == 'n')
            i++;
        else if (text[i] != *literal && !(*literal == '\'' && text[i] == '"'))
            return 0;
    }
    return i - at;
}

size_t find_literal(std::string_view text, const char* literal, size_t from = 0)
{
    for (size_t i = text.find(*literal, from); i != text.npos; i = text.find(*literal, i + 1))
        if (match_at(text, i, literal)) return i;
    return text.npos;
}

bool fits(const ChatTemplate& chat_template, std::string_view text)
{
    for (const char* literal : chat_template.wants)
        if (literal && find_literal(text, literal) == text.npos) return false;
    for (const char* literal : chat_template.rejects)
        if (literal && find_literal(text, literal) != text.npos) return false;
    return true;
}

std::string_view trimmed(std::string_view text)
{
    size_t begin = text.find_first_not_of(kSpace);
    return begin == text.npos ? std::string_view()
                              : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string_view without_end_spaces(std::string_view text)
{
    return text.substr(0, text.find_last_not_of(' ') + 1);
}

void append_text(std::string_view text, char author, ChatPieces& out)
{
    if (text.empty()) return;
    if (out.empty() || out.back().kind != ChatPiece::Kind::text)
        out.push_back({ChatPiece::Kind::text, ""});
    out.back().text += text;
    out.back().authors.append(text.size(), author);
}

void append_literal(std::string_view literal, ChatPieces& out)
{
    while (!literal.empty()) {
        size_t begin = literal.find_first_of("<[");
        append_text(literal.substr(0, begin), kTemplateAuthor, out);
        if (begin == literal.npos) return;
        size_t end = literal.find(literal[begin] == '<' ? '>' : ']', begin) + 1;
        std::string_view marker = literal.substr(begin, end - begin);
        if (marker == "<eos>")
            out.push_back({ChatPiece::Kind::eos, ""});
        else if (marker != "<bos>")
            out.push_back({ChatPiece::Kind::marker, std::string(marker)});
        else if (out.empty() || out.back().kind != ChatPiece::Kind::bos)
            out.push_back({ChatPiece::Kind::bos, ""});
        literal.remove_prefix(end);
    }
}

// The text from `at` to `end`. Empty result if `end` comes only after `closing`: the quote of the
// string, or '{' outside strings.
std::optional<std::string> text_until(std::string_view text, size_t at, const char* end,
                                      char closing)
{
    std::string found;
    for (size_t i = at; i < text.size() && text[i] != closing && found.size() < kMaxSystemBytes;
         i++) {
        if (match_at(text, i, end)) return found;
        bool escape = closing != '{' && text[i] == '\\' && i + 1 < text.size();
        if (escape) i++;
        found += escape && text[i] == 'n' ? '\n' : text[i];
    }
    return {};
}

} // namespace

const ChatTemplate* recognise_chat_template(std::string_view template_text)
{
    if (template_text.empty() || template_text.size() > kMaxTemplateBytes) return nullptr;
    for (const ChatTemplate& chat_template : kChatTemplates)
        if (fits(chat_template, template_text)) return &chat_template;
    return nullptr;
}

const ChatTemplate* find_chat_template(std::string_view name)
{
    auto plain = [](std::string_view s) {
        std::string out;
        for (char c : s)
            if (c != '-') out += c;
        return out;
    };
    for (const ChatTemplate& chat_template : kChatTemplates)
        if (plain(chat_template.name) == plain(name)) return &chat_template;
    return nullptr;
}

std::string chat_template_names()
{
    std::string names;
    for (const ChatTemplate& chat_template : kChatTemplates)
        names += (names.empty() ? "" : ", ") + std::string(chat_template.name);
    return names;
}

std::optional<std::string> default_system_text(const ChatTemplate& chat_template,
                                               std::string_view template_text)
{
    if (chat_template.default_system) return chat_template.default_system;
    if (template_text.size() > kMaxTemplateBytes) return {};
    const char* prefix = chat_template.system[0];
    size_t i = 0;
    // The text may come after branches for tools and for a given system prompt.
    for (int tries = 0; tries < 16; tries++) {
        i = find_literal(template_text, prefix, i + 1);
        if (i == template_text.npos) break;
        char before = template_text[i - 1];
        char closing = before == '\'' || before == '"' ? before : '{';
        std::optional<std::string> text =
            text_until(template_text, i + match_at(template_text, i, prefix),
                       chat_template.system[1], closing);
        if (text) return text;
    }
    return {};
}

ChatWriter::ChatWriter(const ChatTemplate& chat_template, bool tokenizer_adds_bos,
                       std::optional<std::string> default_system)
    : m_template(&chat_template), m_bos(tokenizer_adds_bos || (chat_template.flags & writes_bos)),
      m_default_system(std::move(default_system))
{
}

void ChatWriter::begin(bool with_default, ChatPieces& out)
{
    if (m_begun) return;
    m_begun = true;
    if (m_bos) append_literal("<bos>", out);
    if (with_default && m_default_system) turn(ChatRole::system, *m_default_system, out);
}

void ChatWriter::turn(ChatRole role, std::string_view content, ChatPieces& out)
{
    begin(role != ChatRole::system, out);
    const ChatTemplate& f = *m_template;
    if (f.flags & (1 << int(role))) {
        std::string_view cut = trimmed(content);
        // After a folded system prompt the turn does not begin with white space, so only the end of
        // the content is trimmed.
        bool keeps_begin = role == ChatRole::user && m_folded_system && (f.flags & trims_joined);
        content =
            keeps_begin ? content.substr(0, size_t(cut.data() + cut.size() - content.data())) : cut;
    }
    if (role == ChatRole::system && f.flags & folds_system) {
        m_folded_system = std::string(content);
        return;
    }
    const char* const* literals = role == ChatRole::system ? f.system
                                  : role == ChatRole::user ? f.user
                                                           : f.assistant;
    append_literal(literals[0], out);
    if (role == ChatRole::user && m_folded_system) {
        append_text(f.system[0], kTemplateAuthor, out);
        append_text(*m_folded_system, kAuthors[int(ChatRole::system)], out);
        append_text(f.system[1], kTemplateAuthor, out);
        m_folded_system.reset();
    }
    append_text(content, kAuthors[int(role)], out);
    append_literal(literals[1], out);
}

void ChatWriter::open_answer(ChatPieces& out)
{
    begin(true, out);
    append_literal(without_end_spaces(m_template->assistant[0]), out);
}

void ChatWriter::close_answer(ChatPieces& out) const
{
    std::string_view end = m_template->assistant[1];
    append_literal(end.substr(end.find_first_not_of(' ')), out);
}

// Converts authors of bytes to authors of tokens. The tokens spell the text in order; SentencePiece
// adds a space before it.
static std::string authors_of(const Tokenizer& tokenizer, const uint32_t* ids, size_t n,
                              const std::string& of_bytes)
{
    std::string authors, piece(tokenizer.max_piece_bytes(), '\0');
    const std::string all =
        (tokenizer.adds_space_prefix() ? std::string(1, kTemplateAuthor) : "") + of_bytes;
    for (size_t i = 0, at = 0; i < n; i++) {
        const size_t end = std::min(at + tokenizer.piece(ids[i], &piece[0]), all.size());
        const size_t other = std::min(all.find_first_not_of(kTemplateAuthor, at), end);
        authors += other < end ? all[other] : kTemplateAuthor;
        at = end;
    }
    return authors;
}

void encode_pieces(const Tokenizer& tokenizer, const ChatPieces& pieces, std::vector<uint32_t>& out,
                   std::string* authors)
{
    std::string text, of_bytes;
    bool strip = false;
    auto flush = [&] {
        const size_t begin = out.size();
        if (!text.empty()) tokenizer.encode(text, {false, false}, out);
        if (authors)
            *authors += authors_of(tokenizer, out.data() + begin, out.size() - begin, of_bytes);
        text.clear();
        of_bytes.clear();
    };
    for (const ChatPiece& piece : pieces) {
        int64_t id = -1;
        if (piece.kind == ChatPiece::Kind::bos) id = tokenizer.bos();
        if (piece.kind == ChatPiece::Kind::eos) id = tokenizer.eos();
        if (piece.kind == ChatPiece::Kind::marker) id = tokenizer.find(piece.text);
        if (id >= 0) {
            flush();
            out.push_back(uint32_t(id));
            if (authors) *authors += kTemplateAuthor;
            strip = tokenizer.strips_right(uint32_t(id));
        } else {
            size_t begin =
                strip ? std::min(piece.text.find_first_not_of(kSpace), piece.text.size()) : 0;
            text.append(piece.text, begin);
            of_bytes += piece.authors.substr(std::min(begin, piece.authors.size()));
            of_bytes.resize(text.size(), kTemplateAuthor);
            strip = false;
        }
    }
    flush();
}

uint32_t n_prefix_tokens(const std::string& authors)
{
    return uint32_t(std::min(authors.find(kAuthors[int(ChatRole::user)]), authors.size()));
}

std::vector<uint8_t> template_mask(const std::string& authors)
{
    std::vector<uint8_t> marks;
    for (char author : authors) marks.push_back(author == kTemplateAuthor);
    return marks;
}

} // namespace ks
