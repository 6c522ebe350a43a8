// How long a CUDA plan should take: what `explain` prints beside what the plan chose.
#pragma once

#include "plan/plan.h"

namespace jax_transpose {

// The card that the model's constants were fitted on.
inline constexpr const char* kModelDevice = "NVIDIA H200";

// Microseconds on that card, for arrays well beyond its 60 MB of cache; smaller ones take less.
// docs/tuning.md says how far off it is.
double PredictMicroseconds(const Plan& plan);

}  // namespace jax_transpose
