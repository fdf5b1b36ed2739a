// Reads GGUF headers: one checked pass over the header, then the position of every tensor in the
// data.
#include "runtime/model/gguf.h"

#include <algorithm>
#include <cinttypes>
#include <numeric>

namespace ks
{

// Limits far above any real model. They bound the cost of a hostile file, even of a huge sparse
// one.
constexpr uint64_t kMaxHeaderBytes = 256u << 20;
constexpr uint64_t kMaxStringBytes = 16u << 20;
constexpr uint64_t kMaxKeys = 1u << 16;
constexpr uint64_t kMaxTensors = 1u << 18;
constexpr uint64_t kMinKeyBytes = 8 + 4 + 1;            // empty key, type, one byte
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8; // empty name, one dimension, type, offset
constexpr uint64_t kMaxTailBytes = 4096;                // a file may be padded to a page

static std::string file_label(const std::string& path)
{
    return printable(path.substr(path.find_last_of('/') + 1), 80);
}

// "model.gguf: key 'general.name' at offset 312"; without the name if name.data() is null.
static std::string place(const std::string& file, const char* kind, std::string_view name,
                         uint64_t offset)
{
    std::string quoted = name.data() ? " '" + printable(name) + "'" : "";
    return file + ": " + kind + quoted + " at offset " + std::to_string(offset);
}

// Reads the header of one file.
class HeaderReader
{
public:
    explicit HeaderReader(const MappedFile& file)
        : m_file(file), m_end(std::min(file.size(), kMaxHeaderBytes))
    {
    }
    Status read(uint32_t* version, std::vector<GgufValue>* values,
                std::vector<GgufTensor>* tensors);
    Status place_tensors(uint64_t alignment, std::vector<GgufTensor>* tensors);

private:
    Status check_q2_0(const GgufTensor& t, uint64_t room, uint64_t alignment) const;
    std::string here() const { return place(file_label(m_file.path()), m_kind, m_name, m_offset); }
    [[gnu::format(printf, 2, 3)]] Status bad(const char* format, ...) const;
    uint64_t left() const { return m_end - m_at; }
    Status claims(uint64_t n, const char* what) const;
    template <class T>
    Status take(T* out, const char* what);
    Status take_string(std::string_view* out);
    Status read_start(uint32_t* version);
    Status read_count(const char* what, uint64_t min_bytes, uint64_t most, uint64_t* out);
    Status read_value(GgufValue* v);
    Status read_tensor(GgufTensor* t);

    const MappedFile& m_file;
    uint64_t m_end;
    uint64_t m_at = 0;
    // The item that is being read, for error messages.
    const char* m_kind = "header";
    std::string_view m_name;
    uint64_t m_offset = 0;
};

Status HeaderReader::bad(const char* format, ...) const
{
    char what[300];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return fail(Code::invalid, "%s %s", here().c_str(), what);
}

Status HeaderReader::claims(uint64_t n, const char* what) const
{
    const char* of = m_end < m_file.size() ? " of the 256 MiB that a header may have" : "";
    return bad("claims %" PRIu64 " %s, %" PRIu64 " bytes are left%s", n, what, left(), of);
}

template <class T>
Status HeaderReader::take(T* out, const char* what)
{
    if (left() < sizeof(T))
        return bad("is cut off: %s takes %zu bytes, %" PRIu64 " are left", what, sizeof(T), left());
    memcpy(out, m_file.data() + m_at, sizeof(T));
    m_at += sizeof(T);
    return {};
}

Status HeaderReader::take_string(std::string_view* out)
{
    uint64_t length = 0;
    KS_TRY(take(&length, "a length"));
    if (length > left()) return claims(length, "bytes");
    if (length > kMaxStringBytes)
        return bad("has a string of %" PRIu64 " bytes, at most %" PRIu64 " are read", length,
                   kMaxStringBytes);
    *out = {reinterpret_cast<const char*>(m_file.data() + m_at), length};
    m_at += length;
    return {};
}

Status HeaderReader::read_start(uint32_t* version)
{
    char magic[4];
    KS_TRY(take(&magic, "the magic"));
    if (memcmp(magic, "GGUF", 4) != 0)
        return bad("begins with '%s', 'GGUF' was expected", printable({magic, 4}).c_str());
    KS_TRY(take(version, "the version"));
    if (*version != 0 && (*version & 0xffff) == 0)
        return fail(Code::unsupported, "%s is big-endian, only little-endian files are read",
                    here().c_str());
    if (*version != 2 && *version != 3)
        return fail(Code::unsupported, "%s has GGUF version %u, 2 or 3 was expected",
                    here().c_str(), *version);
    return {};
}

Status HeaderReader::read_count(const char* what, uint64_t min_bytes, uint64_t most, uint64_t* out)
{
    m_offset = m_at;
    KS_TRY(take(out, "a count"));
    if (*out > left() / min_bytes) return claims(*out, what);
    if (*out > most)
        return bad("claims %" PRIu64 " %s, at most %" PRIu64 " are read", *out, what, most);
    return {};
}

Status HeaderReader::read_value(GgufValue* v)
{
    m_name = {};
    m_offset = v->offset = m_at;
    KS_TRY(take_string(&v->key));
    m_name = v->key;
    v->count = 1;
    KS_TRY(take(&v->type, "the type"));
    v->element = v->type;
    if (v->type == GgufType::array) {
        KS_TRY(take(&v->element, "the element type"));
        KS_TRY(take(&v->count, "the element count"));
        if (v->element == GgufType::array)
            return fail(Code::unsupported, "%s is an array of arrays, which no model needs",
                        here().c_str());
    }
    if (v->element >= GgufType::count)
        return bad("has type %u, 0 to 12 was expected", uint32_t(v->element));
    if (v->count > left() / gguf_type_info(v->element).bytes)
        return claims(v->count, v->type == GgufType::array ? "elements" : "value");
    v->data = m_file.data() + m_at;
    std::string_view text;
    if (v->type == GgufType::string) {
        KS_TRY(take_string(&text));
        v->data += 8;
        v->bytes = text.size();
    } else if (v->element == GgufType::string) {
        for (uint64_t i = 0; i < v->count; i++) KS_TRY(take_string(&text));
        v->bytes = uint64_t(m_file.data() + m_at - v->data);
    } else {
        v->bytes = v->count * gguf_type_info(v->element).bytes;
        m_at += v->bytes;
    }
    return {};
}

Status HeaderReader::read_tensor(GgufTensor* t)
{
    m_name = {};
    m_offset = t->info_offset = m_at;
    KS_TRY(take_string(&t->name));
    m_name = t->name;
    KS_TRY(take(&t->n_dims, "the number of dimensions"));
    if (t->n_dims < 1 || t->n_dims > 4)
        return bad("has %u dimensions, 1 to 4 was expected", t->n_dims);
    for (uint32_t i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i < t->n_dims) KS_TRY(take(&t->dims[i], "a dimension"));
    }
    KS_TRY(take(&t->ggml_type, "the type"));
    KS_TRY(take(&t->offset, "the data's offset"));
    t->known = format_from_ggml(t->ggml_type, &t->format);
    const GgmlType* type = find_ggml_type(t->ggml_type);
    if (!type)
        return fail(Code::unsupported, "%s has type %u, which this build does not know",
                    here().c_str(), t->ggml_type);
    if (t->dims[0] % type->block != 0)
        return bad("has rows of %" PRIu64 " values, %s needs a multiple of %u", t->dims[0],
                   type->name, type->block);
    bool overflow =
        __builtin_mul_overflow(t->dims[0] / type->block, uint64_t(type->block_bytes), &t->bytes);
    for (int i = 1; i < 4; i++) overflow |= __builtin_mul_overflow(t->bytes, t->dims[i], &t->bytes);
    if (!overflow && t->bytes != 0) return {};
    return bad("has %s values, which is %s", t->shape().c_str(),
               overflow ? "more than 64 bits count" : "none");
}

// Refuses Q2_0 blocks of 128 values with 34 bytes, which forks of llama.cpp write under the same
// type. Their tensors fill the bytes up to the next one, `room`, exactly.
Status HeaderReader::check_q2_0(const GgufTensor& t, uint64_t room, uint64_t alignment) const
{
    const uint64_t bytes = t.bytes / 36 * 34; // of two blocks of 64 values, of one of 128
    if (t.ggml_type != format_q2_0::ggml_type || t.bytes % 36 != 0 || room >= t.bytes ||
        room < bytes || room - bytes >= alignment)
        return {};
    return fail(Code::unsupported,
                "%s has Q2_0 in blocks of 128 values, blocks of 64 were expected", here().c_str());
}

// Converts data offsets to file offsets. Checks that tensors are in bounds, aligned and disjoint,
// and that no data is left over.
Status HeaderReader::place_tensors(uint64_t alignment, std::vector<GgufTensor>* tensors)
{
    uint64_t begin = (m_at + alignment - 1) / alignment * alignment, end = m_at;
    std::vector<GgufTensor*> order;
    for (GgufTensor& t : *tensors) order.push_back(&t);
    std::sort(order.begin(), order.end(),
              [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
    for (size_t i = 0; i < order.size(); i++) {
        GgufTensor* t = order[i];
        uint64_t relative = t->offset, previous_end = end;
        m_name = t->name;
        m_offset = t->info_offset;
        const uint64_t next = i + 1 < order.size() ? order[i + 1]->offset : m_file.size() - begin;
        KS_TRY(check_q2_0(*t, next - relative, alignment));
        if (relative % alignment != 0)
            return bad("has data at %" PRIu64 ", a multiple of %" PRIu64 " was expected", relative,
                       alignment);
        bool overflow = __builtin_add_overflow(relative, begin, &t->offset) ||
                        __builtin_add_overflow(t->offset, t->bytes, &end);
        if (overflow || end > m_file.size()) {
            return bad("claims %" PRIu64 " bytes at %" PRIu64 " + %" PRIu64
                       ", but the file ends at %" PRIu64,
                       t->bytes, begin, relative, m_file.size());
        }
        if (t->offset < previous_end)
            return bad("has data at %" PRIu64 ", where another tensor's ends at %" PRIu64,
                       t->offset, previous_end);
    }
    if (m_file.size() < end + std::max(alignment, kMaxTailBytes)) return {};
    return fail(Code::invalid,
                "%s: the last %" PRIu64 " bytes, from offset %" PRIu64
                " on, belong to none of the %zu tensors",
                file_label(m_file.path()).c_str(), m_file.size() - end, end, order.size());
}

Status HeaderReader::read(uint32_t* version, std::vector<GgufValue>* values,
                          std::vector<GgufTensor>* tensors)
{
    uint64_t n_tensors = 0, n_values = 0;
    KS_TRY(read_start(version));
    KS_TRY(read_count("tensors", kMinTensorBytes, kMaxTensors, &n_tensors));
    KS_TRY(read_count("keys", kMinKeyBytes, kMaxKeys, &n_values));
    m_kind = "key";
    for (uint64_t i = 0; i < n_values; i++) {
        values->push_back({});
        KS_TRY(read_value(&values->back()));
    }
    m_kind = "tensor";
    for (uint64_t i = 0; i < n_tensors; i++) {
        tensors->push_back({});
        KS_TRY(read_tensor(&tensors->back()));
    }
    return {};
}

// Indices of the items sorted by name. Names must be unique.
template <class T>
static Status sort_by_name(const Gguf& gguf, const std::vector<T>& items, std::string_view T::*name,
                           std::vector<uint32_t>* order)
{
    order->resize(items.size());
    std::iota(order->begin(), order->end(), 0);
    std::sort(order->begin(), order->end(),
              [&](uint32_t a, uint32_t b) { return items[a].*name < items[b].*name; });
    auto same = [&](uint32_t a, uint32_t b) { return items[a].*name == items[b].*name; };
    auto twice = std::adjacent_find(order->begin(), order->end(), same);
    if (twice == order->end()) return {};
    return fail(Code::invalid, "%s is there twice",
                gguf.location_of(items[std::max(twice[0], twice[1])]).c_str());
}

Result<Gguf> Gguf::open_one(MappedFile file)
{
    Gguf gguf;
    gguf.m_files.push_back(std::move(file));
    HeaderReader reader(gguf.m_files[0]);
    KS_TRY(reader.read(&gguf.m_version, &gguf.m_values, &gguf.m_tensors));
    KS_TRY(sort_by_name(gguf, gguf.m_values, &GgufValue::key, &gguf.m_value_order));
    uint32_t alignment = 32;
    KS_TRY(gguf.get_u32("general.alignment", &alignment));
    if (alignment < 8 || alignment > 65536 || (alignment & (alignment - 1)) != 0)
        return fail(Code::invalid,
                    "%s: general.alignment is %u, a power of two from 8 to 65536 was expected",
                    gguf.label().c_str(), alignment);
    KS_TRY(reader.place_tensors(alignment, &gguf.m_tensors));
    return gguf;
}

Result<Gguf> Gguf::open(const std::string& path)
{
    Result<MappedFile> file = MappedFile::open(path);
    if (!file.ok()) return file.status();
    Result<Gguf> opened = open_one(std::move(file.value()));
    if (!opened.ok()) return opened;
    Gguf& gguf = opened.value();
    uint32_t n_parts = 1;
    KS_TRY(gguf.get_u32("split.count", &n_parts));
    if (n_parts > 1) KS_TRY(gguf.open_parts(n_parts));
    KS_TRY(sort_by_name(gguf, gguf.m_tensors, &GgufTensor::name, &gguf.m_tensor_order));
    return opened;
}

static std::string part_suffix(uint32_t part, uint32_t n_parts)
{
    char text[40];
    snprintf(text, sizeof text, "-%05llu-of-%05u.gguf", part + 1ull, n_parts);
    return text;
}

Status Gguf::open_parts(uint32_t n_parts)
{
    uint32_t no = 0, count = 0, n_tensors = 0;
    bool counted = false;
    KS_TRY(get_u32("split.no", &no));
    KS_TRY(get_u32("split.tensors.count", &n_tensors, &counted));
    std::string suffix = part_suffix(no, n_parts),
                stem = path().substr(0, path().size() - std::min(path().size(), suffix.size()));
    std::string begins = label() + " is part " + std::to_string(no + 1ull) + " of " +
                         std::to_string(n_parts) + " of a model";
    if (path() != stem + suffix)
        return fail(Code::invalid, "%s, a name ending in %s was expected", begins.c_str(),
                    suffix.c_str());
    if (no != 0)
        return fail(Code::invalid, "%s, open %s instead", begins.c_str(),
                    file_label(stem + part_suffix(0, n_parts)).c_str());
    for (uint32_t i = 1; i < n_parts; i++) {
        std::string part_path = stem + part_suffix(i, n_parts);
        Result<MappedFile> file = MappedFile::open(part_path);
        if (!file.ok())
            return fail(file.status().code(), "%s, but %s cannot be opened", begins.c_str(),
                        file_label(part_path).c_str());
        Result<Gguf> opened = open_one(std::move(file.value()));
        if (!opened.ok()) return opened.status();
        Gguf& part = opened.value();
        KS_TRY(part.get_u32("split.no", &no));
        KS_TRY(part.get_u32("split.count", &count));
        if (no != i || count != n_parts)
            return fail(Code::invalid, "%s has split.no %u of %u, %u of %u was expected",
                        part.label().c_str(), no, count, i, n_parts);
        for (GgufTensor& t : part.m_tensors) t.file = i;
        m_tensors.insert(m_tensors.end(), part.m_tensors.begin(), part.m_tensors.end());
        m_files.push_back(std::move(part.m_files[0]));
    }
    if (!counted || n_tensors == m_tensors.size()) return {};
    return fail(Code::invalid, "%s, but there are %zu tensors, split.tensors.count is %u",
                begins.c_str(), m_tensors.size(), n_tensors);
}

std::string GgufTensor::shape() const
{
    std::string text = std::to_string(dims[0]);
    for (uint32_t i = 1; i < n_dims; i++) text += " x " + std::to_string(dims[i]);
    return text;
}

std::string Gguf::label(uint32_t file) const
{
    return file_label(m_files[file].path());
}

std::string Gguf::location_of(const GgufValue& v) const
{
    return place(label(), "key", v.key, v.offset);
}

std::string Gguf::location_of(const GgufTensor& t) const
{
    return place(label(t.file), "tensor", t.name, t.info_offset);
}

Status Gguf::read(const GgufTensor& tensor, uint64_t offset, void* out, uint64_t bytes) const
{
    KS_CHECK(offset <= tensor.bytes && bytes <= tensor.bytes - offset,
             "%" PRIu64 " + %" PRIu64 " of %" PRIu64, offset, bytes, tensor.bytes);
    return m_files[tensor.file].read(tensor.offset + offset, out, bytes);
}

void Gguf::prefetch(const GgufTensor& tensor, uint64_t offset, uint64_t bytes) const
{
    m_files[tensor.file].prefetch(tensor.offset + offset, bytes);
}

void Gguf::uncache_before(const GgufTensor& tensor, uint64_t offset, uint64_t distance) const
{
    const uint64_t at = tensor.offset + offset;
    m_files[tensor.file].uncache(at - std::min(at, distance));
}

void Gguf::uncache() const
{
    for (const MappedFile& file : m_files) file.uncache(file.size());
}

uint64_t Gguf::file_bytes() const
{
    uint64_t bytes = 0;
    for (const MappedFile& file : m_files) bytes += file.size();
    return bytes;
}

void Gguf::unmap()
{
    m_values.clear();
    m_value_order.clear();
    m_tensor_order.clear();
    for (GgufTensor& t : m_tensors) t.name = {};
    for (MappedFile& file : m_files) file.unmap();
}

} // namespace ks
