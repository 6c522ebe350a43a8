// From blocks to inner kernels.
#pragma once

#include <cstdint>

#include "cpu/kernel_table.h"
#include "plan/cpu_blocks.h"
#include "plan/plan.h"

namespace jax_transpose::cpu {

// Runs blocks [first, last) of the walk.
void RunBlocks(const CpuBlocks& blocks, const Plan& plan, const KernelTable& kernels,
               const char* in, char* out, int64_t first, int64_t last);

}  // namespace jax_transpose::cpu
