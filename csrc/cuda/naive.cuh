// One element a thread: reads are coalesced, writes are scattered. The first rung of the ladder.
#pragma once

#include "cuda/index.cuh"

namespace jax_transpose::cuda {

// The input's dimensions, minor first.
template <class Index>
struct ElementGrid {
  Index elements;
  int rank;
  Divider<Index> extent[kMaxRank];
  Index out_stride[kMaxRank];
};

template <int kBytes, class Index>
__global__ void __launch_bounds__(256)
    NaiveKernel(const Element<kBytes>* __restrict__ in, Element<kBytes>* __restrict__ out,
                ElementGrid<Index> grid, uint64_t first_block) {
  const Index i = BlockNumber<Index>(first_block) * blockDim.x + threadIdx.x;
  if (i >= grid.elements) return;
  Index rest = i, offset = 0;
  for (int d = 0; d < grid.rank; ++d) {
    Index coordinate;
    rest = grid.extent[d].DivMod(rest, &coordinate);
    offset += coordinate * grid.out_stride[d];
  }
  out[offset] = in[i];
}

}  // namespace jax_transpose::cuda
