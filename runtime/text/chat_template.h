// Chat templates: how a conversation becomes a prompt. The Jinja program in the model file never
// runs. Its literals identify one of the known templates below, which writes the same text as the
// program.
#pragma once

#include "runtime/text/tokenizer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ks
{

enum class ChatRole : uint8_t { system, user, assistant };

// A part of the prompt. A marker becomes a special token if the vocabulary has one with its text;
// otherwise it is plain text. What a person or the model wrote is always text and never becomes a
// control token.
struct ChatPiece {
    enum class Kind : uint8_t { text, marker, bos, eos };
    Kind kind;
    std::string text;         // empty for bos and eos
    std::string authors = {}; // author of each byte of a text: kTemplateAuthor or one of kAuthors
};
constexpr char kTemplateAuthor = 'f';
constexpr char kAuthors[] = {'s', 'u', 'a'}; // indexed by ChatRole
// Texts are never adjacent: a split inside a text would change its tokens.
using ChatPieces = std::vector<ChatPiece>;

enum ChatFlag : uint8_t {
    no_flags = 0,
    trims_system = 1, // 1 << role: white space at both ends of the content is removed
    trims_user = 2,
    trims_assistant = 4,
    trims_joined = 8,  // a folded system prompt and the user's content are trimmed as one text
    folds_system = 16, // the system prompt is part of the following user turn
    writes_bos = 32,   // the prompt begins with BOS even if the tokenizer adds none
};

// In the literals, <bos> and <eos> are tokens of the model. Other <...> and [...] are markers.
struct ChatTemplate {
    const char* name;
    const char* wants[3];   // literals that the template must contain
    const char* rejects[4]; // literals that the template must not contain
    const char* system[2];  // text before and after the content
    const char* user[2];    // text before and after the content
    // Text before and after the content; [0] without trailing spaces also requests an answer.
    const char* assistant[2];
    const char* default_system; // null: none
    const char* stop;           // ends an answer if the vocabulary has no token for it; null: none
    uint8_t flags;              // of ChatFlag
};

// Null: an unknown template, or no template (a base model). Templates beyond 1 MiB are unknown.
const ChatTemplate* recognise_chat_template(std::string_view template_text);
// Hyphens in a name do not matter: "llama-2" and "llama2" are the same.
const ChatTemplate* find_chat_template(std::string_view name);
std::string chat_template_names(); // "chatml, llama-2, ...", for error messages

// The system prompt that the template writes if the conversation has none.
std::optional<std::string> default_system_text(const ChatTemplate& chat_template,
                                               std::string_view template_text);

// Writes a conversation turn by turn and only appends, so tokens already in the cache never change.
// Copy the writer to be able to go back.
class ChatWriter
{
public:
    ChatWriter(const ChatTemplate& chat_template, bool tokenizer_adds_bos,
               std::optional<std::string> default_system);

    void turn(ChatRole role, std::string_view content, ChatPieces& out);
    // Open and close an answer that the model writes. Adjacent spaces are left out because the
    // model writes its own.
    void open_answer(ChatPieces& out);
    void close_answer(ChatPieces& out) const;

private:
    void begin(bool with_default, ChatPieces& out);

    const ChatTemplate* m_template;
    bool m_bos;
    bool m_begun = false;
    std::optional<std::string> m_default_system;
    std::optional<std::string> m_folded_system; // waits for the next user turn
};

// Appends the tokens. Call it once per feed: the text between two markers is encoded as a whole.
// `authors` receives the author of each token; the template is the author only if it wrote the
// whole token.
void encode_pieces(const Tokenizer& tokenizer, const ChatPieces& pieces, std::vector<uint32_t>& out,
                   std::string* authors = nullptr);
// The number of tokens before the first user message.
uint32_t n_prefix_tokens(const std::string& authors);
// For each token: 1 if the template wrote the whole token.
std::vector<uint8_t> template_mask(const std::string& authors);

} // namespace ks
