// The tile in shared memory: order of the reads and padding, by counting bank conflicts.
#pragma once

#include "plan/packed_plan.h"
#include "plan/tile_set.h"

namespace jax_transpose {

// Reciprocals are exact for the numbers of a tile, which stay below 2^16; 0 stands for 1.
uint32_t Reciprocal(uint32_t divisor);

// Joins digits that one digit can stand for. Returns the new count.
int MergeDigits(TileDigit* digits, int count);
// Reciprocals, and steps instead of strides; the first digit's are the same.
void FinishDigits(TileDigit* digits, int count);

// Fills what depends on the tile, not on the grid. Returns false where no layout fits.
bool LayOutTile(const Permutation& p, const Strides& strides, const TileSet& set,
                PackedLaunch* launch);

}  // namespace jax_transpose
