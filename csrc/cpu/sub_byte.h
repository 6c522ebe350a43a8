// Packed elements of 4 or 2 bits on the CPU.
#pragma once

#include "cpu/kernels.h"

namespace jax_transpose::cpu {

// `plan` is of Kind::kSubByte. Unused bits of the output's last byte become zero.
void SubByte(const Plan& plan, const uint8_t* in, uint8_t* out, const Threads& threads);

}  // namespace jax_transpose::cpu
