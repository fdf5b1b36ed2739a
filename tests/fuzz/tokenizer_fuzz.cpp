// Any bytes as a text: its tokens are in the vocabulary and decode to the text again.
#include "runtime/text/detokenizer.h"
#include "runtime/text/unicode.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/loaded.h"

#include <algorithm>

using namespace ks;

namespace
{

// U+2581 decodes to a space.
std::string plain(std::string_view text)
{
    std::string out;
    for (size_t i = 0; i < text.size(); i++) {
        const bool sign = text.substr(i, 3) == "\xe2\x96\x81";
        out += sign ? ' ' : text[i];
        i += sign ? 2 : 0;
    }
    return out;
}

void check_equal(const std::string& got, const std::string& want, const Tokenizer& tokenizer)
{
    KS_CHECK(got == want, "%s: '%s' came back as '%s'", tokenizer.kind(),
             printable(want, 300).c_str(), printable(got, 300).c_str());
}

// Streaming piece by piece gives the same bytes, in whole characters if the text is valid UTF-8.
void check_stream(const Tokenizer& tokenizer, const std::vector<uint32_t>& ids)
{
    Detokenizer stream(tokenizer.max_piece_bytes(), {"the end", "e"});
    std::string shown, all, piece(tokenizer.max_piece_bytes(), '\0');
    for (uint32_t id : ids) {
        const std::string_view bytes(piece.data(), tokenizer.piece(id, &piece[0]));
        all += bytes;
        shown += stream.feed(bytes);
    }
    shown += stream.flush();
    const bool stopped = stream.stopped_by() != nullptr;
    KS_CHECK(stopped == (all.find('e') != all.npos), "%zu bytes", all.size());
    check_equal(shown, all.substr(0, stopped ? shown.size() : all.npos), tokenizer);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
{
    static const std::vector<FuzzTokenizer>& all = fuzz_tokenizers();
    const Deadline deadline;
    Input in = input_of(data, size);
    const FuzzTokenizer& t = all[in.byte() % all.size()];
    const Tokenizer& tokenizer = t.tokenizer;
    const std::string want = t.sentence_piece ? plain(in.rest) : std::string(in.rest);
    for (bool special : {false, true}) {
        std::vector<uint32_t> ids;
        tokenizer.encode(in.rest, {false, special}, ids);
        for (uint32_t id : ids)
            KS_CHECK(id < tokenizer.n_vocab(), "token %u of %u", id, tokenizer.n_vocab());
        KS_CHECK(ids.size() <= in.rest.size() + 1, "%zu tokens for %zu bytes", ids.size(),
                 in.rest.size());
        // The unknown token of SentencePiece may stand for a character. decode() then keeps the
        // space after it that encode() adds.
        const auto is_unknown = [&](uint32_t id) {
            return tokenizer.type(id) == TokenType::unknown;
        };
        if (!t.sentence_piece || std::none_of(ids.begin(), ids.end(), is_unknown))
            check_equal(tokenizer.decode(ids.data(), ids.size(), special), want, tokenizer);
        for (uint32_t id : ids)
            KS_CHECK(special || tokenizer.type(id) != TokenType::control, "a control token, %u",
                     id);
        if (!special) check_stream(tokenizer, ids);
        // BOS does not change the tokens of the text.
        std::vector<uint32_t> with_bos;
        tokenizer.encode(in.rest, {true, special}, with_bos);
        const size_t bos = tokenizer.adds_bos();
        KS_CHECK(with_bos.size() == ids.size() + bos &&
                     std::equal(ids.begin(), ids.end(), with_bos.begin() + long(bos)),
                 "BOS");
    }
    g_accepted++;
    return 0;
}

std::vector<std::string> fuzz_seeds()
{
    const char* const texts[] = {
        "Hello, world! It's 12345 o'clock.\r\n\n\tthe end  ",
        "caf\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80 \xe2\x96\x81 e\xcc\x81",
        "<|im_start|>a<|user|> b<|u|>ab|cde <s>[unk]<unk>", "\xff\xc0\x80\xed\xa0\x80\xf4\x90",
        "    x  \xc2\xa0 x"};
    std::vector<std::string> seeds;
    for (size_t i = 0; i < fuzz_tokenizers().size(); i++)
        for (const char* text : texts) seeds.push_back(char(i) + std::string(text));
    return seeds;
}
