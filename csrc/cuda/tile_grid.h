// A plan's tiles as the kernels that exchange two dimensions read them; filled on the host.
#pragma once

#include "cuda/index.cuh"

namespace jax_transpose::cuda {

template <class Index>
TileGrid<Index> MakeTileGrid(const Plan& plan) {
  const Permutation& p = plan.permutation;
  const TilePair pair = TiledPair(p);
  const Strides s = ComputeStrides(p);
  TileGrid<Index> grid;
  grid.in_bytes = p.bytes();
  grid.rows = p.extent[pair.row_dim];
  grid.cols = p.extent[pair.col_dim];
  grid.in_row_stride = s.in[pair.row_dim];
  grid.in_col_stride = s.in[pair.col_dim];
  grid.out_row_stride = s.out[pair.row_dim];
  grid.out_col_stride = s.out[pair.col_dim];
  grid.matrices_first = plan.matrices_first;
  grid.row_overlap = plan.row_overlap;
  grid.tile_cols = plan.tile_cols;
  grid.row_tiles = Divider<Index>(plan.row_tiles);
  grid.col_tiles = Divider<Index>(plan.col_tiles);
  grid.matrices = Divider<Index>(p.elements() / (p.extent[pair.row_dim] * p.extent[pair.col_dim]));
  grid.batch_rank = 0;
  for (int i = p.rank - 1; i >= 0; --i) {
    const int d = p.axes[i];
    if (d == pair.row_dim || d == pair.col_dim) continue;
    grid.batch_extent[grid.batch_rank] = Divider<Index>(p.extent[d]);
    grid.batch_in[grid.batch_rank] = s.in[d];
    grid.batch_out[grid.batch_rank] = s.out[d];
    ++grid.batch_rank;
  }
  return grid;
}

}  // namespace jax_transpose::cuda
