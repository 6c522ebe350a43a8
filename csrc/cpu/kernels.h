// CPU kernels behind the FFI handler.
#pragma once

#include "plan/plan.h"

namespace jax_transpose::cpu {

void Run(const Plan& plan, const void* in, void* out);

}  // namespace jax_transpose::cpu
