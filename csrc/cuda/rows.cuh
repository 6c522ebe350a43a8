// Kept minor runs: no shared memory; threads walk the output in order, several loads in flight.
#pragma once

#include "cuda/index.cuh"

namespace jax_transpose::cuda {

// The output's dimensions, minor first.
template <class Index>
struct RowGrid {
  Index elements;
  int rank;
  Divider<Index> extent[kMaxRank];
  Index in_stride[kMaxRank];
};

template <int kBytes, class Index>
__global__ void __launch_bounds__(256)
    RowsKernel(const Element<kBytes>* __restrict__ in, Element<kBytes>* __restrict__ out,
               RowGrid<Index> grid, uint64_t first_block) {
  const Index base = BlockNumber<Index>(first_block) * (blockDim.x * kRowsPerThread) + threadIdx.x;
  Element<kBytes> value[kRowsPerThread];
#pragma unroll
  for (int k = 0; k < kRowsPerThread; ++k) {
    const Index i = base + k * blockDim.x;
    if (i >= grid.elements) break;
    Index rest = i, offset = 0;
    for (int d = 0; d < grid.rank; ++d) {
      Index coordinate;
      rest = grid.extent[d].DivMod(rest, &coordinate);
      offset += coordinate * grid.in_stride[d];
    }
    value[k] = in[offset];
  }
#pragma unroll
  for (int k = 0; k < kRowsPerThread; ++k) {
    const Index i = base + k * blockDim.x;
    if (i < grid.elements) out[i] = value[k];
  }
}

}  // namespace jax_transpose::cuda
