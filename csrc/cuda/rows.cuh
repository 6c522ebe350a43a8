// Kept minor runs of 64 bytes and more are copied whole: see row_tile.h.
#pragma once

#include "cuda/row_tile.h"

namespace jax_transpose::cuda {

template <int kBytes>
__global__ void __launch_bounds__(kRowsMaxThreads, kBytes == 16 ? 3 : 2)
    RowsKernel(const uint8_t* in, uint8_t* out, const __grid_constant__ PackedGrid grid) {
  const PackedBlock block = LocateBlock(grid, in, out, blockIdx.x);
  RowTile<kBytes>::Run(grid, block, threadIdx.x, blockDim.x);
}

}  // namespace jax_transpose::cuda
