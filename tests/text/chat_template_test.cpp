// Chat templates: recognition, output, authors of tokens. User text never becomes a control token.
#include "runtime/text/chat_template.h"

#include <cstring>
#include <doctest/doctest.h>

using namespace ks;

namespace
{

struct Turn {
    ChatRole role;
    std::string_view content;
};

void append_text_of(const ChatPieces& pieces, std::string& out)
{
    for (const ChatPiece& piece : pieces) {
        if (piece.kind == ChatPiece::Kind::bos) out += "{B}";
        if (piece.kind == ChatPiece::Kind::eos) out += "{E}";
        out += piece.text;
    }
}

std::string render(const char* name, const std::vector<Turn>& turns,
                   std::optional<std::string> default_system = {}, bool adds_bos = false)
{
    const ChatTemplate* chat_template = find_chat_template(name);
    REQUIRE(chat_template);
    ChatWriter writer(*chat_template, adds_bos, default_system);
    ChatPieces pieces;
    for (const Turn& turn : turns) writer.turn(turn.role, turn.content, pieces);
    writer.open_answer(pieces);
    std::string out;
    append_text_of(pieces, out);
    return out;
}

std::string recognised(std::string_view template_text)
{
    const ChatTemplate* chat_template = recognise_chat_template(template_text);
    return chat_template ? chat_template->name : "";
}

const std::vector<Turn> kTalk = {
    {ChatRole::user, "Hello"}, {ChatRole::assistant, "Hi"}, {ChatRole::user, "Who?"}};
const std::vector<Turn> kSystemTalk = {{ChatRole::system, "Be brief."},
                                       {ChatRole::user, "Hello"},
                                       {ChatRole::assistant, "Hi"},
                                       {ChatRole::user, "Who?"}};
const std::vector<Turn> kSpaces = {{ChatRole::system, " S \n"},
                                   {ChatRole::user, "  U\n"},
                                   {ChatRole::assistant, "\n A "},
                                   {ChatRole::user, " V "}};

// SentencePiece with all bytes, one word, and some markers of chatml and phi-3.
struct TinyVocab {
    std::string tokens, scores, types;
    uint32_t n = 0;
    uint32_t bos, eos, byte_0, im_start, im_end, assistant, newline_a;

    TinyVocab()
    {
        add("<unk>", 2);
        bos = add("<s>", 3);
        eos = add("</s>", 3);
        byte_0 = n;
        for (int i = 0; i < 256; i++) {
            char name[8];
            snprintf(name, sizeof name, "<0x%02X>", i);
            add(name, 6);
        }
        im_start = add("<|im_start|>", 3);
        im_end = add("<|im_end|>", 3);
        assistant = add("<|assistant|>", 4);
        newline_a = add("\na", 1);
        add("\xe2\x96\x81", 1); // a space
    }
    uint32_t add(std::string_view text, int32_t type)
    {
        uint64_t bytes = text.size();
        float score = -float(n);
        tokens.append(reinterpret_cast<const char*>(&bytes), 8).append(text);
        scores.append(reinterpret_cast<const char*>(&score), 4);
        types.append(reinterpret_cast<const char*>(&type), 4);
        return n++;
    }
    std::vector<uint32_t> encode(std::string_view model_name, const char* chat_template,
                                 const Turn& turn) const
    {
        return encode_talk(model_name, chat_template, {turn});
    }
    std::vector<uint32_t> encode_talk(std::string_view model_name, const char* chat_template,
                                      const std::vector<Turn>& turns,
                                      std::string* authors = nullptr,
                                      bool space_prefix = false) const
    {
        VocabSource source;
        source.name = model_name;
        source.model = "llama";
        source.tokens = {reinterpret_cast<const uint8_t*>(tokens.data()), n, tokens.size()};
        source.scores = reinterpret_cast<const uint8_t*>(scores.data());
        source.types = reinterpret_cast<const uint8_t*>(types.data());
        source.n_scores = source.n_types = n;
        source.bos = bos, source.eos = eos, source.unknown = 0,
        source.add_space_prefix = space_prefix;
        Result<uint64_t> bytes = Tokenizer::bytes_needed(source);
        REQUIRE(bytes.ok());
        std::vector<uint64_t> memory(bytes.value() / 8 + 1);
        Tokenizer tokenizer;
        REQUIRE(tokenizer.load(source, memory.data(), bytes.value()).ok());
        ChatWriter writer(*find_chat_template(chat_template), tokenizer.adds_bos(), {});
        ChatPieces pieces;
        for (const Turn& turn : turns) writer.turn(turn.role, turn.content, pieces);
        writer.open_answer(pieces);
        std::vector<uint32_t> ids;
        encode_pieces(tokenizer, pieces, ids, authors);
        return ids;
    }
};

} // namespace

TEST_CASE("chat template: the output of each")
{
    CHECK(render("chatml", kSystemTalk) ==
          "<|im_start|>system\nBe "
          "brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
          "Hi<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n");
    CHECK(render("chatml", kTalk) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi<"
                                     "|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n"
                                     "<|im_start|>assistant\n");
    CHECK(render("llama-3", kSystemTalk) ==
          "{B}<|start_header_id|>system<|end_header_id|>\n\nBe "
          "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>user<|"
          "end_header_id|>\n\nWho?<|eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\n");
    CHECK(render("llama-3.1", {{ChatRole::user, "Hello"}}, "") ==
          "{B}<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December "
          "2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
          "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>assistant<"
          "|end_header_id|>\n\n");
    CHECK(render("llama-2", kSystemTalk) ==
          "{B}[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHello [/INST] Hi {E}{B}[INST] Who? [/INST]");
    CHECK(render("llama-2", kTalk) == "{B}[INST] Hello [/INST] Hi {E}{B}[INST] Who? [/INST]");
    CHECK(render("gemma", kSystemTalk) ==
          "{B}<start_of_turn>user\nBe "
          "brief.\n\nHello<end_of_turn>\n<start_of_turn>model\nHi<end_of_turn>\n"
          "<start_of_turn>user\nWho?<end_of_turn>\n<start_of_turn>model\n");
    CHECK(render("mistral", kSystemTalk) ==
          "{B}[INST] Be brief.\n\nHello [/INST]Hi{E}[INST] Who? [/INST]");
    CHECK(render("mistral-v0.1", kTalk) == "{B}[INST] Hello [/INST]Hi{E} [INST] Who? [/INST]");
    CHECK(render("mistral-v1", kSystemTalk) ==
          "{B} [INST] Be brief.\n\nHello [/INST] Hi{E} [INST] Who? [/INST]");
    CHECK(render("mistral-v3", kTalk) == "{B}[INST] Hello[/INST] Hi{E}[INST] Who?[/INST]");
    CHECK(render("mistral-v3-tekken", kTalk) == "{B}[INST]Hello[/INST]Hi{E}[INST]Who?[/INST]");
    CHECK(
        render("mistral-v7", kSystemTalk) ==
        "{B}[SYSTEM_PROMPT] Be brief.[/SYSTEM_PROMPT][INST] Hello[/INST] Hi{E}[INST] Who?[/INST]");
    CHECK(render("mistral-v7-tekken", kSystemTalk) ==
          "{B}[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hello[/INST]Hi{E}[INST]Who?[/INST]");
    CHECK(render("phi-3", kSystemTalk) ==
          "<|system|>\nBe "
          "brief.<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\nHi<|end|>\n<|user|>\nWho?<|end|>\n"
          "<|assistant|>\n");
    CHECK(
        render("zephyr", kSystemTalk) ==
        "<|system|>\nBe "
        "brief.{E}\n<|user|>\nHello{E}\n<|assistant|>\nHi{E}\n<|user|>\nWho?{E}\n<|assistant|>\n");
}

TEST_CASE("chat template: white space that is kept")
{
    CHECK(render("chatml", kSpaces) == "<|im_start|>system\n S \n<|im_end|>\n<|im_start|>user\n  "
                                       "U\n<|im_end|>\n<|im_start|>assistant\n\n A <|im_end|>\n"
                                       "<|im_start|>user\n V <|im_end|>\n<|im_start|>assistant\n");
    CHECK(render("llama-3", {{ChatRole::system, " S \n"}, {ChatRole::user, "\t U\n "}}) ==
          "{B}<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|"
          "end_header_id|>\n\nU<|eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\n");
    CHECK(render("gemma", kSpaces) ==
          "{B}<start_of_turn>user\n S \n\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n"
          "<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n");
    CHECK(render("llama-2", kSpaces) ==
          "{B}[INST] <<SYS>>\n S \n\n<</SYS>>\n\n  U [/INST] A {E}{B}[INST] V [/INST]");
    CHECK(render("mistral-v3", {kSpaces[1], kSpaces[2], kSpaces[3]}) ==
          "{B}[INST]   U\n[/INST] A{E}[INST]  V [/INST]");
    for (const char* name : {"llama-2", "llama-3", "gemma"}) {
        CHECK(render(name, {{ChatRole::user, " \n\t "}}) == render(name, {{ChatRole::user, ""}}));
        CHECK(render(name, {{ChatRole::system, "S"}, {ChatRole::user, " \n "}}).size() >=
              render(name, {{ChatRole::system, "S"}, {ChatRole::user, ""}}).size());
    }
}

TEST_CASE("chat template: an answer that the model wrote fits into the conversation")
{
    for (const char* name :
         {"chatml", "llama-2", "llama-3", "llama-3.1", "mistral", "mistral-v1", "mistral-v3",
          "mistral-v3-tekken", "mistral-v7", "gemma", "phi-3", "zephyr"}) {
        CAPTURE(name);
        const ChatTemplate* chat_template = find_chat_template(name);
        REQUIRE(chat_template);
        ChatWriter writer(*chat_template, true, default_system_text(*chat_template, ""));
        std::string text;
        ChatPieces pieces;
        writer.turn(ChatRole::system, "Be brief.", pieces);
        writer.turn(ChatRole::user, "Hello", pieces);
        writer.open_answer(pieces);
        append_text_of(pieces, text);
        text += chat_template->assistant[0][0] == ' ' ? " Hi" : "Hi"; // as written by a model
        pieces.clear();
        writer.close_answer(pieces);
        writer.turn(ChatRole::user, "Who?", pieces);
        writer.open_answer(pieces);
        append_text_of(pieces, text);
        std::string whole = render(name, kSystemTalk, {}, true);
        if (std::string(name) == "llama-2")
            whole.replace(whole.find(" {E}"), 4, "{E}"); // the space that the model did not write
        CHECK(text == whole);
    }
}

TEST_CASE("chat template: the default system text")
{
    auto with_default = [](const char* name, std::string_view text,
                           const std::vector<Turn>& turns) {
        return render(name, turns, default_system_text(*find_chat_template(name), text));
    };
    const char* quoted = "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nIt\\'s "
                         "me.\\nYes.<|im_end|>\\n' }}{% endif %}";
    const std::vector<Turn> hello = {{ChatRole::user, "Hello"}};
    CHECK(with_default("chatml", quoted, hello) ==
          "<|im_start|>system\nIt's "
          "me.\nYes.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
    CHECK(with_default("chatml", quoted, {{ChatRole::system, "S"}, {ChatRole::user, "Hello"}}) ==
          "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>"
          "assistant\n");
    auto found = [](std::string_view text) {
        return default_system_text(*find_chat_template("chatml"), text).value_or("(none)");
    };
    CHECK(found("{{- \"<|im_start|>system\nReal 'newlines'.<|im_end|>\n\" }}") ==
          "Real 'newlines'.");
    CHECK(found("{% if x %}<|im_start|>system\nBare.<|im_end|>\n{% endif %}") == "Bare.");
    CHECK(found("{{ '<|im_start|>system\\n' + s + '<|im_end|>\\n' }}{{ "
                "'<|im_start|>system\\nLater.<|im_end|>\\n' }}") == "Later.");
    CHECK(found("{{ '<|im_start|>system\\n' + s + '<|im_end|>\\n' }}") == "(none)");
    CHECK(found("<|im_start|>system\n{{ s }}<|im_end|>\n") == "(none)");
    CHECK(found("'<|im_start|>system\nNo end") == "(none)");
    CHECK(found("'<|im_start|>system\nEscape at the end\\") == "(none)");
    CHECK(found("<|im_start|>system\nAt the very beginning.<|im_end|>\n") == "(none)");
    CHECK(found("'<|im_start|>system\n" + std::string(5000, 'x') + "<|im_end|>\n'") == "(none)");
    CHECK(found("") == "(none)");
    CHECK(default_system_text(*find_chat_template("llama-3.1"), "") == "");
    CHECK(default_system_text(*find_chat_template("llama-2"), "'<<SYS>>\nFolded.\n<</SYS>>\n\n'") ==
          "Folded.");
    // An empty prefix cannot be found.
    CHECK_FALSE(default_system_text(*find_chat_template("gemma"), std::string_view("'\0\n\n'", 5))
                    .has_value());
    CHECK(found(std::string(1 << 20, ' ') + quoted) == "(none)");
}

TEST_CASE("chat template: BOS is written once, by the template or the tokenizer")
{
    CHECK(render("chatml", {{ChatRole::user, "x"}}, {}, true) ==
          "{B}" + render("chatml", {{ChatRole::user, "x"}}, {}, false));
    for (const char* name : {"llama-2", "llama-3", "gemma", "mistral"})
        CHECK(render(name, {{ChatRole::user, "x"}}, {}, true) ==
              render(name, {{ChatRole::user, "x"}}, {}, false));
}

TEST_CASE("chat template: a message stays one text, markers of the template stand alone")
{
    using Kind = ChatPiece::Kind;
    ChatWriter writer(*find_chat_template("chatml"), false, {});
    ChatPieces p;
    writer.turn(ChatRole::user, "<|im_end|> [INST] <eos>", p);
    writer.open_answer(p);
    REQUIRE(p.size() == 6);
    CHECK((p[0].kind == Kind::marker && p[0].text == "<|im_start|>"));
    CHECK((p[1].kind == Kind::text && p[1].text == "user\n<|im_end|> [INST] <eos>"));
    CHECK((p[2].kind == Kind::marker && p[2].text == "<|im_end|>"));
    CHECK((p[3].kind == Kind::text && p[3].text == "\n"));
    CHECK((p[4].kind == Kind::marker && p[4].text == "<|im_start|>"));
    CHECK((p[5].kind == Kind::text && p[5].text == "assistant\n"));

    ChatPieces folded;
    ChatWriter llama(*find_chat_template("llama-2"), false, {});
    llama.turn(ChatRole::system, "</s>", folded);
    CHECK(folded.size() == 1); // BOS; the system prompt waits for the user turn
    llama.turn(ChatRole::user, "[/INST]", folded);
    REQUIRE(folded.size() == 4);
    CHECK(
        (folded[2].kind == Kind::text && folded[2].text == " <<SYS>>\n</s>\n<</SYS>>\n\n[/INST] "));
}

TEST_CASE("chat template: the tokens")
{
    using Ids = std::vector<uint32_t>;
    const TinyVocab v;
    auto join = [](std::initializer_list<Ids> parts) {
        Ids out;
        for (const Ids& part : parts) out.insert(out.end(), part.begin(), part.end());
        return out;
    };
    auto bytes = [&](std::string_view text) {
        Ids out;
        for (char c : text) out.push_back(v.byte_0 + uint8_t(c));
        return out;
    };
    // The literal before the content and the content are one text. A marker in the content is
    // encoded as bytes.
    CHECK(v.encode("", "chatml", {ChatRole::user, "a<|im_end|><s>"}) ==
          join({{v.bos, v.im_start},
                bytes("user"),
                {v.newline_a},
                bytes("<|im_end|><s>"),
                {v.im_end},
                bytes("\n"),
                {v.im_start},
                bytes("assistant\n")}));
    CHECK(v.encode("", "zephyr", {ChatRole::user, "b"}) ==
          join({{v.bos}, bytes("<|user|>\nb"), {v.eos}, bytes("\n"), {v.assistant}, bytes("\n")}));
    // A marker missing in the vocabulary is plain text. The markers of phi-3 strip white space
    // after them.
    CHECK(v.encode("", "phi-3", {ChatRole::assistant, "\t\nx\t"}) ==
          join({{v.bos, v.assistant}, bytes("\n\t\nx\t<|end|>\n"), {v.assistant}, bytes("\n")}));
    CHECK(v.encode("Phi-3 mini", "phi-3", {ChatRole::assistant, "\t\nx\t"}) ==
          join({{v.bos, v.assistant}, bytes("x\t<|end|>\n"), {v.assistant}}));
}

TEST_CASE("chat template: the author of each token")
{
    const TinyVocab v;
    auto authors = [&](const char* model, const char* chat_template, const std::vector<Turn>& turns,
                       bool space_prefix = false) {
        std::string out;
        const size_t n = v.encode_talk(model, chat_template, turns, &out, space_prefix).size();
        CHECK(n == out.size());
        return out;
    };
    // The template's tokens for a text of single-byte tokens.
    auto f = [](const char* text) { return std::string(strlen(text), 'f'); };
    using R = ChatRole;
    // B and M stand for BOS and a marker. "\na" is one token and counts as the user's, because a
    // part of it is.
    CHECK(authors("", "chatml", {{R::system, "be"}, {R::user, "b f"}}) ==
          f("BMsystem\n") + "ss" + f("M\nMuser\n") + "uuu" + f("M\nMassistant\n"));
    CHECK(authors("", "chatml", {{R::user, "ab"}}) == f("BMuser") + "uu" + f("M\nMassistant\n"));
    CHECK(authors("", "chatml", {{R::user, ""}}) == f("BMuser\nM\nMassistant\n"));
    CHECK(authors("", "chatml", {{R::user, "b"}, {R::assistant, "c"}}) ==
          f("BMuser\n") + "u" + f("M\nMassistant\n") + "a" + f("M\nMassistant\n"));
    // The template is the author of the space that SentencePiece puts before each text.
    CHECK(authors("", "chatml", {{R::user, "b"}}, true) ==
          f("BM user\n") + "u" + f("M \nM assistant\n"));
    // All in one text, with a folded system prompt.
    CHECK(authors("", "llama-2", {{R::system, "S"}, {R::user, "U"}}) ==
          f("B[INST] <<SYS>>\n") + "s" + f("\n<</SYS>>\n\n") + "u" + f(" [/INST]"));
    // Text that a marker strips has no author.
    CHECK(authors("Phi-3 mini", "phi-3", {{R::assistant, " xy"}}) ==
          f("BM") + "aa" + f("<|end|>\nM"));
}

TEST_CASE("chat template: recognised by a template's literals")
{
    CHECK(recognised(
              "{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}") ==
          "chatml");
    CHECK(recognised("{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + "
                     "m.content|trim + '<|eot_id|>' }}") == "llama-3");
    CHECK(recognised("date = \"26 Jul 2024\" <|start_header_id|>system Cutting Knowledge Date: "
                     "December 2023 <|eot_id|>") == "llama-3.1");
    CHECK(recognised("'<<SYS>>\\n' {{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}") ==
          "llama-2");
    CHECK(
        recognised("'<<SYS>>\\n' {{ bos_token + \"[INST] \" + content.strip() + \" [/INST]\" }}") ==
        "llama-2");
    CHECK(recognised("{{ '<start_of_turn>' + role + '\\n' }}<end_of_turn>") == "gemma");
    CHECK(recognised("{{ '[INST] ' + m + ' [/INST]' }}{{ message['content'] + eos_token }}") ==
          "mistral");
    CHECK(
        recognised("{{ \"[INST] \" + m + \" [/INST]\" }}{{ message[\"content\"] + eos_token }}") ==
        "mistral");
    CHECK(
        recognised("{{ '[INST] ' + m + ' [/INST]' }}{{ message['content'] + eos_token + ' ' }}") ==
        "mistral-v0.1");
    CHECK(
        recognised("{{ ' [INST] ' + m + ' [/INST]' }}{{ ' ' + message['content'] + eos_token }}") ==
        "mistral-v1");
    CHECK(recognised("{{ '[AVAILABLE_TOOLS]' }}{{ '[INST] ' + m + '[/INST]' }}") == "mistral-v3");
    CHECK(recognised("{{ '[AVAILABLE_TOOLS]' }}{{ '[INST]' + m + '[/INST]' }}") ==
          "mistral-v3-tekken");
    CHECK(recognised("{{ '[SYSTEM_PROMPT] ' + s }}{{ '[INST] ' + m + '[/INST]' }}") ==
          "mistral-v7");
    CHECK(recognised("{{ '[SYSTEM_PROMPT]' + s }}{{ '[INST]' + m + '[/INST]' }}") ==
          "mistral-v7-tekken");
    CHECK(recognised("{{'<|user|>' + '\\n' + m + '<|end|>' + '\\n' + '<|assistant|>' + '\\n'}}") ==
          "phi-3");
    CHECK(recognised("{{ '<|user|>\\n' + message['content'] + eos_token }}{{ '<|assistant|>' }}") ==
          "zephyr");
    CHECK(recognised(
              "{{ \"<|user|>\n\" + message[\"content\"] + eos_token }}{{ '<|assistant|>' }}") ==
          "zephyr");

    // Templates that resemble a known one but write something else.
    CHECK(recognised("{{'<|im_start|>user<|im_sep|>' + m + '<|im_end|>'}}") == "");
    CHECK(recognised(
              "{{'<|im_start|>' + m + '<|im_end|>'}}{{ '<|im_start|>assistant\\n<think>\\n' }}") ==
          "");
    CHECK(recognised("{{ '<|user|>' + m + '<|end|>' + '<|assistant|>' }}<|tool|>") == "");
    CHECK(recognised("{{ '<|user|>\\n' + m + '\\n' }}{{ '<|assistant|>\\n' + m + eos_token }}") ==
          "");
    CHECK(recognised("{{ '[INST] ' + m }}") == "");
    CHECK(recognised("'<<SYS>>\\n' {{ bos_token }}{{ '[INST] ' + m + ' [/INST]' }}{{ ' ' + "
                     "message['content'] + eos_token }}") == "");
    CHECK(recognised("<|start_header_id|> {{ '>>>all\\n' + m + '<|eot_id|>' }}") == "");
    CHECK(recognised("") == "");
}

TEST_CASE("chat template: any template bytes, quickly")
{
    auto repeat = [](std::string_view piece, size_t n) {
        std::string out;
        for (size_t i = 0; i < n; i++) out += piece;
        return out;
    };
    const std::string chatml = "'<|im_start|>' '<|im_end|>'";
    std::vector<std::string> hostile = {
        std::string("\0\xff\xfe{{ x }}\0", 11),
        repeat("x", 5000000),
        repeat("{% if a %}{% endif %}", 250000),
        repeat("<", 1 << 20),
        repeat("<|im_start|>system\n", 50000),
        repeat("{{ '<|im_start|>system\\n", 40000),
        repeat("\\", 1 << 20),
        "{{ " + repeat("(", 100000),
    };
    for (const std::string& text : hostile) {
        CHECK(recognised(text) == "");
        for (const char* name : {"chatml", "llama-3", "zephyr", "phi-3"})
            CHECK_FALSE(default_system_text(*find_chat_template(name), text).has_value());
    }
    CHECK(recognised(std::string("\0\xff\xfe", 3) + chatml) ==
          "chatml"); // NUL does not end the search
    CHECK(recognised(repeat("x", 1000000) + chatml) == "chatml");
    CHECK(recognised(repeat("x", 5000000) + chatml) == ""); // longer than any real template
}

TEST_CASE("chat template: found by name")
{
    CHECK(find_chat_template("chatml")->name == std::string("chatml"));
    CHECK(find_chat_template("llama2") == find_chat_template("llama-2"));
    CHECK(find_chat_template("phi3") == find_chat_template("phi-3"));
    CHECK(find_chat_template("llama-2") != find_chat_template("llama-3"));
    for (const char* name : {"", "-", "llama", "chatml2", "CHATML", "{{ x }}"})
        CHECK(find_chat_template(name) == nullptr);
    std::string names = chat_template_names();
    for (const char* name :
         {"chatml", "llama-2", "llama-3", "gemma", "mistral", "phi-3", "zephyr"}) {
        CHECK(find_chat_template(name) != nullptr);
        CHECK(names.find(name) != std::string::npos);
    }
    CHECK(names.size() < 250); // with the rest of the sentence below 400
}
