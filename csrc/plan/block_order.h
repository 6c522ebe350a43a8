// The order in which blocks visit the tiles of a batch of matrices.
#pragma once

#include "plan/plan.h"

namespace jax_transpose {

// True where one tile of every matrix, then the next tile, keeps fewer memory pages in use at once
// than all tiles of one matrix, then the next matrix. `plan` has its tiles counted;
// `tile_rows` x `tile_cols` is the size of one.
bool PreferMatricesFirst(const Plan& plan, int tile_rows, int tile_cols);

}  // namespace jax_transpose
