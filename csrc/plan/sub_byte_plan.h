// The plan of elements narrower than a byte, which XLA packs: int4 and its like two a byte, int2
// four, the first element in the lowest bits and no padding between rows.
#pragma once

#include "plan/plan.h"

namespace jax_transpose {

// Tiles of the vector path: 256 rows of 128 bytes, whatever the width.
inline constexpr int kSubByteRows = 256;
constexpr int SubByteCols(int bits) { return 1024 / bits; }

// Rows and columns that a shifted tile moves: of its 256 rows and 128 bytes one word is lost on
// each side to the shift that brings runs onto whole words.
constexpr int SubByteShiftedRows(int bits) { return kSubByteRows - 32 / bits; }
constexpr int SubByteShiftedCols(int bits) { return SubByteCols(bits) - 32 / bits; }

// True where every row and matrix of both arrays starts on a multiple of `bits` and holds whole
// ones, addresses aside.
bool PackedRowsAligned(const Permutation& p, int bits);

// Completes a plan whose canonical form keeps elements below a byte.
void PlanSubByte(const Request& request, Plan* plan);

}  // namespace jax_transpose
