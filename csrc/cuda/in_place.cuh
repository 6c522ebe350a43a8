// Transposes within one buffer: a block holds a tile and its mirror image, and writes both back
// transposed. No other block reads or writes either. Operand and result are the same pointer, of
// which the kernels use the result.
#pragma once

#include <cuda_pipeline.h>

#include "cuda/in_place_grid.h"
#include "cuda/swizzled_tile.cuh"
#include "cuda/tiled.cuh"

namespace jax_transpose::cuda {

template <int kBytes, int kTile, class Index>
__global__ void __launch_bounds__(SwizzledTile<kBytes, kTile, kTile>::kThreads)
    InPlaceKernel(const uint8_t*, uint8_t* data, InPlaceGrid<Index> grid, uint64_t first_block) {
  using Tile = SwizzledTile<kBytes, kTile, kTile>;
  __shared__ Tile tile[2];

  const PairPlace<Index> pair = LocatePair(grid, BlockNumber<Index>(first_block));
  const Index i = pair.i * kTile, j = pair.j * kTile;
  uint8_t* upper = data + (pair.base + i * grid.pitch + j) * kBytes;
  uint8_t* lower = data + (pair.base + j * grid.pitch + i) * kBytes;
  const Index rows = grid.side - i, cols = grid.side - j;
  const bool diagonal = i == j;

#pragma unroll
  for (int n = 0; n < Tile::kLoads; ++n) {
    const int vector = threadIdx.x + n * Tile::kThreads;
    const Index row = vector / Tile::kChunks, k = vector % Tile::kChunks;
    const int position = Tile::Position(row, k);
    const Index offset = row * grid.pitch * kBytes + k * 16;
    if (row < rows && k * Tile::kGroup < cols) {
      __pipeline_memcpy_async(&tile[0].chunk[position], upper + offset, 16);
    }
    if (!diagonal && row < cols && k * Tile::kGroup < rows) {
      __pipeline_memcpy_async(&tile[1].chunk[position], lower + offset, 16);
    }
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  tile[0].Store(lower, grid.pitch, rows, cols);
  if (!diagonal) tile[1].Store(upper, grid.pitch, cols, rows);
}

// For sides that are not whole 16-byte vectors.
template <int kBytes, int kTile, class Index>
__global__ void __launch_bounds__(ScalarTile<kTile>::kThreads)
    InPlaceGuardedKernel(const Element<kBytes>*, Element<kBytes>* data, InPlaceGrid<Index> grid,
                         uint64_t first_block) {
  constexpr int kThreads = ScalarTile<kTile>::kThreads;
  __shared__ Element<kBytes> tile[2][kTile][kTile + 1];

  const PairPlace<Index> pair = LocatePair(grid, BlockNumber<Index>(first_block));
  const Index i = pair.i * kTile, j = pair.j * kTile;
  Element<kBytes>* upper = data + pair.base + i * grid.pitch + j;
  Element<kBytes>* lower = data + pair.base + j * grid.pitch + i;
  const Index rows = grid.side - i, cols = grid.side - j;
  const bool diagonal = i == j;

#pragma unroll 4
  for (int e = threadIdx.x; e < kTile * kTile; e += kThreads) {
    const Index r = e / kTile, c = e % kTile;
    const Index offset = r * grid.pitch + c;
    const bool in_upper = r < rows && c < cols, in_lower = !diagonal && r < cols && c < rows;
    if constexpr (kBytes >= 4) {
      if (in_upper) __pipeline_memcpy_async(&tile[0][r][c], upper + offset, kBytes);
      if (in_lower) __pipeline_memcpy_async(&tile[1][r][c], lower + offset, kBytes);
    } else {  // cp.async moves 4 bytes at least
      if (in_upper) tile[0][r][c] = upper[offset];
      if (in_lower) tile[1][r][c] = lower[offset];
    }
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
#pragma unroll 4
  for (int e = threadIdx.x; e < kTile * kTile; e += kThreads) {
    const Index r = e / kTile, c = e % kTile;
    const Index offset = r * grid.pitch + c;
    if (r < cols && c < rows) lower[offset] = tile[0][c][r];
    if (!diagonal && r < rows && c < cols) upper[offset] = tile[1][c][r];
  }
}

// The minor dimension is kept: a thread exchanges one element of two runs.
template <int kBytes, class Index>
__global__ void __launch_bounds__(256)
    InPlaceRunsKernel(const Element<kBytes>*, Element<kBytes>* data, InPlaceGrid<Index> grid,
                      uint64_t first_block) {
  const Index number = BlockNumber<Index>(first_block) * blockDim.x + threadIdx.x;
  if (number >= grid.elements) return;
  Index element;
  PairPlace<Index> pair = LocatePair(grid, grid.run.DivMod(number, &element));
  ++pair.j;
  data += pair.base + element;
  Element<kBytes>* a = data + pair.i * grid.pitch + pair.j * grid.run.divisor;
  Element<kBytes>* b = data + pair.j * grid.pitch + pair.i * grid.run.divisor;
  const Element<kBytes> value = *a;
  *a = *b;
  *b = value;
}

}  // namespace jax_transpose::cuda
