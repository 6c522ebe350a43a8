// The CUDA half of the plan: which kernel kind, which tile, which grid.
#pragma once

#include "plan/plan.h"

namespace jax_transpose {

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

}  // namespace jax_transpose
