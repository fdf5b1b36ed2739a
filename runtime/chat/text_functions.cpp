// Methods and filters of texts.
#include "runtime/chat/interpreter.h"

#include <cstring>

namespace ks::jinja
{
namespace
{

template <Case wanted>
Value in_case(Call& c)
{
    return change_case(c.written(0), wanted);
}

enum Sides { kLeft = 1, kRight = 2, kBoth = 3 };

template <int sides>
Value strip(Call& c)
{
    Text text = c.written(0);
    bool spaces = c[1].kind <= kNone;
    string chars = spaces ? "" : c.text(1).bytes;
    vector<size_t> starts = char_starts(text.bytes);
    size_t first = 0, last = starts.size() - 1;
    auto goes = [&](size_t i) {
        if (spaces) return is_space(next_char(text.bytes, starts[i]));
        return chars.find(text.bytes.substr(starts[i], starts[i + 1] - starts[i])) != kAll;
    };
    while (sides & kLeft && first < last && goes(first)) first++;
    while (sides & kRight && first < last && goes(last - 1)) last--;
    return text.part(starts[first], starts[last] - starts[first]);
}

using Cuts = vector<std::pair<size_t, size_t>>; // begins and ends of separators

Values parts_between(const Text& text, const Cuts& cuts, size_t begin = 0, size_t end = kAll)
{
    Values parts;
    for (auto [cut, after] : cuts) {
        parts.push_back(text.part(begin, cut - begin));
        begin = after;
    }
    parts.push_back(text.part(begin, min(end, text.size()) - begin));
    return parts;
}

Cuts cuts_at(const string& text, const string& separator)
{
    if (separator.empty()) refuse("an empty separator");
    use_steps(text.size() / 64);
    Cuts cuts;
    for (size_t at = 0; (at = text.find(separator, at)) != kAll; at += separator.size())
        cuts.emplace_back(at, at + separator.size());
    return cuts;
}

// Runs of white space, or the ends of lines.
Cuts cuts_at_spaces(const string& text, size_t end, bool lines)
{
    Cuts cuts;
    for (size_t at = 0, after; at < end; at = after) {
        Char c = next_char(text, at);
        after = at + c.bytes;
        if (lines && text.compare(at, 2, "\r\n") == 0) after++;
        if (!lines) after = max(after, at + space_before(string_view(text).substr(at)));
        bool cuts_here =
            is_space(c) &&
            (!lines || !(c.code == ' ' || c.code == '\t' || c.code == 0x1f || c.code == 0xa0 ||
                         (c.code > 0x85 && c.code != 0x2028 && c.code != 0x2029)));
        if (cuts_here) cuts.emplace_back(at, after);
    }
    return cuts;
}

template <bool from_right>
Value split(Call& c)
{
    const Text& text = c.text(0);
    int64_t most = c.integer(2, -1);
    bool spaces = c[1].kind <= kNone;
    size_t begin = spaces ? space_before(text.bytes) : 0, end = text.size();
    if (spaces && begin == end) return Values();
    if (spaces) end -= space_after(text.bytes);
    Cuts cuts =
        spaces ? cuts_at_spaces(text.bytes, end, false) : cuts_at(text.bytes, c.text(1).bytes);
    if (begin > 0) cuts.erase(cuts.begin());
    if (most >= 0 && cuts.size() > size_t(most)) {
        if (from_right)
            cuts.erase(cuts.begin(), cuts.end() - most);
        else
            cuts.resize(size_t(most));
    }
    return parts_between(text, cuts, begin, end);
}

Value lines_of(const Text& text)
{
    Values lines = parts_between(text, cuts_at_spaces(text.bytes, text.size(), true));
    if (lines.back().str().empty()) lines.pop_back();
    return lines;
}

template <bool from_right>
Value partition(Call& c)
{
    const Text& text = c.text(0);
    Cuts cuts = cuts_at(text.bytes, c.text(1).bytes);
    auto [cut, after] = !cuts.empty() ? (from_right ? cuts.back() : cuts[0])
                        : from_right  ? std::pair<size_t, size_t>()
                                      : std::pair(text.size(), text.size());
    return {Values{text.part(0, cut), text.part(cut, after - cut), text.part(after)}, kTuple};
}

Value replace(Call& c)
{
    Text text = c.written(0), old = c.written(1), with = c.written(2), out;
    Cuts cuts;
    if (old.size())
        cuts = cuts_at(text.bytes, old.bytes);
    else
        for (size_t at : char_starts(text.bytes)) cuts.emplace_back(at, at);
    cuts.resize(min(cuts.size(), size_t(c.integer(3, -1))));
    Values parts = parts_between(text, cuts);
    for (size_t i = 0; i < parts.size(); i++) {
        if (i) out.append(with);
        out.append(parts[i].text());
    }
    return out;
}

Value join(const Text& separator, const Values& items, bool only_texts)
{
    Text out;
    for (size_t i = 0; i < items.size(); i++) {
        if (only_texts && !items[i].is(kText)) refuse("join of %s", type_name(items[i]));
        if (i) out.append(separator);
        out.append(text_of(items[i]));
    }
    return out;
}

Value join_filter(Call& c)
{
    Values items = items_of(c[0]);
    if (c.has(2))
        for (Value& item : items) item = c.in.at_path(item, c[2]);
    return join(c.written(1), items, false);
}

template <bool at_end>
bool has_affix(const string& text, const string& affix)
{
    return at_end ? ends_with(text, affix) : starts_with(text, affix);
}

template <bool at_end>
Value has_any_affix(Call& c)
{
    c.text(0);
    string text = slice_of(c[0], c[2], c[3]).str();
    for (const Value& affix : c[1].is(kTuple) ? items_of(c[1]) : Values{c.text(1)})
        if (affix.is(kText) && has_affix<at_end>(text, affix.str())) return true;
    return false;
}

template <bool at_end>
Value without_affix(Call& c)
{
    const Text &text = c.text(0), &affix = c.text(1);
    if (!has_affix<at_end>(text.bytes, affix.bytes)) return text;
    return text.part(at_end ? 0 : affix.size(), text.size() - affix.size());
}

template <bool from_right, bool required>
Value find(Call& c)
{
    const string &text = c.text(0).bytes, &part = c.text(1).bytes;
    use_steps(text.size() / 64);
    size_t at = from_right ? text.rfind(part) : text.find(part);
    if (at == kAll && required) refuse("the text has no such part");
    return at == kAll ? int64_t(-1) : int64_t(count_chars(string_view(text).substr(0, at)));
}

// All characters are of a kind, and there is one.
template <int kinds>
Value all_of(Call& c)
{
    const string& text = c.text(0).bytes;
    for (size_t at = 0; at < text.size();) {
        Char next = next_char(text, at);
        if (!(next.kind & kinds)) return false;
        at += next.bytes;
    }
    return !text.empty();
}

template <char align>
Value pad(Call& c)
{
    return padded(c.written(0), c.integer(1, 80), align, c.has(2) ? c.text(2) : " ");
}

Value zero_fill(Call& c)
{
    const Text& text = c.text(0);
    size_t sign = text.bytes.find_first_not_of("+-") == 1;
    Text out = text.part(0, sign);
    out.append(padded(text.part(sign), c.integer(1, 0) - int64_t(sign), '>', "0"));
    return out.size() == text.size() ? text : Text(out.bytes, author_in(c[0]));
}

Value indent(Call& c)
{
    Text pad = c[1].is(kText) ? c[1].text() : repeated(" ", c.integer(1, 4)).text(),
         text = c.text(0), out;
    text.add("\n");
    Value lines = lines_of(text);
    for (size_t i = 0; i < lines.items().size(); i++) {
        const Text& line = lines.items()[i].text();
        if (i) out.add("\n");
        if (i ? line.size() || c.flag(3) : c.flag(2)) out.append(pad);
        out.append(line);
    }
    return out;
}

Value truncate(Call& c)
{
    Text text = c.written(0), end = c.has(3) ? c.text(3) : "...";
    int64_t length = c.integer(1, 255), n_end = int64_t(count_chars(end.bytes));
    if (length < n_end) refuse("truncate to fewer characters than its end has");
    if (int64_t(count_chars(text.bytes)) <= length + c.integer(4, 5)) return text;
    Text out = slice_of(text, {}, length - n_end).text();
    if (!c.flag(2)) out = out.part(0, out.bytes.rfind(' '));
    out.append(end);
    return out;
}

Value count_words(Call& c)
{
    string text = c.written(0).bytes;
    int64_t n = 0;
    for (size_t at = 0, word; at < text.size(); at += word ? word : next_char(text, at).bytes) {
        word = name_bytes(string_view(text).substr(at));
        n += word > 0;
    }
    return n;
}

string url_quoted(const string& text, const char* kept, const char* blank)
{
    string out;
    for (char c : text) {
        char quoted[4];
        snprintf(quoted, sizeof quoted, "%%%02X", uint8_t(c));
        if (isalnum(uint8_t(c)) || (c && strchr(kept, c)))
            out += c;
        else
            out += c == ' ' ? blank : quoted;
    }
    return out;
}

Value url_encode(Call& c)
{
    string out;
    if (!c[0].is(kDict))
        out = url_quoted(c.written(0).bytes, "_.-~/", "%20");
    else
        for (const auto& [key, value] : c[0].members())
            out += (out.empty() ? "" : "&") + url_quoted(text_of(key).bytes, "_.-~", "+") + "=" +
                   url_quoted(text_of(value).bytes, "_.-~", "+");
    return Text(out, author_in(c[0]));
}

Value strip_tags(Call& c)
{
    Text text = c.written(0), out;
    bool inside = false;
    for (size_t i = 0; i < text.size(); i++) {
        inside |= text.bytes[i] == '<';
        if (!inside) out.append(text, i, 1);
        inside &= text.bytes[i] != '>';
    }
    Call parts{c.in, {out, {}, {}}};
    return join(" ", split<false>(parts).items(), true);
}

Value safe(Call& c)
{
    Text text = c.written(0);
    text.safe = true;
    return text;
}

Value escape(Call& c)
{
    Text text = c.written(0);
    return text.safe ? text : html_escaped(text);
}

constexpr unsigned kBothKinds = kTextMethod | kFilter;
const Function kFunctions[] = {
    {"strip", kTextMethod, "chars?", strip<kBoth>},
    {"lstrip", kTextMethod, "chars?", strip<kLeft>},
    {"rstrip", kTextMethod, "chars?", strip<kRight>},
    {"trim", kFilter, "chars?", strip<kBoth>},
    {"split", kTextMethod, "sep? maxsplit?", split<false>},
    {"rsplit", kTextMethod, "sep? maxsplit?", split<true>},
    {"splitlines", kTextMethod, "", [](Call& c) { return lines_of(c.text(0)); }},
    {"partition", kTextMethod, "sep", partition<false>},
    {"rpartition", kTextMethod, "sep", partition<true>},
    {"replace", kBothKinds, "old new count?", replace},
    {"join", kTextMethod, "iterable",
     [](Call& c) { return join(c.text(0), items_of(c[1]), true); }},
    {"join", kFilter, "d? attribute?", join_filter},
    {"startswith", kTextMethod, "prefix start? end?", has_any_affix<false>},
    {"endswith", kTextMethod, "suffix start? end?", has_any_affix<true>},
    {"removeprefix", kTextMethod, "prefix", without_affix<false>},
    {"removesuffix", kTextMethod, "suffix", without_affix<true>},
    {"upper", kBothKinds, "", in_case<Case::upper>},
    {"lower", kBothKinds, "", in_case<Case::lower>},
    {"capitalize", kBothKinds, "", in_case<Case::capitalized>},
    {"title", kTextMethod, "", in_case<Case::words>},
    {"title", kFilter, "", in_case<Case::title>},
    {"swapcase", kTextMethod, "", in_case<Case::swapped>},
    {"find", kTextMethod, "sub", find<false, false>},
    {"rfind", kTextMethod, "sub", find<true, false>},
    {"index", kTextMethod, "sub", find<false, true>},
    {"count", kTextMethod, "sub",
     [](Call& c) {
         return Value(length_of(Values(cuts_at(c.text(0).bytes, c.text(1).bytes).size())));
     }},
    {"isdigit", kTextMethod, "", all_of<char_kind::kDigit>},
    {"isalpha", kTextMethod, "", all_of<char_kind::kLetter>},
    {"isalnum", kTextMethod, "", all_of<char_kind::kLetter | char_kind::kNumber>},
    {"isspace", kTextMethod, "", all_of<char_kind::kSpace>},
    {"isupper", kTextMethod, "", [](Call& c) { return c.in.apply("upper", kTest, {c[0]}); }},
    {"islower", kTextMethod, "", [](Call& c) { return c.in.apply("lower", kTest, {c[0]}); }},
    {"format", kTextMethod, "* **",
     [](Call& c) { return format_braces(c.text(0), c[1].items(), c[2].dict_object()); }},
    {"format", kFilter, "* **",
     [](Call& c) { return format_percent(c.written(0), truth(c[2]) ? c[2] : c[1]); }},
    {"center", kBothKinds, "width? fillchar?", pad<'^'>},
    {"ljust", kTextMethod, "width fillchar?", pad<'<'>},
    {"rjust", kTextMethod, "width fillchar?", pad<'>'>},
    {"zfill", kTextMethod, "width", zero_fill},
    {"indent", kFilter, "width? first? blank?", indent},
    {"truncate", kFilter, "length? killwords? end? leeway?", truncate},
    {"wordcount", kFilter, "", count_words},
    {"urlencode", kFilter, "", url_encode},
    {"striptags", kFilter, "", strip_tags},
    {"string", kFilter, "", [](Call& c) { return Value(c.written(0)); }},
    {"safe", kFilter, "", safe},
    {"e escape", kFilter, "", escape},
};

} // namespace

FunctionTable text_functions()
{
    return {kFunctions, std::size(kFunctions)};
}

} // namespace ks::jinja
