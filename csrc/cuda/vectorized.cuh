// 16-byte loads and stores through a swizzled tile; the sub-transpose of each 16-byte vector
// happens in registers. Needs every row of both arrays on a 16-byte boundary.
#pragma once

#include "cuda/swizzled_tile.cuh"

namespace jax_transpose::cuda {

template <int kBytes, int kTile, class Index>
__global__ void __launch_bounds__(SwizzledTile<kBytes, kTile, kTile>::kThreads)
    VectorizedKernel(const uint8_t* __restrict__ in, uint8_t* __restrict__ out,
                     TileGrid<Index> grid, uint64_t first_block) {
  using Tile = SwizzledTile<kBytes, kTile, kTile>;
  __shared__ Tile tile;

  const TileOrigin<Index> origin = LocateTile(grid, BlockNumber<Index>(first_block), kTile, kTile);
  in += (origin.in + origin.row * grid.in_row_stride + origin.col) * kBytes;
  out += (origin.out + origin.col * grid.out_col_stride + origin.row) * kBytes;
  const Index rows = grid.rows - origin.row, cols = grid.cols - origin.col;

  uint4 value[Tile::kLoads];
#pragma unroll
  for (int i = 0; i < Tile::kLoads; ++i) {
    const int vector = threadIdx.x + i * Tile::kThreads;
    const Index row = vector / Tile::kChunks, k = vector % Tile::kChunks;
    if (row < rows && k * Tile::kGroup < cols) {
      value[i] = __ldg(reinterpret_cast<const uint4*>(in + row * grid.in_row_stride * kBytes) + k);
    }
  }
#pragma unroll
  for (int i = 0; i < Tile::kLoads; ++i) {
    const int vector = threadIdx.x + i * Tile::kThreads;
    tile.chunk[Tile::Position(vector / Tile::kChunks, vector % Tile::kChunks)] = value[i];
  }
  __syncthreads();
  tile.Store(out, grid.out_col_stride, rows, cols);
}

}  // namespace jax_transpose::cuda
