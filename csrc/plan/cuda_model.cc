#include "plan/cuda_model.h"

#include <algorithm>

namespace jax_transpose {
namespace {

constexpr double kCopyBytesPerMicrosecond = 4.25e6;  // cudaMemcpy, read plus written
constexpr double kStartMicroseconds = 1.5;

// Time over a copy's, by element width of 1, 2, 4, 8 and 16 bytes: medians of the runs in
// bench/results, of the ladder's for the kinds that `auto` does not pick.
struct KindFactor {
  Kind kind;
  double by_width[5];
};
constexpr KindFactor kFactors[] = {
    {Kind::kNaive, {31, 16, 8.4, 5.6, 4.5}},
    {Kind::kTiledUnpadded, {3.5, 2.75, 2.35, 1.3, 1.06}},
    {Kind::kTiled, {2.6, 1.67, 1.1, 1.02, 1.05}},
    {Kind::kVectorized, {1.06, 1.08, 1.03, 1.03, 1.05}},
    {Kind::kAsyncCopy, {1.14, 1.1, 1.075, 1.045, 1.04}},
    {Kind::kShifted, {1.2, 1.12, 1.08, 1.09, 0}},  // not of 16-byte elements
};

constexpr double kInPlace[] = {1.14, 1.14, 1.09, 1.06, 1.08};
constexpr double kInPlaceByElements[] = {2.6, 1.8, 1.46, 1.4, 1.33};

int WidthIndex(int element_bytes) {
  int index = 0;
  while (element_bytes >> (index + 1)) ++index;
  return index;
}

double Factor(const Plan& plan) {
  if (plan.kind == Kind::kCopy) return 1;
  // Of tiles of a set of dimensions the cost model says more than the width.
  if (plan.kind == Kind::kRows) return std::max(1.0, 0.34 + 0.32 * plan.packed.cost);
  if (plan.kind == Kind::kPacked) return std::max(1.0, 0.917 * plan.packed.cost - 0.9);
  const int width = WidthIndex(plan.permutation.element_bytes);
  if (plan.kind == Kind::kInPlace) return (plan.aligned ? kInPlace : kInPlaceByElements)[width];
  // Where rows are not aligned, the vector kinds move elements as the padded tile does.
  const bool vectors = plan.kind == Kind::kVectorized || plan.kind == Kind::kAsyncCopy;
  const Kind kind = vectors && !plan.aligned ? Kind::kTiled : plan.kind;
  for (const KindFactor& factor : kFactors) {
    if (factor.kind == kind) return factor.by_width[width];
  }
  return 1.1;  // sub-byte
}

}  // namespace

double PredictMicroseconds(const Plan& plan) {
  const auto moved = static_cast<double>(2 * plan.permutation.bytes());
  if (moved == 0) return 0;
  return kStartMicroseconds + Factor(plan) * moved / kCopyBytesPerMicrosecond;
}

}  // namespace jax_transpose
