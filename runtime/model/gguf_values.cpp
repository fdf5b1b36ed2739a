// What a GGUF header holds, by name and type: keys, the vocabulary, the table of tensor types.
#include "runtime/model/gguf.h"

#include <algorithm>
#include <cinttypes>

namespace ks
{

static const struct {
    const char* name;
    uint8_t bytes;
} kTypes[] = {{"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
              {"bool", 1}, {"string", 8}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8}};

const char* gguf_type_name(GgufType type)
{
    return kTypes[uint32_t(type)].name;
}
uint64_t gguf_type_bytes(GgufType type)
{
    return kTypes[uint32_t(type)].bytes;
}

// clang-format off
static const GgmlType kGgmlTypes[] = {
    {0, "F32", 1, 4},        {1, "F16", 1, 2},        {2, "Q4_0", 32, 18},     {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},     {8, "Q8_0", 32, 34},     {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},  {13, "Q5_K", 256, 176},  {14, "Q6_K", 256, 210},  {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74}, {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50}, {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},  {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},       {25, "I16", 1, 2},        {26, "I32", 1, 4},
    {27, "I64", 1, 8},       {28, "F64", 1, 8},       {29, "IQ1_M", 256, 56},  {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},  {39, "MXFP4", 32, 17},   {40, "NVFP4", 64, 36},   {41, "Q1_0", 128, 18},
};
// clang-format on

const GgmlType* find_ggml_type(uint32_t number)
{
    for (const GgmlType& type : kGgmlTypes)
        if (type.number == number) return &type;
    return nullptr;
}

// Integers and booleans only; what does not fit into 63 bits saturates, because no key allows as much.
static bool integer_at(GgufType type, const uint8_t* data, uint64_t index, int64_t* out)
{
    auto load = [&](auto value) {
        memcpy(&value, data + index * sizeof value, sizeof value);
        *out = sizeof value == 8 && value > decltype(value)(INT64_MAX) ? INT64_MAX : int64_t(value);
        return true;
    };
    switch (type) {
    case GgufType::u8:
    case GgufType::boolean:
        return load(uint8_t());
    case GgufType::i8:
        return load(int8_t());
    case GgufType::u16:
        return load(uint16_t());
    case GgufType::i16:
        return load(int16_t());
    case GgufType::u32:
        return load(uint32_t());
    case GgufType::i32:
        return load(int32_t());
    case GgufType::u64:
        return load(uint64_t());
    case GgufType::i64:
        return load(int64_t());
    default:
        return false;
    }
}

template <class T> static const T* find_by_name(const std::vector<T>& items, const std::vector<uint32_t>& order, std::string_view T::*name,
                                                std::string_view wanted)
{
    auto at = std::lower_bound(order.begin(), order.end(), wanted, [&](uint32_t i, std::string_view s) { return items[i].*name < s; });
    return at != order.end() && items[*at].*name == wanted ? &items[*at] : nullptr;
}

const GgufValue* Gguf::find(std::string_view key) const
{
    return find_by_name(m_values, m_value_order, &GgufValue::key, key);
}

const GgufTensor* Gguf::find_tensor(std::string_view name) const
{
    return find_by_name(m_tensors, m_tensor_order, &GgufTensor::name, name);
}

Status Gguf::wrong_type(const GgufValue& value, const char* expected) const
{
    bool array = value.type == GgufType::array;
    std::string found = gguf_type_name(value.element);
    if (array) found = "an array of " + std::to_string(value.count) + " " + found;
    return fail(Code::invalid, "%s: key '%s' at offset %" PRIu64 " is %s, %s was expected", label().c_str(), printable(value.key).c_str(),
                value.offset, found.c_str(), expected);
}

Status Gguf::u32_at(const GgufValue& value, uint64_t index, uint32_t* out) const
{
    int64_t found;
    if (!integer_at(value.element, value.data, index, &found)) return wrong_type(value, "an integer");
    if (found < 0 || found > UINT32_MAX) {
        return fail(Code::invalid, "%s: key '%s' at offset %" PRIu64 " is %" PRId64 ", 0 to 4294967295 was expected", label().c_str(),
                    printable(value.key).c_str(), value.offset, found);
    }
    *out = uint32_t(found);
    return {};
}

const GgufValue* Gguf::find(std::string_view key, bool* found) const
{
    const GgufValue* v = find(key);
    if (found) *found = v != nullptr;
    return v;
}

Status Gguf::get_u32(std::string_view key, uint32_t* out, bool* found) const
{
    const GgufValue* v = find(key, found);
    if (!v) return {};
    if (v->type == GgufType::array || v->type == GgufType::boolean) return wrong_type(*v, "an integer");
    return u32_at(*v, 0, out);
}

Status Gguf::get_u32s(std::string_view key, uint64_t max_count, std::vector<uint32_t>* out, bool* found) const
{
    const GgufValue* v = find(key, found);
    if (!v) return {};
    if (v->count < 1 || v->count > max_count || v->type == GgufType::boolean) {
        std::string expected = "an integer or an array of 1 to " + std::to_string(max_count);
        return wrong_type(*v, expected.c_str());
    }
    out->resize(v->count);
    for (uint64_t i = 0; i < v->count; i++) KS_TRY(u32_at(*v, i, &(*out)[i]));
    return {};
}

Status Gguf::get_f64(std::string_view key, double* out, bool* found) const
{
    const GgufValue* v = find(key, found);
    if (!v) return {};
    if (v->type == GgufType::f64) {
        memcpy(out, v->data, 8);
    } else if (v->type == GgufType::f32) {
        float value;
        memcpy(&value, v->data, 4);
        *out = value;
    } else {
        return wrong_type(*v, "f32 or f64");
    }
    return {};
}

Status Gguf::get_string(std::string_view key, std::string_view* out, bool* found) const
{
    const GgufValue* v = find(key, found);
    if (!v) return {};
    if (v->type != GgufType::string) return wrong_type(*v, "a string");
    *out = {reinterpret_cast<const char*>(v->data), v->bytes};
    return {};
}

Status Gguf::get_bool(std::string_view key, bool* out, bool* found) const
{
    const GgufValue* v = find(key, found);
    if (!v) return {};
    if (v->type != GgufType::boolean) return wrong_type(*v, "a bool");
    if (v->data[0] > 1) return wrong_type(*v, "a bool of 0 or 1");
    *out = v->data[0] != 0;
    return {};
}

// null where the key is missing
Status Gguf::get_array(std::string_view key, GgufType element, const GgufValue** out) const
{
    *out = find(key);
    if (!*out || ((*out)->type == GgufType::array && (*out)->element == element)) return {};
    return wrong_type(**out, (std::string("an array of ") + gguf_type_name(element)).c_str());
}

// Ids may be negative ("none") or too large: the tokenizer, which knows how many tokens there are, judges them.
Status Gguf::get_id(std::string_view key, int64_t* out) const
{
    const GgufValue* v = find(key);
    if (!v) return {};
    if (v->type == GgufType::array || v->type == GgufType::boolean || !integer_at(v->type, v->data, 0, out))
        return wrong_type(*v, "an integer");
    return {};
}

Status Gguf::get_flag(std::string_view key, int* out) const
{
    bool value = false, found = false;
    KS_TRY(get_bool(key, &value, &found));
    if (found) *out = value;
    return {};
}

Result<VocabSource> Gguf::vocab() const
{
    VocabSource vocab;
    const GgufValue *tokens, *scores, *types, *merges;
    KS_TRY(get_string("tokenizer.ggml.model", &vocab.model));
    KS_TRY(get_string("tokenizer.ggml.pre", &vocab.pre));
    KS_TRY(get_string("tokenizer.chat_template", &vocab.chat_template));
    KS_TRY(get_array("tokenizer.ggml.tokens", GgufType::string, &tokens));
    KS_TRY(get_array("tokenizer.ggml.scores", GgufType::f32, &scores));
    KS_TRY(get_array("tokenizer.ggml.token_type", GgufType::i32, &types));
    KS_TRY(get_array("tokenizer.ggml.merges", GgufType::string, &merges));
    if (vocab.model.empty() || !tokens) {
        return fail(Code::invalid, "%s has no key '%s', its text cannot be turned into tokens", label().c_str(),
                    tokens ? "tokenizer.ggml.model" : "tokenizer.ggml.tokens");
    }
    vocab.tokens = {tokens->data, tokens->count, tokens->bytes};
    if (merges) vocab.merges = {merges->data, merges->count, merges->bytes};
    if (scores) vocab.scores = scores->data, vocab.n_scores = scores->count;
    if (types) vocab.types = types->data, vocab.n_types = types->count;
    KS_TRY(get_id("tokenizer.ggml.bos_token_id", &vocab.bos));
    KS_TRY(get_id("tokenizer.ggml.eos_token_id", &vocab.eos));
    KS_TRY(get_id("tokenizer.ggml.eot_token_id", &vocab.eot));
    KS_TRY(get_id("tokenizer.ggml.eom_token_id", &vocab.eom));
    KS_TRY(get_id("tokenizer.ggml.unknown_token_id", &vocab.unknown));
    KS_TRY(get_id("tokenizer.ggml.padding_token_id", &vocab.padding));
    KS_TRY(get_flag("tokenizer.ggml.add_bos_token", &vocab.add_bos));
    KS_TRY(get_flag("tokenizer.ggml.add_eos_token", &vocab.add_eos));
    KS_TRY(get_flag("tokenizer.ggml.add_space_prefix", &vocab.add_space_prefix));
    return vocab;
}

} // namespace ks
