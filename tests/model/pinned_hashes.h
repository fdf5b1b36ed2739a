// The hashes of pinned_test.cpp, as printed with KS_PINNED_PRINT=1. A commit that changes a hash
// gives the reason in its message.
#pragma once

#include <cstdint>

namespace ks
{

struct PinnedHash {
    const char* machine; // the device and everything else that its bits depend on
    const char* recipe;
    uint64_t hash;
};

constexpr PinnedHash kPinnedHashes[] = {
    {"cuda, glibc 2.36", "exact", 0x746646b5d0d8e1b7ull},
    {"cuda, glibc 2.36", "sink,slots=48", 0x9aaf6268fa4b6251ull},
    {"cuda, glibc 2.36", "h2o,slots=48,recent=16,k=turbo4,v=turbo3", 0x225b0a761dc7ea34ull},
    {"cuda, glibc 2.36", "mix,slots=64,recent=16,k=q8,v=q4", 0xd8b99a249ca4c107ull},
    {"cuda, glibc 2.36", "snapkv,slots=64,recent=16,k=turbo2,v=turbo2", 0x39e4d4dd228ea1f9ull},
    {"cuda, glibc 2.36", "retain=all,k=kivi,v=kivi", 0xf1a3ace535efc1cdull},
    {"cuda, glibc 2.36", "retain=all,k=polar,v=polar", 0xbc077a17f1a85cb4ull},
    {"cuda, glibc 2.36", "h2o,slots=64,recent=16,victims=merge", 0xe6967bf460516443ull},
    {"cuda, glibc 2.36", "tova,slots=64,recent=16,select=tokenselect,read=32",
     0x2223f81055013cd5ull},
    {"reference, glibc 2.36", "exact", 0x80e7e7c56df30743ull},
    {"reference, glibc 2.36", "sink,slots=48", 0x4646543e376fe9e3ull},
    {"reference, glibc 2.36", "h2o,slots=48,recent=16,k=turbo4,v=turbo3", 0xdc0d8dcedfb71de1ull},
    {"reference, glibc 2.36", "mix,slots=64,recent=16,k=q8,v=q4", 0xfc1bd9d4777fbb2bull},
    {"reference, glibc 2.36", "snapkv,slots=64,recent=16,k=turbo2,v=turbo2", 0xc0e2a38f4c34e4d4ull},
    {"reference, glibc 2.36", "retain=all,k=kivi,v=kivi", 0x05509b2a75217892ull},
    {"reference, glibc 2.36", "retain=all,k=polar,v=polar", 0x809acea6e53b1f90ull},
    {"reference, glibc 2.36", "h2o,slots=64,recent=16,victims=merge", 0xa94fe716b55720e2ull},
    {"reference, glibc 2.36", "tova,slots=64,recent=16,select=tokenselect,read=32",
     0x185c5b80fe844121ull},
    {"vulkan, llvmpipe (LLVM 15.0.6, 256 bits), glibc 2.36", "exact", 0x51de319207e246e9ull},
    {"vulkan, llvmpipe (LLVM 15.0.6, 256 bits), glibc 2.36", "sink,slots=48",
     0x69f288a82e730562ull},
    {"vulkan, llvmpipe (LLVM 15.0.6, 256 bits), glibc 2.36",
     "h2o,slots=48,recent=16,k=turbo4,v=turbo3", 0xf49c7913a9855582ull},
    {"vulkan, llvmpipe (LLVM 15.0.6, 256 bits), glibc 2.36", "mix,slots=64,recent=16,k=q8,v=q4",
     0xb995c908a9427479ull},
    {"vulkan, llvmpipe (LLVM 15.0.6, 256 bits), glibc 2.36",
     "snapkv,slots=64,recent=16,k=turbo2,v=turbo2", 0x4ce0b1dd9e78f261ull},
    {"vulkan, llvmpipe (LLVM 15.0.6, 256 bits), glibc 2.36", "retain=all,k=kivi,v=kivi",
     0xb91173b934e2ecefull},
    {"vulkan, llvmpipe (LLVM 15.0.6, 256 bits), glibc 2.36", "retain=all,k=polar,v=polar",
     0xa70a166b715b12b2ull},
    {"vulkan, llvmpipe (LLVM 15.0.6, 256 bits), glibc 2.36", "h2o,slots=64,recent=16,victims=merge",
     0x1996fb879777c449ull},
    {"vulkan, llvmpipe (LLVM 15.0.6, 256 bits), glibc 2.36",
     "tova,slots=64,recent=16,select=tokenselect,read=32", 0xf153d65d8abbab2aull},
};

} // namespace ks
