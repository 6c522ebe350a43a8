// A plan of packed elements as its kernels read it; filled on the host.
#pragma once

#include "cuda/sub_byte.cuh"

namespace jax_transpose::cuda {

template <class Index>
SubByteGrid<Index> MakeSubByteGrid(const Plan& plan) {
  const Permutation& p = plan.permutation;
  const Strides s = ComputeStrides(p);
  SubByteGrid<Index> grid;
  grid.elements = p.elements();
  grid.rank = p.rank;
  for (int i = 0; i < p.rank; ++i) {
    const int d = p.axes[p.rank - 1 - i];
    grid.extent[i] = Divider<Index>(p.extent[d]);
    grid.in_stride[i] = s.in[d];
  }
  return grid;
}

}  // namespace jax_transpose::cuda
