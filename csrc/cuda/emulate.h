// Runs `packed` and `rows` plans on the host, thread by thread, with the kernels' own code.
#pragma once

#include "plan/plan.h"

namespace jax_transpose::cuda {

// Returns false where the plan's kind has no emulation or the tile overruns its shared memory.
bool Emulate(const Plan& plan, const void* in, void* out);

}  // namespace jax_transpose::cuda
