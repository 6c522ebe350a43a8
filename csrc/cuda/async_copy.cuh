// cp.async straight into the swizzled tile: no registers hold data in flight, so more blocks are
// resident, and they are the pipeline (several tiles a block, double-buffered, measured slower).
// The guarded form copies single elements and so needs no alignment of the rows.
#pragma once

#include <cuda_pipeline.h>

#include "cuda/swizzled_tile.cuh"

namespace jax_transpose::cuda {

template <int kBytes, int kRows, int kCols, class Index>
__global__ void __launch_bounds__(SwizzledTile<kBytes, kRows, kCols>::kThreads)
    AsyncCopyKernel(const uint8_t* __restrict__ in, uint8_t* __restrict__ out, TileGrid<Index> grid,
                    uint64_t first_block) {
  using Tile = SwizzledTile<kBytes, kRows, kCols>;
  __shared__ Tile tile;

  const TileOrigin<Index> origin = LocateTile(grid, BlockNumber<Index>(first_block), kRows, kCols);
  in += (origin.in + origin.row * grid.in_row_stride + origin.col) * kBytes;
  out += (origin.out + origin.col * grid.out_col_stride + origin.row) * kBytes;
  const Index rows = grid.rows - origin.row, cols = grid.cols - origin.col;

#pragma unroll
  for (int i = 0; i < Tile::kLoads; ++i) {
    const int vector = threadIdx.x + i * Tile::kThreads;
    const Index row = vector / Tile::kChunks, k = vector % Tile::kChunks;
    if (row < rows && k * Tile::kGroup < cols) {
      CopyAsync(&tile.chunk[Tile::Position(row, k)],
                in + row * grid.in_row_stride * kBytes + k * 16);
    }
  }
  WaitForCopies();
  __syncthreads();
  tile.Store(out, grid.out_col_stride, rows, cols);
}

template <int kBytes, int kTile, class Index>
__global__ void __launch_bounds__(256)
    AsyncCopyGuardedKernel(const Element<kBytes>* __restrict__ in,
                           Element<kBytes>* __restrict__ out, TileGrid<Index> grid,
                           uint64_t first_block) {
  __shared__ Element<kBytes> tile[kTile][kTile + 1];
  const TileOrigin<Index> origin = LocateTile(grid, BlockNumber<Index>(first_block), kTile, kTile);
  in += origin.in + origin.row * grid.in_row_stride + origin.col * grid.in_col_stride;
  out += origin.out + origin.row * grid.out_row_stride + origin.col * grid.out_col_stride;
  const Index rows = grid.rows - origin.row, cols = grid.cols - origin.col;

  for (int e = threadIdx.x; e < kTile * kTile; e += blockDim.x) {
    const Index r = e / kTile, c = e % kTile;
    if (r < rows && c < cols) {
      const Element<kBytes>* source = in + r * grid.in_row_stride + c * grid.in_col_stride;
      if constexpr (kBytes >= 4) {
        __pipeline_memcpy_async(&tile[r][c], source, kBytes);
      } else {
        tile[r][c] = *source;  // cp.async moves 4 bytes at least
      }
    }
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  for (int e = threadIdx.x; e < kTile * kTile; e += blockDim.x) {
    const Index c = e / kTile, r = e % kTile;
    if (r < rows && c < cols) {
      out[c * grid.out_col_stride + r * grid.out_row_stride] = tile[r][c];
    }
  }
}

}  // namespace jax_transpose::cuda
