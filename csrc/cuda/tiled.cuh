// The textbook kernel: a square tile in shared memory, scalar accesses, with or without the column
// of padding that removes bank conflicts (Ruetsch and Micikevicius, "Optimizing Matrix Transpose in
// CUDA", 2009).
#pragma once

#include "cuda/index.cuh"

namespace jax_transpose::cuda {

template <int kTile>
struct ScalarTile {
  static constexpr int kThreads = ScalarThreads(kTile);
  static constexpr int kSteps = kTile * kTile / kThreads;
};

template <int kBytes, int kTile, int kPadding, class Index>
__global__ void __launch_bounds__(ScalarTile<kTile>::kThreads, 1)
    TiledKernel(const Element<kBytes>* __restrict__ in, Element<kBytes>* __restrict__ out,
                TileGrid<Index> grid, uint64_t first_block) {
  constexpr int kThreads = ScalarTile<kTile>::kThreads;
  constexpr int kSteps = ScalarTile<kTile>::kSteps;
  __shared__ Element<kBytes> tile[kTile][kTile + kPadding];

  const TileOrigin<Index> origin = LocateTile(grid, BlockNumber<Index>(first_block), kTile, kTile);
  const int minor = threadIdx.x % kTile;
  const int major = threadIdx.x / kTile;
  in += origin.in + origin.row * grid.in_row_stride + origin.col * grid.in_col_stride;
  out += origin.out + origin.row * grid.out_row_stride + origin.col * grid.out_col_stride;
  const Index rows = grid.rows - origin.row, cols = grid.cols - origin.col;

  Element<kBytes> value[kSteps];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const Index row = major + k * (kThreads / kTile);
    if (row < rows && minor < cols) {
      value[k] = in[row * grid.in_row_stride + minor * grid.in_col_stride];
    }
  }
#pragma unroll
  for (int k = 0; k < kSteps; ++k) tile[major + k * (kThreads / kTile)][minor] = value[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const Index col = major + k * (kThreads / kTile);
    if (col < cols && minor < rows) {
      out[col * grid.out_col_stride + minor * grid.out_row_stride] = tile[minor][col];
    }
  }
}

}  // namespace jax_transpose::cuda
