// Asks whether this binary's code runs on a device.
#pragma once

#include <cuda_runtime.h>

namespace jax_transpose::cuda {

// cudaSuccess where the current device can run the kernels of this binary. Leaves no error behind.
cudaError_t ProbeKernels();

}  // namespace jax_transpose::cuda
