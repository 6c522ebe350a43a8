// Times plans on the current device, for `kernel="autotune"`.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "plan/plan.h"

namespace jax_transpose::cuda {

// Median microseconds of each plan, in order, on buffers of its own; `microseconds` is left empty
// where a CUDA call fails, which the result then says. Never call it while a stream captures.
cudaError_t MeasurePlans(const std::vector<Plan>& plans, std::vector<float>* microseconds);

}  // namespace jax_transpose::cuda
