// Access to GGUF contents by name and type: keys, the vocabulary, the table of tensor types.
#include "runtime/model/gguf.h"

#include <algorithm>
#include <cinttypes>

namespace ks
{

// clang-format off
static const GgufTypeInfo kTypes[] = {
    {"u8", 1, true, false}, {"i8", 1, true, true}, {"u16", 2, true, false}, {"i16", 2, true, true},
    {"u32", 4, true, false}, {"i32", 4, true, true}, {"f32", 4, false, false},
    {"bool", 1, true, false}, {"string", 8, false, false}, {"array", 0, false, false},
    {"u64", 8, true, false}, {"i64", 8, true, true}, {"f64", 8, false, false},
};

static const GgmlType kGgmlTypes[] = {
    {0, "F32", 1, 4}, {1, "F16", 1, 2}, {2, "Q4_0", 32, 18}, {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22}, {7, "Q5_1", 32, 24}, {8, "Q8_0", 32, 34}, {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110}, {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176}, {14, "Q6_K", 256, 210},
    {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74}, {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50}, {20, "IQ4_NL", 32, 18}, {21, "IQ3_S", 256, 110}, {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1}, {25, "I16", 1, 2}, {26, "I32", 1, 4},
    {27, "I64", 1, 8}, {28, "F64", 1, 8}, {29, "IQ1_M", 256, 56}, {30, "BF16", 1, 2},
    {34, "TQ1_0", 256, 54}, {35, "TQ2_0", 256, 66}, {39, "MXFP4", 32, 17}, {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18}, {42, "Q2_0", 64, 18},
};
// clang-format on

const GgufTypeInfo& gguf_type_info(GgufType type)
{
    return kTypes[uint32_t(type)];
}

const GgmlType* find_ggml_type(uint32_t number)
{
    for (const GgmlType& type : kGgmlTypes)
        if (type.number == number) return &type;
    return nullptr;
}

// False if the elements are neither integers nor booleans. Values above INT64_MAX saturate; no
// valid key is that large.
static bool integer_at(const GgufValue& v, uint64_t index, int64_t* out)
{
    const GgufTypeInfo& type = gguf_type_info(v.element);
    if (!type.integer) return false;
    uint64_t bits = 0;
    memcpy(&bits, v.data + index * type.bytes, type.bytes);
    int shift = 64 - 8 * type.bytes;
    *out = type.is_signed ? int64_t(bits << shift) >> shift
                          : int64_t(std::min(bits, uint64_t(INT64_MAX)));
    return true;
}

template <class T>
static const T* find_by_name(const std::vector<T>& items, const std::vector<uint32_t>& order,
                             std::string_view T::*name, std::string_view wanted)
{
    auto at = std::lower_bound(order.begin(), order.end(), wanted,
                               [&](uint32_t i, std::string_view s) { return items[i].*name < s; });
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

const GgufValue* Gguf::find(std::string_view key, bool* found) const
{
    const GgufValue* v = find(key);
    if (found) *found = v != nullptr;
    return v;
}

Status Gguf::wrong_type(const GgufValue& v, const char* expected) const
{
    std::string found = gguf_type_info(v.element).name;
    if (v.type == GgufType::array) found = "array of " + std::to_string(v.count) + " " + found;
    return fail(Code::invalid, "%s has type %s, %s was expected", location_of(v).c_str(),
                found.c_str(), expected);
}

Status Gguf::u32_at(const GgufValue& v, uint64_t index, uint32_t* out) const
{
    int64_t found;
    if (!integer_at(v, index, &found)) return wrong_type(v, "an integer");
    if (found < 0 || found > UINT32_MAX)
        return fail(Code::invalid, "%s is %" PRId64 ", 0 to %u was expected",
                    location_of(v).c_str(), found, UINT32_MAX);
    *out = uint32_t(found);
    return {};
}

Status Gguf::get_u32(std::string_view key, uint32_t* out, bool* found) const
{
    const GgufValue* v = find(key, found);
    if (!v) return {};
    if (v->type == GgufType::array || v->type == GgufType::boolean)
        return wrong_type(*v, "an integer");
    return u32_at(*v, 0, out);
}

Status Gguf::get_u32s(std::string_view key, uint64_t max_count, std::vector<uint32_t>* out,
                      bool* found) const
{
    const GgufValue* v = find(key, found);
    if (!v) return {};
    if (v->count < 1 || v->count > max_count || v->type == GgufType::boolean)
        return wrong_type(*v,
                          ("an integer or 1 to " + std::to_string(max_count) + " of them").c_str());
    out->resize(v->count);
    for (uint64_t i = 0; i < v->count; i++) KS_TRY(u32_at(*v, i, &(*out)[i]));
    return {};
}

Status Gguf::get_f64s(std::string_view key, uint64_t max_count, std::vector<double>* out,
                      bool* found) const
{
    const GgufValue* v = find(key, found);
    if (!v) return {};
    if (v->count < 1 || v->count > max_count ||
        (v->element != GgufType::f32 && v->element != GgufType::f64))
        return wrong_type(
            *v, max_count == 1
                    ? "f32 or f64"
                    : ("f32 or f64 or 1 to " + std::to_string(max_count) + " of them").c_str());
    out->resize(v->count);
    for (uint64_t i = 0; i < v->count; i++) {
        float single;
        if (v->element == GgufType::f64) memcpy(&(*out)[i], v->data + 8 * i, 8);
        if (v->element == GgufType::f32) memcpy(&single, v->data + 4 * i, 4), (*out)[i] = single;
    }
    return {};
}

Status Gguf::get_f64(std::string_view key, double* out, bool* found) const
{
    const GgufValue* v = find(key, found);
    if (!v) return {};
    if (v->type == GgufType::array) return wrong_type(*v, "f32 or f64");
    std::vector<double> value;
    KS_TRY(get_f64s(key, 1, &value));
    *out = value[0];
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
    if (v->data[0] > 1)
        return fail(Code::invalid, "%s is %u, a bool of 0 or 1 was expected",
                    location_of(*v).c_str(), v->data[0]);
    *out = v->data[0] != 0;
    return {};
}

// *out is null if the key is missing.
Status Gguf::get_array(std::string_view key, GgufType element, const GgufValue** out) const
{
    *out = find(key);
    if (!*out || ((*out)->type == GgufType::array && (*out)->element == element)) return {};
    return wrong_type(**out, (std::string("an array of ") + gguf_type_info(element).name).c_str());
}

// Leaves *out empty if the key is missing.
Status Gguf::get_ids(std::string_view key, IdTable* out) const
{
    const GgufValue* v = find(key);
    if (!v) return {};
    if (v->type != GgufType::array || (v->element != GgufType::i32 && v->element != GgufType::u32))
        return wrong_type(*v, "an array of i32");
    *out = {v->data, v->count};
    return {};
}

Result<VocabSource> Gguf::vocab() const
{
    VocabSource vocab;
    const GgufValue *tokens, *scores, *types, *merges;
    KS_TRY(get_string("general.name", &vocab.name));
    KS_TRY(get_string("tokenizer.ggml.model", &vocab.model));
    KS_TRY(get_string("tokenizer.ggml.pre", &vocab.pre));
    KS_TRY(get_string("tokenizer.chat_template", &vocab.chat_template));
    KS_TRY(get_array("tokenizer.ggml.tokens", GgufType::string, &tokens));
    KS_TRY(get_array("tokenizer.ggml.scores", GgufType::f32, &scores));
    KS_TRY(get_array("tokenizer.ggml.token_type", GgufType::i32, &types));
    KS_TRY(get_array("tokenizer.ggml.merges", GgufType::string, &merges));
    const char* missing = !tokens ? "tokens" : vocab.model.empty() ? "model" : nullptr;
    if (missing)
        return fail(Code::invalid, "%s has no tokenizer.ggml.%s, so text cannot become tokens",
                    label().c_str(), missing);
    vocab.tokens = {tokens->data, tokens->count, tokens->bytes};
    if (merges) vocab.merges = {merges->data, merges->count, merges->bytes};
    if (scores) vocab.scores = scores->data, vocab.n_scores = scores->count;
    if (types) vocab.types = types->data, vocab.n_types = types->count;

    KS_TRY(get_ids("tokenizer.ggml.eos_token_ids", &vocab.more_eos));
    KS_TRY(get_ids("tokenizer.ggml.suppress_tokens", &vocab.suppress));

    // Negative and too large ids pass here. The tokenizer knows the number of tokens and checks
    // them.
    const std::pair<const char*, int64_t*> ids[] = {
        {"bos", &vocab.bos}, {"eos", &vocab.eos},         {"eot", &vocab.eot},
        {"eom", &vocab.eom}, {"unknown", &vocab.unknown}, {"padding", &vocab.padding}};
    for (auto [name, out] : ids) {
        const GgufValue* v = find("tokenizer.ggml." + std::string(name) + "_token_id");
        if (v &&
            (v->type == GgufType::array || v->type == GgufType::boolean || !integer_at(*v, 0, out)))
            return wrong_type(*v, "an integer");
    }
    const std::pair<const char*, int*> flags[] = {{"bos_token", &vocab.add_bos},
                                                  {"eos_token", &vocab.add_eos},
                                                  {"space_prefix", &vocab.add_space_prefix}};
    for (auto [name, out] : flags) {
        bool value = false, found = false;
        KS_TRY(get_bool("tokenizer.ggml.add_" + std::string(name), &value, &found));
        if (found) *out = value;
    }
    return vocab;
}

} // namespace ks
