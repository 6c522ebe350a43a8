// The grid of the in-place kernels: pairs of tiles, or of kept runs, of a batch of square matrices.
#pragma once

#include "cuda/index.cuh"
#include "plan/in_place.h"

namespace jax_transpose::cuda {

// All strides in elements.
template <class Index>
struct InPlaceGrid {
  Index side, pitch, middle_stride, batch_stride;
  Index per_side;  // tiles, or runs beside the diagonal, of a side: pairs are chosen among these
  Divider<Index> pairs, pairs_line, middle, run;
  Index elements;  // of the pairs, for runs
};

template <class Index>
InPlaceGrid<Index> MakeInPlaceGrid(const Plan& plan) {
  Swap swap;
  FindSwap(plan.permutation, &swap);
  InPlaceGrid<Index> grid;
  grid.side = static_cast<Index>(swap.side);
  grid.pitch = static_cast<Index>(swap.pitch());
  grid.middle_stride = static_cast<Index>(swap.side * swap.run);
  grid.batch_stride = static_cast<Index>(swap.pitch() * swap.side);
  const int64_t per_side = plan.tile != 0 ? plan.row_tiles : swap.side - 1;
  grid.per_side = static_cast<Index>(per_side);
  grid.pairs = Divider<Index>(PairCount(per_side));
  grid.pairs_line = Divider<Index>(per_side + 1);
  grid.middle = Divider<Index>(swap.middle);
  grid.run = Divider<Index>(swap.run);
  grid.elements = static_cast<Index>(swap.matrices() * PairCount(per_side) * swap.run);
  return grid;
}

template <class Index>
struct PairPlace {
  Index base;  // offset of the matrix in elements
  Index i, j;  // i <= j
};

// The pair of a number that counts the pairs of all matrices.
template <class Index>
__device__ __forceinline__ PairPlace<Index> LocatePair(const InPlaceGrid<Index>& grid,
                                                       Index number) {
  Index k, place, middle;
  const Index matrix = grid.pairs.DivMod(number, &k);
  const Index line = grid.pairs_line.DivMod(k, &place);
  const Index batch = grid.middle.DivMod(matrix, &middle);
  PairPlace<Index> pair;
  pair.base = batch * grid.batch_stride + middle * grid.middle_stride;
  PairOf(line, place, grid.per_side, &pair.i, &pair.j);
  return pair;
}

}  // namespace jax_transpose::cuda
