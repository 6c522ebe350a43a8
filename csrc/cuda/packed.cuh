// Tiles of a set of dimensions, for permutations where no two dimensions are long enough by
// themselves: skinny and small matrices, high ranks, short kept runs. All of a tile's geometry is
// data (plan/packed_plan.h): the kernel adds up mixed-radix digits.
#pragma once

#include "cuda/packed_tile.h"

namespace jax_transpose::cuda {

// Launch bounds stand for registers a thread: 56 where a side is unaligned, 48 where copies are
// asynchronous (40 would spill), 40 where vectors pass through registers two at a time.
constexpr int PackedBoundThreads(bool vectors, bool async) {
  return !vectors ? PackedMaxThreads(false) : async ? 640 : PackedMaxThreads(true);
}
constexpr int PackedBoundBlocks(bool vectors, bool async) { return vectors && async ? 2 : 3; }

template <int kBytes, bool kInVectors, bool kOutVectors, bool kAsync, int kGather>
__global__ void __launch_bounds__(PackedBoundThreads(kInVectors&& kOutVectors, kAsync),
                                  PackedBoundBlocks(kInVectors&& kOutVectors, kAsync))
    PackedKernel(const uint8_t* in, uint8_t* out, const __grid_constant__ PackedGrid grid) {
  using Tile = PackedTile<kBytes, kInVectors, kOutVectors, kAsync, static_cast<Gather>(kGather)>;
  extern __shared__ __align__(16) uint8_t packed_shared[];
  const PackedBlock block = LocateBlock(grid, in, out, blockIdx.x);
  Tile::Load(grid, block, in, packed_shared, threadIdx.x, blockDim.x);
  __syncthreads();
  Tile::StoreTile(grid, block, packed_shared, threadIdx.x, blockDim.x);
}

}  // namespace jax_transpose::cuda
