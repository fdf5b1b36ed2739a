// A conversation as tokens: authors, control tokens, and what a session keeps from turn to turn.
#include "runtime/chat/chat_format.h"
#include "runtime/chat/chat_history.h"
#include "runtime/chat/json.h"
#include "text/vocab_builder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

using namespace ks;

namespace
{

using Ids = std::vector<uint32_t>;

// SentencePiece with all bytes and some markers.
VocabBuilder chat_vocab(bool space_prefix)
{
    VocabBuilder b;
    b.model = "llama";
    b.rest.add_space_prefix = space_prefix;
    for (const char* control : {"<s>", "</s>", "<|im_start|>", "<|im_end|>"}) b.add(control, 3);
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        b.add(name, 6);
    }
    for (const char* defined : {"<think>", "[multimodal]", "\n\n"}) b.add(defined, 4);
    b.add("\xe2\x96\x81", 1);
    b.rest.bos = 0;
    b.rest.eos = 1;
    return b;
}

struct Talk {
    Loaded vocab{chat_vocab(false)};
    ChatFormat format;
    ChatHistory history;
    Ids held; // what a session would hold
    bool can_rewind = true;

    explicit Talk(std::string_view text) : format(open(text)) {}
    ChatFormat open(std::string_view text)
    {
        Result<ChatFormat> opened = ChatFormat::open(text, vocab.tokenizer);
        REQUIRE_MESSAGE(opened.ok(), opened.status().message());
        return std::move(opened.value());
    }
    PromptStep read(const std::vector<jinja::Value>& messages)
    {
        ChatRequest request;
        request.messages = jinja::Value(messages);
        Result<jinja::Text> prompt = format.render(request);
        REQUIRE_MESSAGE(prompt.ok(), prompt.status().message());
        PromptStep step = history.advance(vocab.tokenizer, prompt.value(), format.markup(),
                                          [&](uint32_t) { return can_rewind; });
        CHECK(step.authors.size() == step.ids.size());
        held.resize(step.n_kept);
        held.insert(held.end(), step.ids.begin(), step.ids.end());
        CHECK(history.n_tokens() == held.size());
        return step;
    }
    void answer(const std::string& text)
    {
        const Ids ids = vocab.encode(text, true, false);
        held.insert(held.end(), ids.begin(), ids.end());
        history.add_answer(vocab.tokenizer, ids.data(), ids.size());
    }
    std::string text() const // with its control tokens
    {
        return vocab.tokenizer.decode(held.data(), held.size(), true);
    }
    size_t n_special() const
    {
        size_t n = 0;
        for (uint32_t id : held) n += vocab.tokenizer.type(id) != TokenType::byte;
        return n;
    }
};

const char* const kChat = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                          "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>"
                          "assistant\n{% endif %}";
// Trims answers, and drops thoughts of earlier ones.
const char* const kThinking =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ (m.content.split('</think>')[-1] if m.role == 'assistant' else m.content)|trim }}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant{{ '\\n' }}";

std::string without_spaces(std::string text)
{
    text.erase(std::remove_if(text.begin(), text.end(), isspace), text.end());
    return text;
}

jinja::Value user(const char* text)
{
    return chat_message("user", text);
}

} // namespace

TEST_CASE("chat history: only the template writes control tokens")
{
    Talk plain(kChat);
    plain.read({user("x")});
    CHECK(plain.n_special() == 3);
    for (const char* text : {"<|im_end|>", "<s>x</s>", "[multimodal]", "<|im_<|im_end|>end|>"}) {
        Talk talk(kChat);
        talk.read({user(text)});
        CHECK(talk.n_special() == 3);
        CHECK(talk.text() ==
              "<|im_start|>user\n" + std::string(text) + "<|im_end|>\n<|im_start|>assistant\n");
    }
    Talk lines(kChat);
    lines.read({user("a\n\nb")}); // ordinary vocabulary
    CHECK(lines.n_special() == 4);
    Talk split("{{ messages[0].content }}end|>{{ '<|im_' }}{{ messages[1].content }}");
    split.read({user("<|im_"), user("end|>")});
    CHECK(split.n_special() == 0);
    Talk composed("{{ '<|' ~ 'im_end' ~ '|>' }}{{ '<|' ~ messages[0].content ~ '|>' }}");
    composed.read({user("im_end")});
    CHECK(composed.n_special() == 1);
    // A user-defined token is a marker if the template writes it.
    Talk spoken("{{ messages[0].content }}<think>");
    spoken.read({user("<think>")});
    CHECK(spoken.n_special() == 1);
    CHECK_FALSE(
        check_messages(jinja::Value(std::vector<jinja::Value>{chat_message("user<|im_end|>", "x")}))
            .ok());
}

TEST_CASE("chat history: the author of each token")
{
    Talk talk(kChat);
    const PromptStep step = talk.read({chat_message("system", "be"), user("b f")});
    auto f = [](const char* text) { return std::string(strlen(text), 'f'); };
    CHECK(step.authors ==
          f("M system\n").substr(1) + "ss" + f("M\nMuser\n") + "uuu" + f("M\nMassistant\n"));
    CHECK(n_prefix_tokens(step.authors) == strlen("Msystem\nbeM\nMuser\n"));
    CHECK(template_mask("fuf") == std::vector<uint8_t>{1, 0, 1});
}

TEST_CASE("chat history: a conversation that grows is read once")
{
    Talk talk(kChat);
    const PromptStep first = talk.read({user("a")});
    CHECK(first.n_kept == 0);
    talk.answer("b");
    const size_t n_held = talk.held.size();
    const PromptStep second = talk.read({user("a"), chat_message("assistant", "b"), user("c")});
    CHECK(second.n_kept == n_held);
    Talk whole(kChat);
    whole.read({user("a"), chat_message("assistant", "b"), user("c")});
    CHECK(talk.held == whole.held);
    // The same prompt again reads the last part again.
    const PromptStep again = talk.read({user("a"), chat_message("assistant", "b"), user("c")});
    CHECK(again.ids.size() == strlen("assistant\n"));
    CHECK(talk.held == whole.held);
    // An earlier message changed: back to the last special token before it.
    const PromptStep changed = talk.read({user("a"), chat_message("assistant", "d"), user("c")});
    CHECK(changed.n_kept == strlen("Muser\naM\nM"));
}

TEST_CASE("chat history: an answer stays as the model wrote it")
{
    Talk talk(kThinking);
    talk.read({user("a")});
    talk.answer(" b\n");
    const size_t n_held = talk.held.size();
    const PromptStep trimmed = talk.read({user("a"), chat_message("assistant", " b\n"), user("c")});
    CHECK(trimmed.n_kept == n_held);
    CHECK(talk.text() == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n b\n<|im_end|>\n"
                         "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n");
    talk.answer("t</think>e");
    Talk evicting = [] {
        Talk other(kThinking);
        other.read({user("a")});
        other.answer("t</think>e");
        other.can_rewind = false;
        return other;
    }();
    const std::vector<jinja::Value> messages = {user("a"), chat_message("assistant", "t</think>e"),
                                                user("c")};
    const size_t n_kept = evicting.held.size();
    CHECK(evicting.read(messages).n_kept == n_kept);
    CHECK(evicting.text().find("t</think>e<|im_end|>\n<|im_start|>user\nc") != std::string::npos);
    evicting.can_rewind = true;
    Talk exact(kThinking);
    exact.read({user("a")});
    exact.answer("t</think>e");
    exact.read(messages);
    Talk whole(kThinking);
    whole.read(messages);
    CHECK(exact.held == whole.held);
}

TEST_CASE("chat history: a text of unknown messages, and going back")
{
    Talk talk(kChat);
    talk.held.assign(100, 5);
    talk.history.load(100);
    const PromptStep step = [&] {
        Result<jinja::Text> turn = talk.format.render_turn("c", {});
        REQUIRE(turn.ok());
        return talk.history.advance(talk.vocab.tokenizer, turn.value(), talk.format.markup(),
                                    [](uint32_t) { return true; });
    }();
    CHECK(step.n_kept == 100);
    CHECK(talk.vocab.tokenizer.decode(step.ids.data(), step.ids.size(), true) ==
          "<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n");

    Talk back(kChat);
    back.read({user("a")});
    const uint32_t n_prompt = back.history.n_tokens();
    back.answer("b");
    back.history.truncate(n_prompt);
    back.held.resize(n_prompt);
    back.answer("d");
    back.read({user("a"), chat_message("assistant", "d"), user("c")});
    Talk whole(kChat);
    whole.read({user("a"), chat_message("assistant", "d"), user("c")});
    CHECK(back.held == whole.held);
}

TEST_CASE("chat history: a tool call stays whole where the session cannot go back")
{
    const char* const tools = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                              "{% for call in m.tool_calls %}<call>{{ call.name }}</call>"
                              "{% endfor %}<|im_end|>\n{% endfor %}";
    jinja::Value call = chat_message("assistant", "");
    call.dict_object().set("tool_calls",
                           jinja::parse_json(R"([{"name": "now"}, {"name": "then"}])").value());
    const std::vector<jinja::Value> messages = {user("a"), call, chat_message("tool", "r")};
    Talk loaded(tools), spaced(tools);
    loaded.held.assign(100, 5);
    loaded.history.load(100);
    spaced.read({user("a")});
    spaced.answer("<|im_start|>assistant\n<call>now</call> <call>then</call>");
    spaced.can_rewind = false;
    for (Talk* talk : {&loaded, &spaced}) {
        talk->vocab.tokenizer.mark_end(3);
        const uint32_t n_held = talk->history.n_tokens();
        const PromptStep step = talk->read(messages);
        CHECK(step.n_kept == n_held);
        CHECK(talk->vocab.tokenizer.decode(step.ids.data(), step.ids.size(), true) ==
              "<|im_end|>\n<|im_start|>tool\nr<|im_end|>\n");
    }
}

TEST_CASE("chat history: as bytes and back")
{
    Talk talk(kChat), other(kChat);
    talk.read({chat_message("system", "be"), user("b f")});
    talk.answer("an answer");
    const std::string saved = talk.history.save();
    REQUIRE(other.history.restore(saved));
    CHECK(other.history.save() == saved);
    other.held = talk.held;
    const std::vector<jinja::Value> more = {chat_message("system", "be"), user("b f"),
                                            chat_message("assistant", "an answer"), user("z")};
    const PromptStep a = talk.read(more), b = other.read(more);
    CHECK(a.n_kept == b.n_kept);
    CHECK(a.ids == b.ids);
    CHECK(a.n_kept > 10);

    // Damaged bytes are refused, or they give a history that can be used.
    uint32_t random = 1;
    size_t n_refused = 0;
    for (int i = 0; i < 2000; i++) {
        std::string damaged = saved;
        for (int k = 0; k < 1 + i % 3; k++) {
            random = random * 1664525 + 1013904223;
            damaged[(random >> 8) % damaged.size()] = char(random >> 24);
        }
        if (i % 5 == 0) damaged.resize((random >> 8) % damaged.size());
        ChatHistory history;
        if (!history.restore(damaged)) {
            n_refused++;
            continue;
        }
        history.truncate(history.n_tokens() / 2);
        CHECK(history.save().size() < saved.size() + 8);
    }
    CHECK(n_refused > 300);
    CHECK_FALSE(other.history.restore(""));
}

TEST_CASE("chat format: the end of an answer, and named templates")
{
    Talk chat(kChat);
    CHECK(chat.format.end_tokens() == Ids{3});
    CHECK(chat.format.stop_text().empty());
    CHECK(Talk("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}")
              .format.stop_text() == "<|end|>");
    CHECK(find_named_template("llama3") == find_named_template("llama-3"));
    CHECK(find_named_template("llama") == nullptr);
    for (const char* name :
         {"chatml", "gemma", "llama-2", "llama-3", "mistral", "phi-3", "vicuna", "zephyr"}) {
        CAPTURE(name);
        CHECK(template_names().find(name) != std::string::npos);
        Talk talk(find_named_template(name)->text);
        talk.read({chat_message("system", "S"), user("a")});
        talk.answer("b");
        const uint32_t n_held = talk.history.n_tokens();
        const PromptStep step = talk.read(
            {chat_message("system", "S"), user("a"), chat_message("assistant", "b"), user("c")});
        CHECK(step.n_kept == n_held);
        CHECK(talk.text().find('S') != std::string::npos);
    }
}

// KS_TEMPLATES: a folder of real templates (*.jinja). Each holds a conversation of four turns, turn
// by turn, and must give the tokens of the whole conversation read at once.
TEST_CASE("chat history: turn by turn as at once, with real templates")
{
    const char* folder = getenv("KS_TEMPLATES");
    if (!folder) return;
    size_t n_equal = 0, n_trimmed = 0;
    std::string refused;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() != ".jinja") continue;
        const std::string name = entry.path().stem().string();
        CAPTURE(name);
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string text((std::istreambuf_iterator<char>(file)), {});
        Talk talk(text);
        std::vector<jinja::Value> messages;
        bool works = true;
        for (int turn = 0; turn < 4 && works; turn++) {
            messages.push_back(user(turn % 2 ? "What <|im_end|> is\n\nthat?" : "Hello"));
            ChatRequest request;
            request.messages = jinja::Value(messages);
            works = talk.format.render(request).ok();
            if (!works) break;
            talk.read(messages);
            Talk whole(text);
            whole.read(messages);
            n_equal += talk.held == whole.held;
            n_trimmed += talk.held != whole.held; // by white space around an answer
            CHECK(without_spaces(talk.text()) == without_spaces(whole.text()));
            talk.answer("An answer, number " + std::to_string(turn) + ".");
            messages.push_back(
                chat_message("assistant", "An answer, number " + std::to_string(turn) + "."));
        }
        if (!works) refused += " " + name;
    }
    MESSAGE("equal: ", n_equal, ", but for white space: ", n_trimmed, ", refused:", refused);
}
