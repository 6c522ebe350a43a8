// The CUDA half of the plan: which kernel kind, which tile, which grid.
#pragma once

#include "plan/plan.h"

namespace jax_transpose {

struct Swap;

// Tile sides that a kind is compiled for (0: none); `preferred` is the default.
struct TileChoice {
  int sides[4];
  int preferred;
};
TileChoice CudaTiles(Kind kind, int element_bytes);

// True where every row of both arrays starts on a 16-byte boundary and holds whole 16-byte vectors.
bool RowsAligned(const Permutation& p, int pointer_alignment);

void PickCudaKind(int pointer_alignment, Plan* plan);
// Falls back to another kind where the chosen one cannot move the permutation.
void SizeCudaGrid(int pointer_alignment, Plan* plan);

// Side of the square tiles of which an in-place block holds two, in 48 KiB of shared memory.
// Aligned tiles are swizzled, the others padded.
constexpr int InPlaceTile(int element_bytes, bool aligned) {
  if (aligned) return element_bytes == 1 ? 128 : element_bytes <= 4 ? 64 : 32;
  return element_bytes <= 4 ? 64 : element_bytes == 8 ? 32 : 16;
}
void PlanCudaInPlace(const Swap& swap, int pointer_alignment, Plan* plan);

}  // namespace jax_transpose
