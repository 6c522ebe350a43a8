// Index arithmetic shared by the kernels: division by run-time constants, and the way from a block
// number to a tile of a batched, strided matrix.
#pragma once

#include <cstdint>

#include "cuda/portable.h"
#include "plan/divisor.h"
#include "plan/plan.h"

namespace jax_transpose::cuda {

// Division by a run-time constant. Below 2^31 one high multiply replaces the division.
template <class Index>
struct Divider;

template <>
struct Divider<uint32_t> {
  uint32_t divisor = 1;
  Divisor by{0, 0};

  Divider() = default;
  explicit Divider(int64_t d) : divisor(static_cast<uint32_t>(d)), by(MakeDivisor(d)) {}
  __device__ __forceinline__ uint32_t Divide(uint32_t n) const {
    return (__umulhi(n, by.multiplier) + n) >> by.shift;
  }
  __device__ __forceinline__ uint32_t DivMod(uint32_t n, uint32_t* remainder) const {
    const uint32_t q = Divide(n);
    *remainder = n - q * divisor;
    return q;
  }
};

template <>
struct Divider<uint64_t> {
  uint64_t divisor = 1;

  Divider() = default;
  explicit Divider(int64_t d) : divisor(static_cast<uint64_t>(d)) {}
  __device__ __forceinline__ uint64_t DivMod(uint64_t n, uint64_t* remainder) const {
    const uint64_t q = n / divisor;
    *remainder = n - q * divisor;
    return q;
  }
};

// A batch of rows x cols matrices, all strides in elements. Tiles are numbered along the output's
// minor direction first, so that neighboring blocks complete each other's lines in L2; or, with
// `matrices_first`, one tile of all matrices after the other.
template <class Index>
struct TileGrid {
  int64_t in_bytes;
  Index rows, cols;
  Index in_row_stride, in_col_stride, out_row_stride, out_col_stride;
  bool matrices_first;
  int row_overlap, tile_cols;
  Divider<Index> row_tiles, col_tiles, matrices;
  int batch_rank;
  Divider<Index> batch_extent[kMaxRank];
  Index batch_in[kMaxRank], batch_out[kMaxRank];
};

template <class Index>
struct TileOrigin {
  Index row, col;  // of the tile's corner within its matrix
  Index in, out;   // element offsets of the matrix
};

template <class Index>
__device__ __forceinline__ TileOrigin<Index> LocateTile(const TileGrid<Index>& grid, Index block,
                                                        int tile_rows, int tile_cols) {
  TileOrigin<Index> origin;
  Index row_tile, col_tile, batch;
  if (grid.matrices_first) {
    col_tile = grid.row_tiles.DivMod(grid.matrices.DivMod(block, &batch), &row_tile);
  } else {
    batch = grid.col_tiles.DivMod(grid.row_tiles.DivMod(block, &row_tile), &col_tile);
  }
  origin.row = row_tile * tile_rows;
  origin.col = col_tile * tile_cols;
  origin.in = origin.out = 0;
  for (int i = 0; i < grid.batch_rank; ++i) {
    Index coordinate;
    batch = grid.batch_extent[i].DivMod(batch, &coordinate);
    origin.in += coordinate * grid.batch_in[i];
    origin.out += coordinate * grid.batch_out[i];
  }
  return origin;
}

// A grid dimension holds 2^31 - 1 blocks; the launcher passes the number of the first.
template <class Index>
__device__ __forceinline__ Index BlockNumber(uint64_t first_block) {
  return static_cast<Index>(first_block) + blockIdx.x;
}

}  // namespace jax_transpose::cuda
