// Binds the tensors of a file to their roles (tensor_names.cpp), and those of a layer
// (tensor_names_layer.cpp).
#pragma once

#include "runtime/model/tensor_names.h"

#include <string>
#include <vector>

namespace ks
{

struct Section {
    Role role;
    uint32_t rows; // of a matrix; of a norm: heads with weights of their own
};

// Binds the tensors of a file to their roles, each with its name without .weight.
class TensorBinder
{
public:
    TensorBinder(const Gguf& gguf, const Config& config)
        : m_gguf(gguf), m_c(config), m_used(gguf.tensors().size())
    {
    }

    Status bind_model();
    Status bind_layer(uint32_t il);
    Status check_unused() const;
    std::vector<TensorPart> take_parts() { return std::move(m_parts); }

private:
    std::string name(const char* stem) const
    {
        return m_layer_name.empty() ? stem : m_layer_name + stem;
    }
    const GgufTensor* find(const char* stem, const char* suffix) const
    {
        return m_gguf.find_tensor(name(stem) + suffix);
    }
    Status matrix(const char* stem, uint32_t cols, std::vector<Section> sections,
                  bool required = true);
    Status norm(const char* stem, Role role, uint32_t cols, uint32_t rows = 1,
                bool required = true);
    Status bias(const char* stem, const std::vector<Section>& sections);
    Status divisors(const char* stem, Role role);
    Status attention(const LayerConfig& layer);
    Status qkv(const LayerConfig& layer);
    Status by_head(const char* stem, uint32_t cols, uint32_t n_heads,
                   const std::vector<Section>& of_head);
    Status latent_qkv(const LayerConfig& layer);
    Status vector(const char* stem, const char* suffix, Role role, Piece piece, uint32_t n,
                  bool column = false, bool required = true);
    Status convolution(const char* stem);
    Status recurrent(const LayerConfig& layer);
    Status short_conv();
    Status delta();
    Status mamba2();
    Status qk_norms(const LayerConfig& layer);
    Status ffn(const LayerConfig& layer);
    Status dense_ffn(uint32_t n);
    Status experts();
    Status shared_expert();
    Status matrices(const char* stem, uint32_t n, uint32_t cols, uint32_t rows,
                    const std::vector<Role>& roles);
    Status layer_embeddings();
    Status layer_end();
    Status missing(const std::string& tensor, uint32_t cols, uint32_t rows) const;
    Status check(const GgufTensor& t, uint32_t cols, uint32_t rows, bool vector,
                 uint32_t n = 1) const;
    void use(const GgufTensor& t, Role role, uint32_t first, uint32_t rows, uint32_t cols,
             Piece piece);
    bool ignores(const GgufTensor& t) const;

    const Gguf& m_gguf;
    const Config& m_c;
    std::vector<bool> m_used;
    std::vector<TensorPart> m_parts;
    std::string m_layer_name; // "blk.3."
    uint32_t m_il = 0;
};

} // namespace ks
