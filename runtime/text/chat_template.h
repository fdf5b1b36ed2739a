// Chat frames: how a conversation becomes a model's prompt. A model file brings a Jinja program; it is never run, only
// recognised by its literals as one of a few known frames, and the frame writes the same text that the program would.
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

// A stretch of the prompt. A marker becomes the token of that text where the vocabulary has one and is text otherwise.
// What somebody wrote is always text: it can never become a control token.
struct ChatPiece {
    enum class Kind : uint8_t { text, marker, bos, eos };
    Kind kind;
    std::string text;         // empty for bos and eos
    std::string authors = {}; // of each byte of a text: kFrameAuthor, or a role's letter
};
constexpr char kFrameAuthor = 'f', kAuthors[] = {'s', 'u', 'a'}; // the frame; by ChatRole
using ChatPieces = std::vector<ChatPiece>; // texts never follow each other: a border inside a text would change its tokens

enum ChatFlag : uint8_t {
    no_flags = 0,
    trims_system = 1, // 1 << role: its content loses the white space at its ends
    trims_user = 2,
    trims_assistant = 4,
    trims_joined = 8,  // the user's content only together with the system text folded before it
    folds_system = 16, // the system text stands inside the user's turn that follows it
    writes_bos = 32,   // the prompt begins with BOS even where the tokenizer adds none
};

// In the literals <bos> and <eos> are the model's tokens, and other <...> and [...] are markers.
struct ChatFrame {
    const char* name;
    const char* wants[3];       // all of them are in the template
    const char* rejects[4];     // none of them is
    const char* system[2];      // before and after the content
    const char* user[2];        // likewise
    const char* assistant[2];   // [0] without its last spaces is also what asks for an answer
    const char* default_system; // null: none
    const char* stop;           // ends an answer where the vocabulary has no token for it; null: none
    uint8_t flags;
};

// Null: not one of them, or no template (a base model). Reads at most 1 MiB.
const ChatFrame* recognise_chat_frame(std::string_view template_text);
const ChatFrame* find_chat_frame(std::string_view name); // "llama-2" and "llama2" are one name
std::string chat_frame_names();                          // "chatml, llama-2, ...", for an error's sentence

// The system text that the template writes where the conversation brings none.
std::optional<std::string> default_system_text(const ChatFrame& frame, std::string_view template_text);

// Writes a conversation turn by turn, so that what is already in the cache never changes. A value: copy it to go back.
class ChatWriter
{
public:
    ChatWriter(const ChatFrame& frame, bool tokenizer_adds_bos, std::optional<std::string> default_system);

    void turn(ChatRole role, std::string_view content, ChatPieces& out);
    // Around an answer that the model writes. Spaces next to it are left out: the model writes its own.
    void open_answer(ChatPieces& out);
    void close_answer(ChatPieces& out) const;

private:
    void begin(bool with_default, ChatPieces& out);

    const ChatFrame* m_frame;
    bool m_bos;
    bool m_begun = false;
    std::optional<std::string> m_default_system;
    std::optional<std::string> m_folded_system; // waits for the user's turn
};

// Appends the tokens. One call per feed: a text between two markers is encoded as one. authors: who wrote each token, the frame
// only where it wrote all of it.
void encode_pieces(const Tokenizer& tokenizer, const ChatPieces& pieces, std::vector<uint32_t>& out, std::string* authors = nullptr);
uint32_t head_tokens(const std::string& authors);             // those before the first message
std::vector<uint8_t> frame_marks(const std::string& authors); // 1: the frame wrote the token

} // namespace ks
