// cp.async straight into shared memory: the next tile of a strip is in flight while this one is
// written. The guarded form copies single elements and so needs no alignment of the rows.
#pragma once

#include <cuda_pipeline.h>

#include "cuda/swizzled_tile.cuh"

namespace jax_transpose::cuda {

template <int kBytes, int kTile, class Index>
__global__ void __launch_bounds__(SwizzledThreads(kBytes, kTile))
    AsyncCopyKernel(const uint8_t* __restrict__ in, uint8_t* __restrict__ out, TileGrid<Index> grid,
                    uint64_t first_block) {
  using Tile = SwizzledTile<kBytes, kTile>;
  __shared__ Tile tile[2];

  const TileOrigin<Index> origin =
      LocateTile(grid, BlockNumber<Index>(first_block), kTile * kAsyncTilesPerBlock, kTile);
  in += (origin.in + origin.row * grid.in_row_stride + origin.col) * kBytes;
  out += (origin.out + origin.col * grid.out_col_stride + origin.row) * kBytes;
  const Index rows = grid.rows - origin.row, cols = grid.cols - origin.col;
  const Index left = (rows + kTile - 1) / kTile;
  const int tiles = left < kAsyncTilesPerBlock ? static_cast<int>(left) : kAsyncTilesPerBlock;

  auto fetch = [&](int t) {
    if (t < tiles) {
#pragma unroll
      for (int i = 0; i < Tile::kLoads; ++i) {
        const int vector = threadIdx.x + i * Tile::kThreads;
        const int r = vector / Tile::kChunks, k = vector % Tile::kChunks;
        const Index row = r + t * kTile;
        if (row < rows && static_cast<Index>(k * Tile::kGroup) < cols) {
          __pipeline_memcpy_async(&tile[t % 2].chunk[Tile::Position(r, k)],
                                  in + row * grid.in_row_stride * kBytes + k * 16, 16);
        }
      }
    }
    __pipeline_commit();
  };

  fetch(0);
  for (int t = 0; t < tiles; ++t) {
    fetch(t + 1);
    __pipeline_wait_prior(1);
    __syncthreads();
    tile[t % 2].Store(out + static_cast<Index>(t * kTile) * kBytes, grid.out_col_stride,
                      rows - t * kTile, cols);
    __syncthreads();
  }
}

template <int kBytes, int kTile, class Index>
__global__ void __launch_bounds__(256)
    AsyncCopyGuardedKernel(const Element<kBytes>* __restrict__ in,
                           Element<kBytes>* __restrict__ out, TileGrid<Index> grid,
                           uint64_t first_block) {
  __shared__ Element<kBytes> tile[kTile][kTile + 1];
  const TileOrigin<Index> origin =
      LocateTile(grid, BlockNumber<Index>(first_block), kTile * kAsyncTilesPerBlock, kTile);
  in += origin.in + origin.row * grid.in_row_stride + origin.col * grid.in_col_stride;
  out += origin.out + origin.row * grid.out_row_stride + origin.col * grid.out_col_stride;
  const Index rows = grid.rows - origin.row, cols = grid.cols - origin.col;

  for (int t = 0; t < kAsyncTilesPerBlock; ++t) {
    for (int e = threadIdx.x; e < kTile * kTile; e += blockDim.x) {
      const int r = e / kTile, c = e % kTile;
      const Index row = r + t * kTile;
      if (row < rows && static_cast<Index>(c) < cols) {
        const Element<kBytes>* source = in + row * grid.in_row_stride + c * grid.in_col_stride;
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
      const int c = e / kTile, r = e % kTile;
      const Index row = r + t * kTile;
      if (row < rows && static_cast<Index>(c) < cols) {
        out[c * grid.out_col_stride + row * grid.out_row_stride] = tile[r][c];
      }
    }
    __syncthreads();
  }
}

}  // namespace jax_transpose::cuda
