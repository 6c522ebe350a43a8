// Which kernels a processor can run.
#pragma once

#include <vector>

#include "cpu/kernel_table.h"

namespace jax_transpose::cpu {

// What the kernels for x86 beyond SSE2 need.
struct CpuFeatures {
  bool avx2, avx512f, avx512bw, avx512vl;
};

// Those of this processor that its operating system lets programs use.
CpuFeatures DetectFeatures();

// The best last. What a set needs is what its kernels are compiled with: csrc/kernels.cmake.
std::vector<const KernelTable*> TablesFor(const CpuFeatures& features);

}  // namespace jax_transpose::cpu
