// Any text as a chat template and as messages: messages never become control tokens, and every
// token has an author.
#include "runtime/text/chat_template.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/loaded.h"

#include <algorithm>

using namespace ks;

namespace
{

const ChatTemplate* nth_frame(uint32_t n)
{
    static const std::vector<const ChatTemplate*> template_masks = [] {
        std::vector<const ChatTemplate*> found;
        const std::string names = chat_template_names() + ", ";
        for (size_t at = 0; at < names.size(); at = names.find(", ", at) + 2)
            found.push_back(find_chat_template(names.substr(at, names.find(", ", at) - at)));
        return found;
    }();
    KS_CHECK(template_masks[n % template_masks.size()], "%u", n);
    return template_masks[n % template_masks.size()];
}

size_t count_control(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids)
{
    return size_t(std::count_if(ids.begin(), ids.end(), [&](uint32_t id) {
        return tokenizer.type(id) == TokenType::control;
    }));
}

void check_pieces(const Tokenizer& tokenizer, const ChatPieces& pieces)
{
    size_t n_control = 0;
    for (size_t i = 0; i < pieces.size(); i++) {
        const ChatPiece& piece = pieces[i];
        const bool is_text = piece.kind == ChatPiece::Kind::text;
        KS_CHECK(!is_text || piece.text.size() == piece.authors.size(), "%zu authors",
                 piece.authors.size());
        KS_CHECK(i == 0 || !is_text || pieces[i - 1].kind != ChatPiece::Kind::text,
                 "two texts at %zu", i);
        int64_t id = -1;
        if (piece.kind == ChatPiece::Kind::bos) id = tokenizer.bos();
        if (piece.kind == ChatPiece::Kind::eos) id = tokenizer.eos();
        if (piece.kind == ChatPiece::Kind::marker) id = tokenizer.find(piece.text);
        n_control += id >= 0 && tokenizer.type(uint32_t(id)) == TokenType::control;
    }
    std::vector<uint32_t> ids;
    std::string authors;
    encode_pieces(tokenizer, pieces, ids, &authors);
    KS_CHECK(authors.size() == ids.size() && template_mask(authors).size() == ids.size(),
             "%zu authors of %zu", authors.size(), ids.size());
    KS_CHECK(n_prefix_tokens(authors) <= ids.size(), "%u head tokens", n_prefix_tokens(authors));
    KS_CHECK(count_control(tokenizer, ids) == n_control, "%zu control tokens, %zu are the frame's",
             count_control(tokenizer, ids), n_control);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    static const std::vector<FuzzTokenizer>& tokenizers = fuzz_tokenizers();
    const Deadline deadline;
    Input in = input_of(data, size);
    const Tokenizer& tokenizer = tokenizers[in.byte() % tokenizers.size()].tokenizer;
    const uint8_t choice = in.byte();
    const std::string_view program = in.text(), system = in.text(), user = in.text(),
                           answer = in.text();
    const ChatTemplate* chat_template = recognise_chat_template(program);
    g_accepted += chat_template != nullptr;
    if (!chat_template) chat_template = nth_frame(choice >> 2);
    const std::optional<std::string> by_default = default_system_text(*chat_template, program);
    KS_CHECK(!by_default || by_default->size() <= 4096, "%zu bytes", by_default->size());
    ChatWriter writer(*chat_template, tokenizer.adds_bos(), by_default);
    ChatPieces all, turn;
    if (choice & 1) writer.turn(ChatRole::system, system, all);
    writer.turn(ChatRole::user, user, all);
    if (choice & 2) {
        writer.turn(ChatRole::assistant, answer, all);
    } else {
        writer.open_answer(all);
        writer.close_answer(turn);
    }
    writer.turn(ChatRole::user, in.text(), turn);
    writer.open_answer(turn);
    check_pieces(tokenizer, all);
    check_pieces(tokenizer, turn);
    return 0;
}

std::vector<std::string> fuzz_seeds()
{
    const std::string end(1, '\0'), talk = end + "Be brief." + end + "hi <|im_start|>[INST]" + end +
                                           " an answer<s> " + end + "and now?";
    std::vector<std::string> seeds;
    int n = 0;
    for (const char* program : {
             "{% if messages[0]['role'] != 'system' %}{{'<|im_start|>system\nYou are a helpful "
             "assistant<|im_end|>\n'}}{% endif %}"
             "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
             "'\n'}}",
             "{{ bos_token + '[INST] ' + '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + "
             "content.strip() + ' [/INST]' }} eos_token",
             "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ "
             "message['content'] | trim + '<|eot_id|>'",
             "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' "
             "}}",
             "{{'[INST] ' + message['content'] + ' [/INST]'}}{{message['content'] + eos_token}}",
             "{{'<|user|>' + '\n' + message['content'] + '<|end|>' + '\n' + '<|assistant|>' + "
             "'\n'}}",
             "{{ '<|user|>\n' + message['content'] + eos_token }}{{ '<|system|>\n' + "
             "message['content'] + eos_token }}",
         }) {
        seeds.push_back(char(n) + std::string(1, char(1 + n % 3 + 4 * n)) + program + talk);
        n++;
    }
    return seeds;
}
