#include "plan/in_place.h"

#include <algorithm>

#include "plan/cuda_plan.h"

namespace jax_transpose {
namespace {

constexpr int64_t kStagedBytes = int64_t{32} << 10;  // of a staged item: a first-level cache
constexpr int64_t kBlockRow = 256;                   // bytes of a block's row: four tiles

std::string Describe(const Permutation& p) {
  std::string shape, axes;
  for (int i = 0; i < p.rank; ++i) {
    const char* separator = i == 0 ? "" : ", ";
    shape += separator + std::to_string(p.extent[i]);
    axes += separator + std::to_string(p.axes[i]);
  }
  return "(" + shape + ") by axes (" + axes + ")";
}

}  // namespace

bool FindSwap(const Permutation& p, Swap* swap) {
  if (p.packed_bits != 0) return false;
  int first = 0;
  while (first < p.rank && p.axes[first] == first) ++first;
  if (first == p.rank) return false;
  const int second = p.axes[first];
  if (p.extent[first] != p.extent[second]) return false;
  for (int i = first; i < p.rank; ++i) {
    const int expected = i == first ? second : i == second ? first : i;
    if (p.axes[i] != expected) return false;
  }
  *swap = {};
  swap->side = p.extent[first];
  for (int i = 0; i < p.rank; ++i) {
    if (i == first || i == second) continue;
    (i < first ? swap->batch : i < second ? swap->middle : swap->run) *= p.extent[i];
  }
  return true;
}

CpuSwap MakeCpuSwap(const Swap& swap, int element_bytes) {
  const int64_t run = swap.run * element_bytes;
  const int64_t slice = swap.pitch() * swap.side * element_bytes;
  CpuSwap walk;
  walk.staged = slice <= kStagedBytes;
  if (walk.staged) {
    walk.slices = std::min(swap.batch, kStagedBytes / slice);
    walk.items = CeilDiv(swap.batch, walk.slices);
    return walk;
  }
  walk.block = std::max<int64_t>(1, kBlockRow / run);
  walk.items = swap.matrices() * PairCount(CeilDiv(swap.side, walk.block));
  return walk;
}

bool PlanInPlace(const Request& request, Plan* plan, std::string* error) {
  const Permutation& p = plan->permutation;
  Swap swap;
  if (!FindSwap(p, &swap)) {
    *error = p.packed_bits != 0
                 ? "elements of " + std::to_string(p.packed_bits) + " bits cannot be moved in place"
                 : "in place two axes of equal length can be exchanged, and neighbors that move "
                   "together count as one axis; here " +
                       Describe(p) + " remains";
    return false;
  }
  if (request.tile != 0) {
    *error = "tile=" + std::to_string(request.tile) + " is not possible in place; allowed: none";
    return false;
  }
  plan->kind = Kind::kInPlace;
  plan->vector_bytes = p.element_bytes;
  if (request.platform == Platform::kCpu) {
    const CpuSwap walk = MakeCpuSwap(swap, p.element_bytes);
    if (!p.keeps_minor()) plan->tile = CpuTile(p.element_bytes);
    plan->blocks = walk.items;
    plan->reason = walk.staged ? "in place: small matrices go through a buffer"
                               : "in place: pairs of tiles change places";
    return true;
  }
  PlanCudaInPlace(swap, request.pointer_alignment, plan);
  return true;
}

}  // namespace jax_transpose
