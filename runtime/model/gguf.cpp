// Reading a GGUF header: one checked walk from its first byte to its last, then the tensors' places in the data.
#include "runtime/model/gguf.h"

#include <algorithm>
#include <cinttypes>

namespace ks
{

// Far above any model, so that what a hostile file costs is bounded even where it is sparse and huge.
constexpr uint64_t kMaxHeaderBytes = 256u << 20;
constexpr uint64_t kMaxStringBytes = 16u << 20;
constexpr uint64_t kMaxKeys = 1u << 16;
constexpr uint64_t kMaxTensors = 1u << 18;
constexpr uint64_t kMinKeyBytes = 8 + 4 + 1;            // empty key, type, one byte
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8; // empty name, count of one, dimension, type, offset
constexpr uint64_t kMaxTailBytes = 4096;                // an end padded to a page is no sign of a lost tensor

static std::string file_label(const std::string& path)
{
    return printable(path.substr(path.find_last_of('/') + 1), 80);
}

// Header of one file. An entry is the key or tensor that is being read; messages name it.
class HeaderReader
{
public:
    explicit HeaderReader(const MappedFile& file) : m_file(file), m_end(std::min(file.size(), kMaxHeaderBytes)) {}
    Status read(uint32_t* version, std::vector<GgufValue>* values, std::vector<GgufTensor>* tensors);

private:
    uint64_t left() const { return m_end - m_at; }
    std::string label() const { return file_label(m_file.path()); }
    std::string entry() const;
    const char* limit() const { return m_end < m_file.size() ? " of the 256 MiB that a header may have" : ""; }
    Status claims(uint64_t n, const char* what) const;
    template <class T> Status take(T* out, const char* what);
    Status take_string(std::string_view* out);
    Status read_magic(uint32_t* version);
    Status read_count(const char* what, uint64_t min_bytes, uint64_t most, uint64_t* out);
    Status read_value(GgufValue* v);
    Status read_elements(GgufValue* v);
    Status read_alignment(const GgufValue& v);
    Status read_tensor(GgufTensor* t);
    Status size_tensor(GgufTensor* t) const;
    Status place_tensors(std::vector<GgufTensor>* tensors) const;

    const MappedFile& m_file;
    uint64_t m_end;
    uint64_t m_at = 0;
    uint64_t m_alignment = 32;
    const char* m_kind = "the header";
    uint64_t m_entry_offset = 0;
    std::string_view m_name; // of the entry, once it is known
};

std::string HeaderReader::entry() const
{
    std::string text = m_kind;
    if (m_name.data()) text += " '" + printable(m_name) + "'";
    return text + " at offset " + std::to_string(m_entry_offset);
}

Status HeaderReader::claims(uint64_t n, const char* what) const
{
    return fail(Code::invalid, "%s: %s claims %" PRIu64 " %s, %" PRIu64 " bytes are left%s", label().c_str(), entry().c_str(), n, what,
                left(), limit());
}

template <class T> Status HeaderReader::take(T* out, const char* what)
{
    if (left() < sizeof(T)) {
        return fail(Code::invalid, "%s: %s is cut off: its %s takes %zu bytes, %" PRIu64 " are left%s", label().c_str(), entry().c_str(),
                    what, sizeof(T), left(), limit());
    }
    memcpy(out, m_file.data() + m_at, sizeof(T));
    m_at += sizeof(T);
    return {};
}

Status HeaderReader::take_string(std::string_view* out)
{
    uint64_t length;
    KS_TRY(take(&length, "length"));
    if (length > left()) return claims(length, "bytes");
    if (length > kMaxStringBytes) {
        return fail(Code::invalid, "%s: %s claims %" PRIu64 " bytes, at most %" PRIu64 " are read", label().c_str(), entry().c_str(),
                    length, kMaxStringBytes);
    }
    *out = {reinterpret_cast<const char*>(m_file.data() + m_at), length};
    m_at += length;
    return {};
}

Status HeaderReader::read_magic(uint32_t* version)
{
    char magic[4];
    KS_TRY(take(&magic, "magic"));
    if (memcmp(magic, "GGUF", 4) != 0) {
        return fail(Code::invalid, "%s is not a GGUF file: it begins with '%s', 'GGUF' was expected", label().c_str(),
                    printable({magic, 4}).c_str());
    }
    KS_TRY(take(version, "version"));
    if ((*version & 0xffff) == 0 && *version != 0) {
        return fail(Code::unsupported, "%s is a big-endian GGUF file (version bytes at offset 4), only little-endian ones are read",
                    label().c_str());
    }
    if (*version != 2 && *version != 3)
        return fail(Code::unsupported, "%s: GGUF version %u at offset 4, version 2 or 3 was expected", label().c_str(), *version);
    return {};
}

Status HeaderReader::read_count(const char* what, uint64_t min_bytes, uint64_t most, uint64_t* out)
{
    m_entry_offset = m_at;
    KS_TRY(take(out, what));
    if (*out > left() / min_bytes) return claims(*out, what);
    if (*out > most)
        return fail(Code::invalid, "%s claims %" PRIu64 " %s at offset %" PRIu64 ", at most %" PRIu64 " are read", label().c_str(), *out,
                    what, m_entry_offset, most);
    return {};
}

Status HeaderReader::read_value(GgufValue* v)
{
    v->offset = m_at;
    KS_TRY(take_string(&v->key));
    m_name = v->key;
    KS_TRY(take(&v->type, "type"));
    if (v->type >= GgufType::count) {
        return fail(Code::invalid, "%s: %s has type %u, 0 to 12 was expected", label().c_str(), entry().c_str(), uint32_t(v->type));
    }
    v->element = v->type;
    v->count = 1;
    if (v->type == GgufType::string) {
        std::string_view text;
        KS_TRY(take_string(&text));
        v->data = reinterpret_cast<const uint8_t*>(text.data());
        v->bytes = text.size();
        return {};
    }
    if (v->type == GgufType::array) {
        KS_TRY(take(&v->element, "element type"));
        KS_TRY(take(&v->count, "element count"));
        if (v->element >= GgufType::count) {
            return fail(Code::invalid, "%s: %s has elements of type %u, 0 to 12 was expected", label().c_str(), entry().c_str(),
                        uint32_t(v->element));
        }
        if (v->element == GgufType::array)
            return fail(Code::unsupported, "%s: %s is an array of arrays, which no model needs", label().c_str(), entry().c_str());
    }
    return read_elements(v);
}

Status HeaderReader::read_elements(GgufValue* v)
{
    v->data = m_file.data() + m_at;
    if (v->count > left() / gguf_type_bytes(v->element)) return claims(v->count, v->type == GgufType::array ? "elements" : "value");
    if (v->element == GgufType::string) {
        uint64_t begin = m_at;
        std::string_view text;
        for (uint64_t i = 0; i < v->count; i++) KS_TRY(take_string(&text));
        v->bytes = m_at - begin;
    } else {
        v->bytes = v->count * gguf_type_bytes(v->element);
        m_at += v->bytes;
    }
    return {};
}

Status HeaderReader::read_alignment(const GgufValue& v)
{
    uint32_t alignment = 0;
    if (v.type == GgufType::u32) memcpy(&alignment, v.data, 4);
    if (alignment < 8 || alignment > 65536 || (alignment & (alignment - 1)) != 0) {
        return fail(Code::invalid, "%s: %s is %s %u, a u32 power of two from 8 to 65536 was expected", label().c_str(), entry().c_str(),
                    gguf_type_name(v.type), alignment);
    }
    m_alignment = alignment;
    return {};
}

Status HeaderReader::read_tensor(GgufTensor* t)
{
    t->info_offset = m_at;
    KS_TRY(take_string(&t->name));
    m_name = t->name;
    KS_TRY(take(&t->n_dims, "number of dimensions"));
    if (t->n_dims < 1 || t->n_dims > 4)
        return fail(Code::invalid, "%s: %s has %u dimensions, 1 to 4 was expected", label().c_str(), entry().c_str(), t->n_dims);
    for (uint32_t i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i < t->n_dims) KS_TRY(take(&t->dims[i], "dimension"));
    }
    KS_TRY(take(&t->ggml_type, "type"));
    KS_TRY(take(&t->offset, "data offset"));
    t->known = format_from_ggml(t->ggml_type, &t->format);
    return size_tensor(t);
}

Status HeaderReader::size_tensor(GgufTensor* t) const
{
    const GgmlType* type = find_ggml_type(t->ggml_type);
    if (!type) {
        return fail(Code::unsupported, "%s: %s has type %u, which is no tensor type that this build knows", label().c_str(),
                    entry().c_str(), t->ggml_type);
    }
    if (t->dims[0] % type->block != 0) {
        return fail(Code::invalid, "%s: %s has rows of %" PRIu64 " values, %s needs a multiple of %u", label().c_str(), entry().c_str(),
                    t->dims[0], type->name, type->block);
    }
    t->bytes = t->dims[0] / type->block;
    bool overflow = __builtin_mul_overflow(t->bytes, uint64_t(type->block_bytes), &t->bytes);
    for (int i = 1; i < 4; i++) overflow |= __builtin_mul_overflow(t->bytes, t->dims[i], &t->bytes);
    if (overflow || t->bytes == 0) {
        return fail(Code::invalid, "%s: %s claims %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64 " values, which is %s",
                    label().c_str(), entry().c_str(), t->dims[0], t->dims[1], t->dims[2], t->dims[3],
                    overflow ? "more than 64 bits can count" : "none");
    }
    return {};
}

// Turns offsets into the data into offsets into the file: in bounds, aligned, none over another, no data left over.
Status HeaderReader::place_tensors(std::vector<GgufTensor>* tensors) const
{
    const std::string file = label();
    uint64_t begin = (m_at + m_alignment - 1) / m_alignment * m_alignment;
    std::vector<uint32_t> order(tensors->size());
    for (uint32_t i = 0; i < order.size(); i++) {
        GgufTensor& t = (*tensors)[i];
        uint64_t relative = t.offset, end;
        order[i] = i;
        if (relative % m_alignment != 0) {
            return fail(Code::invalid,
                        "%s: tensor '%s' at offset %" PRIu64 " has its data at %" PRIu64 ", a multiple of %" PRIu64 " was expected",
                        file.c_str(), printable(t.name).c_str(), t.info_offset, relative, m_alignment);
        }
        if (__builtin_add_overflow(relative, begin, &t.offset) || __builtin_add_overflow(t.offset, t.bytes, &end) || end > m_file.size()) {
            return fail(Code::invalid,
                        "%s: tensor '%s' at offset %" PRIu64 " claims %" PRIu64 " bytes of data at %" PRIu64 " + %" PRIu64
                        ", the file has %" PRIu64 " bytes",
                        file.c_str(), printable(t.name).c_str(), t.info_offset, t.bytes, begin, relative, m_file.size());
        }
    }
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return (*tensors)[a].offset < (*tensors)[b].offset; });
    uint64_t end = m_at;
    for (size_t i = 0; i < order.size(); i++) {
        const GgufTensor& t = (*tensors)[order[i]];
        if (t.offset < end) {
            const GgufTensor& previous = (*tensors)[order[i - 1]];
            return fail(Code::invalid, "%s: tensor '%s' has its data at offset %" PRIu64 ", within that of '%s', which ends at %" PRIu64,
                        file.c_str(), printable(t.name).c_str(), t.offset, printable(previous.name).c_str(), end);
        }
        end = t.offset + t.bytes;
    }
    if (m_file.size() - end >= std::max(m_alignment, kMaxTailBytes)) {
        return fail(Code::invalid, "%s: the last %" PRIu64 " bytes, from offset %" PRIu64 " on, belong to none of its %zu tensors",
                    file.c_str(), m_file.size() - end, end, order.size());
    }
    return {};
}

Status HeaderReader::read(uint32_t* version, std::vector<GgufValue>* values, std::vector<GgufTensor>* tensors)
{
    uint64_t n_tensors, n_values;
    KS_TRY(read_magic(version));
    KS_TRY(read_count("tensors", kMinTensorBytes, kMaxTensors, &n_tensors));
    KS_TRY(read_count("keys", kMinKeyBytes, kMaxKeys, &n_values));
    m_kind = "key";
    for (uint64_t i = 0; i < n_values; i++) {
        m_name = {};
        m_entry_offset = m_at;
        GgufValue v{};
        KS_TRY(read_value(&v));
        if (v.key == "general.alignment") KS_TRY(read_alignment(v));
        values->push_back(v);
    }
    m_kind = "tensor";
    for (uint64_t i = 0; i < n_tensors; i++) {
        m_name = {};
        m_entry_offset = m_at;
        GgufTensor t{};
        KS_TRY(read_tensor(&t));
        tensors->push_back(t);
    }
    return place_tensors(tensors);
}

// Indices of items in the order of their names; the first pair of equal names, if there is one.
template <class T, class Name> static std::vector<uint32_t> sorted(const std::vector<T>& items, Name name, const T** twice)
{
    std::vector<uint32_t> order(items.size());
    for (uint32_t i = 0; i < order.size(); i++) order[i] = i;
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        int c = (items[a].*name).compare(items[b].*name);
        return c != 0 ? c < 0 : a < b;
    });
    for (size_t i = 1; i < order.size(); i++) {
        if (items[order[i - 1]].*name != items[order[i]].*name) continue;
        twice[0] = &items[order[i - 1]];
        twice[1] = &items[order[i]];
        break;
    }
    return order;
}

Status Gguf::sort_values()
{
    const GgufValue* twice[2] = {};
    m_value_order = sorted(m_values, &GgufValue::key, twice);
    if (!twice[0]) return {};
    return fail(Code::invalid, "%s: key '%s' is there twice, at offsets %" PRIu64 " and %" PRIu64, label().c_str(),
                printable(twice[0]->key).c_str(), twice[0]->offset, twice[1]->offset);
}

Status Gguf::sort_tensors()
{
    const GgufTensor* twice[2] = {};
    m_tensor_order = sorted(m_tensors, &GgufTensor::name, twice);
    if (!twice[0]) return {};
    return fail(Code::invalid, "%s: tensor '%s' is there twice, at offset %" PRIu64 " and at offset %" PRIu64 " of %s",
                label(twice[0]->file).c_str(), printable(twice[0]->name).c_str(), twice[0]->info_offset, twice[1]->info_offset,
                label(twice[1]->file).c_str());
}

Result<Gguf> Gguf::open_one(MappedFile file)
{
    Gguf gguf;
    gguf.m_files.push_back(std::move(file));
    HeaderReader reader(gguf.m_files[0]);
    KS_TRY(reader.read(&gguf.m_version, &gguf.m_values, &gguf.m_tensors));
    KS_TRY(gguf.sort_values());
    return gguf;
}

Result<Gguf> Gguf::open(const std::string& path)
{
    Result<MappedFile> file = MappedFile::open(path);
    if (!file.ok()) return file.status();
    Result<Gguf> first = open_one(std::move(file.value()));
    if (!first.ok()) return first;
    Gguf& gguf = first.value();
    uint32_t n_parts = 1;
    KS_TRY(gguf.get_u32("split.count", &n_parts));
    if (n_parts > 1) KS_TRY(gguf.open_parts(n_parts));
    KS_TRY(gguf.sort_tensors());
    return first;
}

static std::string part_suffix(uint32_t part, uint32_t n_parts)
{
    char text[40];
    snprintf(text, sizeof text, "-%05u-of-%05u.gguf", part + 1, n_parts);
    return text;
}

Status Gguf::open_parts(uint32_t n_parts)
{
    uint32_t part = 0, n_tensors = 0;
    bool counted = false;
    KS_TRY(get_u32("split.no", &part));
    KS_TRY(get_u32("split.tensors.count", &n_tensors, &counted));
    if (part >= n_parts)
        return fail(Code::invalid, "%s: split.no is %u, less than split.count %u was expected", label().c_str(), part, n_parts);
    std::string suffix = part_suffix(part, n_parts), stem = path();
    if (stem.size() < suffix.size() || stem.compare(stem.size() - suffix.size(), suffix.size(), suffix) != 0) {
        return fail(Code::invalid, "%s is part %u of %u of a split model, a name that ends in %s was expected", label().c_str(), part + 1,
                    n_parts, suffix.c_str());
    }
    stem.resize(stem.size() - suffix.size());
    if (part != 0) {
        return fail(Code::invalid, "%s is part %u of %u of a split model, open %s instead", label().c_str(), part + 1, n_parts,
                    file_label(stem + part_suffix(0, n_parts)).c_str());
    }
    for (uint32_t i = 1; i < n_parts; i++) {
        Result<MappedFile> file = MappedFile::open(stem + part_suffix(i, n_parts));
        if (!file.ok()) {
            return fail(file.status().code(), "%s is the first of %u parts, but part %u cannot be opened: %s was expected beside it",
                        label().c_str(), n_parts, i + 1, file_label(stem + part_suffix(i, n_parts)).c_str());
        }
        Result<Gguf> opened = open_one(std::move(file.value()));
        if (!opened.ok()) return opened.status();
        uint32_t no = 0, count = 0;
        KS_TRY(opened.value().get_u32("split.no", &no));
        KS_TRY(opened.value().get_u32("split.count", &count));
        if (no != i || count != n_parts) {
            return fail(Code::invalid, "%s says that it is part %u of %u, part %u of %u was expected", opened.value().label().c_str(),
                        no + 1, count, i + 1, n_parts);
        }
        for (GgufTensor& t : opened.value().m_tensors) {
            t.file = i;
            m_tensors.push_back(t);
        }
        m_files.push_back(std::move(opened.value().m_files[0]));
    }
    if (counted && n_tensors != m_tensors.size()) {
        return fail(Code::invalid, "%s: split.tensors.count is %u, but its %u parts have %zu tensors", label().c_str(), n_tensors, n_parts,
                    m_tensors.size());
    }
    return {};
}

std::string Gguf::label(uint32_t file) const
{
    return file_label(m_files[file].path());
}

uint64_t Gguf::file_bytes() const
{
    uint64_t bytes = 0;
    for (const MappedFile& file : m_files) bytes += file.size();
    return bytes;
}

Status Gguf::read(const GgufTensor& tensor, uint64_t offset, void* out, uint64_t bytes) const
{
    KS_CHECK(offset <= tensor.bytes && bytes <= tensor.bytes - offset, "%" PRIu64 " + %" PRIu64 " of %" PRIu64, offset, bytes,
             tensor.bytes);
    return m_files[tensor.file].read(tensor.offset + offset, out, bytes);
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
