// Runs a plan on a stream.
#pragma once

#include <cuda_runtime.h>

#include "plan/plan.h"

namespace jax_transpose::cuda {

// Returns the launch's own code: an error left behind by other code is neither taken nor reported.
cudaError_t Launch(const Plan& plan, const void* in, void* out, cudaStream_t stream);

// Makes every launch ask for more threads than a block can have. For tests of the error path.
void ForceLaunchFailure(bool force);
bool LaunchFailureForced();

}  // namespace jax_transpose::cuda
