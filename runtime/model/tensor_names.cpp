#include "runtime/model/tensor_names.h"

#include "runtime/model/tensor_binder.h"

#include <cinttypes>
#include <cstdlib>

namespace ks
{

Status TensorBinder::missing(const std::string& tensor, uint32_t cols, uint32_t rows) const
{
    return fail(Code::invalid, "%s has no tensor '%s' of %u x %u values", m_gguf.label().c_str(),
                tensor.c_str(), cols, rows);
}

// The names of the weight formats, for messages.
static std::string weight_types()
{
    std::string names;
    for (int i = 0; i < int(Format::n_weights); i++) {
        if (i > 0) names += i + 1 < int(Format::n_weights) ? ", " : " or ";
        names += find_ggml_type(format_info(Format(i)).ggml_type)->name;
    }
    return names;
}

// n: matrices in the tensor.
Status TensorBinder::check(const GgufTensor& t, uint32_t cols, uint32_t rows, bool vector,
                           uint32_t n) const
{
    if (t.dims[0] != cols || t.dims[1] != rows || t.dims[2] != n || t.dims[3] != 1) {
        const std::string last = n > 1 ? " x " + std::to_string(n) : "";
        return fail(Code::invalid, "%s has %s values, %u x %u%s was expected",
                    m_gguf.location_of(t).c_str(), t.shape().c_str(), cols, rows, last.c_str());
    }
    bool plain = t.format == Format::f32 || t.format == Format::f16 || t.format == Format::bf16;
    if (t.known && (plain || !vector)) return {};
    return fail(Code::unsupported, "%s has type %s (%u), %s was expected",
                m_gguf.location_of(t).c_str(), find_ggml_type(t.ggml_type)->name, t.ggml_type,
                vector ? "F32, F16 or BF16" : weight_types().c_str());
}

void TensorBinder::use(const GgufTensor& t, Role role, uint32_t first, uint32_t rows, uint32_t cols,
                       Piece piece)
{
    m_used[&t - m_gguf.tensors().data()] = true;
    m_parts.push_back({role, m_il, &t, first, rows, cols, piece});
}

// The rows of several matrices may be in one tensor, one section after the other.
Status TensorBinder::matrix(const char* stem, uint32_t cols, std::vector<Section> sections,
                            bool required)
{
    uint32_t rows = 0;
    for (const Section& s : sections) rows += s.rows;
    const GgufTensor* t = find(stem, ".weight");
    if (!t) return required ? missing(name(stem) + ".weight", cols, rows) : Status();
    KS_TRY(check(*t, cols, rows, false));
    const GgufTensor* scale = find(stem, ".scale");
    if (scale && m_used[scale - m_gguf.tensors().data()]) scale = nullptr; // a norm before it
    if (scale) KS_TRY(check(*scale, 1, 1, true));
    uint32_t first = 0;
    for (const Section& s : sections) {
        use(*t, s.role, first, s.rows, cols, Piece::weight);
        if (scale) use(*scale, s.role, 0, 1, 1, Piece::scale);
        first += s.rows;
    }
    return bias(stem, sections);
}

Status TensorBinder::bias(const char* stem, const std::vector<Section>& sections)
{
    const GgufTensor* t = find(stem, ".bias");
    if (!t) return {};
    uint32_t n = 0, first = 0;
    for (const Section& s : sections) n += s.rows;
    KS_TRY(check(*t, n, 1, true));
    for (const Section& s : sections) {
        use(*t, s.role, first, 1, s.rows, Piece::bias);
        first += s.rows;
    }
    return {};
}

Status TensorBinder::norm(const char* stem, Role role, uint32_t cols, uint32_t rows, bool required)
{
    const GgufTensor *t = find(stem, ".weight"), *b = find(stem, ".bias");
    if (!t) t = find(stem, ""); // ffn_norm of falcon-h1
    if (!t) return required ? missing(name(stem) + ".weight", cols, rows) : Status();
    KS_TRY(check(*t, cols, rows, true));
    use(*t, role, 0, rows, cols, Piece::weight);
    if (!b) return {};
    KS_TRY(check(*b, cols, 1, true));
    use(*b, role, 0, 1, cols, Piece::bias);
    return {};
}

Status TensorBinder::divisors(const char* stem, Role role)
{
    const RopeConfig &rope = m_c.rope, &of_window = m_c.rope_window;
    if (m_c.window && of_window.divided && of_window.n_rot > rope.n_rot)
        return fail(Code::unsupported,
                    "%s: divisors for RoPE over %u values, and window layers with RoPE over %u, at "
                    "most as many were expected",
                    m_gguf.label().c_str(), rope.n_rot, of_window.n_rot);
    return vector(stem, ".weight", role, Piece::weight, rope.n_rot / 2);
}

// One matrix has the rows of all layers.
Status TensorBinder::layer_embeddings()
{
    const uint32_t dim = m_c.layer_dim, rows = m_c.n_layers() * dim;
    const GgufTensor *embeddings = m_gguf.find_tensor(kLayerEmbeddings),
                     *proj = m_gguf.find_tensor("per_layer_model_proj.weight");
    if (!embeddings) return missing(kLayerEmbeddings, rows, m_c.n_vocab);
    KS_TRY(check(*embeddings, rows, m_c.n_vocab, false));
    m_used[embeddings - m_gguf.tensors().data()] = true;
    if (!proj) return missing("per_layer_model_proj.weight", m_c.dim, rows);
    KS_TRY(check(*proj, m_c.dim, rows, false));
    for (m_il = 0; m_il < m_c.n_layers(); m_il++)
        use(*proj, Role::layer_proj, m_il * dim, dim, m_c.dim, Piece::weight);
    m_il = 0;
    return norm("per_layer_proj_norm", Role::layer_proj_norm, dim);
}

Status TensorBinder::bind_model()
{
    const GgufTensor* embedding = find("token_embd", ".weight"); // read_config() has found it
    KS_TRY(check(*embedding, m_c.dim, m_c.n_vocab, false));
    use(*embedding, Role::token_embd, 0, m_c.n_vocab, m_c.dim, Piece::weight);
    KS_TRY(matrix("output", m_c.dim, {{Role::output, m_c.n_vocab}}, false));
    KS_TRY(norm(m_c.family->output_norm, Role::output_norm, m_c.dim));
    if (m_c.layer_dim) KS_TRY(layer_embeddings());
    // Factors come in pairs. rope_freqs takes precedence over both.
    if (find("rope_freqs", ".weight")) return divisors("rope_freqs", Role::rope_freqs);
    if (!find("rope_factors_long", ".weight") && !find("rope_factors_short", ".weight")) return {};
    KS_TRY(divisors("rope_factors_long", Role::rope_factors_long));
    return divisors("rope_factors_short", Role::rope_factors_short);
}

// n values side by side, or below each other.
Status TensorBinder::vector(const char* stem, const char* suffix, Role role, Piece piece,
                            uint32_t n, bool column, bool required)
{
    const GgufTensor* t = find(stem, suffix);
    const uint32_t cols = column ? 1 : n, rows = column ? n : 1;
    if (!t) return required ? missing(name(stem) + suffix, cols, rows) : Status();
    KS_TRY(check(*t, cols, rows, true));
    use(*t, role, 0, 1, n, piece);
    return {};
}

// Blocks that do not run, keys and values of layers that read those of another, and scales of
// activations that other programs quantize.
bool TensorBinder::ignores(const GgufTensor& t) const
{
    constexpr std::string_view kInputScale = ".input_scale";
    if (t.name.size() > kInputScale.size() &&
        t.name.substr(t.name.size() - kInputScale.size()) == kInputScale)
        return true;
    if (t.name.substr(0, 4) != "blk.") return false;
    const uint64_t block = std::strtoul(std::string(t.name.substr(4, 8)).c_str(), nullptr, 10);
    if (block >= m_c.n_layers()) return block < m_c.n_blocks;
    const std::string_view stem = t.name.substr(std::min(t.name.size(), t.name.find('.', 4)));
    const bool of_kv = stem.substr(0, 7) == ".attn_k" || stem.substr(0, 7) == ".attn_v";
    return !m_c.layers[block].runs() || (of_kv && !m_c.layers[block].owns_kv);
}

// Refuses tensors that the forward pass would ignore: ignoring them would change the output.
Status TensorBinder::check_unused() const
{
    for (size_t i = 0; i < m_used.size(); i++) {
        const GgufTensor& t = m_gguf.tensors()[i];
        bool ours = false;
        for (std::string_view start : {"blk.", "token_embd", "output", "per_layer_"})
            ours |= t.name.substr(0, start.size()) == start;
        if (m_used[i] || !ours || ignores(t)) continue;
        return fail(Code::unsupported,
                    "%s is not part of a %s model of %u layers as this build knows it",
                    m_gguf.location_of(t).c_str(), m_c.family->name, m_c.n_layers());
    }
    return {};
}

Result<std::vector<TensorPart>> bind_tensors(const Gguf& gguf, const Config& config)
{
    TensorBinder binder(gguf, config);
    KS_TRY(binder.bind_model());
    for (uint32_t il = 0; il < config.n_layers(); il++) KS_TRY(binder.bind_layer(il));
    KS_TRY(binder.check_unused());
    return binder.take_parts();
}
} // namespace ks
