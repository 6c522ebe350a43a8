// Which instruction set this process uses.
#pragma once

#include <string>
#include <vector>

#include "cpu/kernel_table.h"

namespace jax_transpose::cpu {

// The best set of this processor, or the one that the environment variable JAX_TRANSPOSE_ISA
// names. A name that this processor or this build lacks is an error, told by IsaError(); the best
// set is used then.
const KernelTable& Kernels();
const std::string& IsaError();
// Names that this processor supports, the best last.
std::vector<std::string> IsaNames();

}  // namespace jax_transpose::cpu
