// Times plans, for `kernel="autotune"`.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "plan/plan.h"

namespace jax_transpose::cuda {

// Median microseconds of each plan on the current device, in order; infinity for a plan that fails
// to launch. Waits for the device's other work first. Each run begins with a cold L2, and the plans
// take turns, so that a drift of the clocks meets all of them alike. `microseconds` is left empty
// where a CUDA call other than a launch fails, which the result then says. Never call it while a
// stream captures.
cudaError_t MeasurePlans(const std::vector<Plan>& plans, std::vector<float>* microseconds);

}  // namespace jax_transpose::cuda
