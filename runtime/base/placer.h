// Hands out consecutive parts of a block. Without a block it only counts, so planning and placing
// run the same code.
#pragma once

#include "runtime/base/arena.h"
#include "runtime/base/tensor.h"

#include <algorithm>
#include <vector>

namespace ks
{

struct Placer {
    Buffer buffer;
    uint64_t offset = 0;
    uint64_t align = kRegionAlign;                 // of tensors
    std::vector<uint64_t>* split_points = nullptr; // receives the offset of each tensor
    uint64_t largest = 0;                          // bytes of the largest tensor that ops see whole

    Tensor take(uint32_t rows, uint32_t cols, Format format = Format::f32)
    {
        const Tensor t = pool(rows, cols, format);
        largest = std::max(largest, offset - t.offset);
        return t;
    }
    // A tensor that ops see in parts where it is larger than DeviceInfo::range_bytes.
    Tensor pool(uint32_t rows, uint32_t cols, Format format)
    {
        Tensor t{buffer, offset, rows, cols, format};
        if (split_points) split_points->push_back(offset);
        offset +=
            align_up(is_coded(format) ? coded_bytes(format, rows, cols)
                                      : uint64_t(rows) * cols * (format == Format::f16 ? 2 : 4),
                     align);
        return t;
    }
    // Host memory only.
    template <class T>
    T* array(uint64_t count)
    {
        uint8_t* at = buffer.data ? static_cast<uint8_t*>(buffer.data) + offset : nullptr;
        offset += align_up(count * sizeof(T), kRegionAlign);
        return reinterpret_cast<T*>(at);
    }
};

} // namespace ks
