// Transposes within one buffer on the CPU.
#pragma once

#include <cstdint>

#include "plan/in_place.h"
#include "plan/plan.h"

namespace jax_transpose::cpu {

// Runs items [first, last) of the walk; `plan` is of Kind::kInPlace.
void RunSwap(const Plan& plan, const Swap& swap, const CpuSwap& walk, char* data, int64_t first,
             int64_t last);

}  // namespace jax_transpose::cpu
