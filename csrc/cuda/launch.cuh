// From a plan to a kernel instance. Included once for each element width.
#pragma once

#include <algorithm>
#include <atomic>

#include "cuda/async_copy.cuh"
#include "cuda/in_place.cuh"
#include "cuda/launch.h"
#include "cuda/naive.cuh"
#include "cuda/packed.cuh"
#include "cuda/rows.cuh"
#include "cuda/shifted.cuh"
#include "cuda/tile_grid.h"
#include "cuda/tiled.cuh"
#include "cuda/vectorized.cuh"
#include "plan/cuda_plan.h"

namespace jax_transpose::cuda {

template <class Index>
ElementGrid<Index> MakeElementGrid(const Plan& plan) {
  const Permutation& p = plan.permutation;
  const Strides s = ComputeStrides(p);
  ElementGrid<Index> grid;
  grid.elements = p.elements();
  grid.rank = p.rank;
  for (int i = 0; i < p.rank; ++i) {
    const int d = p.rank - 1 - i;
    grid.extent[i] = Divider<Index>(p.extent[d]);
    grid.out_stride[i] = s.out[d];
  }
  return grid;
}

// One launch for each 2^31 - 1 blocks. Kernels take (in, out, grid, first_block). `spare_bytes` of
// shared memory stay unused, to keep blocks off the multiprocessor.
template <class In, class Out, class Grid>
cudaError_t LaunchKernel(void (*kernel)(In, Out, Grid, uint64_t), const Plan& plan, const void* in,
                         void* out, Grid grid, cudaStream_t stream, int spare_bytes = 0) {
  constexpr int64_t kMaxBlocks = (int64_t{1} << 31) - 1;
  const int threads = LaunchFailureForced() ? 2048 : plan.threads;
  for (int64_t done = 0; done < plan.blocks; done += kMaxBlocks) {
    uint64_t first_block = done;
    void* arguments[] = {&in, &out, &grid, &first_block};
    const auto blocks = static_cast<unsigned>(std::min(plan.blocks - done, kMaxBlocks));
    const cudaError_t code = cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks),
                                              dim3(threads), arguments, spare_bytes, stream);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

// The tile sides of kTiles (plan/cuda_plan.cc); scalar tiles end at 64.
template <int kBytes, int kTile, class Index>
cudaError_t LaunchTile(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  const TileGrid<Index> grid = MakeTileGrid<Index>(plan);
  const bool swizzled = plan.kind == Kind::kVectorized || plan.kind == Kind::kAsyncCopy;
  if (swizzled && plan.aligned) {
    constexpr int kMinimum = 128 / kBytes;
    if constexpr (kTile >= kMinimum && kTile * kTile * kBytes <= 32 * 1024) {
      if (plan.kind == Kind::kVectorized) {
        return LaunchKernel(VectorizedKernel<kBytes, kTile, Index>, plan, in, out, grid, stream);
      }
      return LaunchKernel(AsyncCopyKernel<kBytes, kTile, AsyncCols(kBytes, kTile), Index>, plan, in,
                          out, grid, stream);
    }
    return cudaErrorInvalidValue;
  }
  if constexpr (kTile <= 64 && kTile * (kTile + 1) * kBytes <= 48 * 1024) {
    if (plan.kind == Kind::kTiledUnpadded) {
      return LaunchKernel(TiledKernel<kBytes, kTile, 0, Index>, plan, in, out, grid, stream);
    }
    if (plan.kind == Kind::kAsyncCopy) {
      return LaunchKernel(AsyncCopyGuardedKernel<kBytes, kTile, Index>, plan, in, out, grid,
                          stream);
    }
    return LaunchKernel(TiledKernel<kBytes, kTile, 1, Index>, plan, in, out, grid, stream);
  }
  return cudaErrorInvalidValue;
}

template <int kBytes, class Index>
cudaError_t LaunchInPlace(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  const InPlaceGrid<Index> grid = MakeInPlaceGrid<Index>(plan);
  if (plan.tile == 0) {
    return LaunchKernel(InPlaceRunsKernel<kBytes, Index>, plan, in, out, grid, stream);
  }
  if (plan.aligned) {
    return LaunchKernel(InPlaceKernel<kBytes, InPlaceTile(kBytes, true), Index>, plan, in, out,
                        grid, stream);
  }
  return LaunchKernel(InPlaceGuardedKernel<kBytes, InPlaceTile(kBytes, false), Index>, plan, in,
                      out, grid, stream);
}

// Shared memory that keeps a fifth shifted tile off the multiprocessors of a Hopper or later data
// center card (228 KiB), where four are 2 % faster; smaller ones hold no more than four anyway.
inline int ShiftedSpareBytes() {
  constexpr int kSpare = 13 * 1024, kLargeMultiprocessor = 200 * 1024, kDevices = 64;
  static std::atomic<int> spare[kDevices];  // 0: not asked yet; else the answer plus 1
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kDevices) return 0;
  int known = spare[device].load(std::memory_order_relaxed);
  if (known == 0) {
    int shared = 0;
    cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    known = (shared >= kLargeMultiprocessor ? kSpare : 0) + 1;
    spare[device].store(known, std::memory_order_relaxed);
  }
  return known - 1;
}

template <int kBytes, class Index>
cudaError_t LaunchIndexed(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  if (plan.kind == Kind::kInPlace) return LaunchInPlace<kBytes, Index>(plan, in, out, stream);
  if (plan.kind == Kind::kNaive) {
    return LaunchKernel(NaiveKernel<kBytes, Index>, plan, in, out, MakeElementGrid<Index>(plan),
                        stream);
  }
  if constexpr (kBytes <= 8) {
    if (plan.kind == Kind::kShifted) {
      return LaunchKernel(ShiftedKernel<kBytes, Index>, plan, in, out, MakeTileGrid<Index>(plan),
                          stream, ShiftedSpareBytes());
    }
  }
  switch (plan.tile) {
    case 8:
      return LaunchTile<kBytes, 8, Index>(plan, in, out, stream);
    case 16:
      return LaunchTile<kBytes, 16, Index>(plan, in, out, stream);
    case 32:
      return LaunchTile<kBytes, 32, Index>(plan, in, out, stream);
    case 64:
      return LaunchTile<kBytes, 64, Index>(plan, in, out, stream);
    case 128:
      return LaunchTile<kBytes, 128, Index>(plan, in, out, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

// Offsets within a tile are 32-bit whatever the array's size; the planner keeps to that.
inline cudaError_t LaunchPackedKernel(void (*kernel)(const uint8_t*, uint8_t*, PackedGrid),
                                      const PackedLaunch& launch, const void* in, void* out,
                                      cudaStream_t stream) {
  const int threads = LaunchFailureForced() ? 2048 : launch.threads;
  void* arguments[] = {&in, &out, const_cast<PackedGrid*>(&launch.grid)};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                          dim3(static_cast<unsigned>(launch.blocks)), dim3(threads), arguments,
                          launch.shared_bytes, stream);
}

template <int kBytes>
cudaError_t LaunchPacked(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  const PackedLaunch& launch = plan.packed;
  if (plan.kind == Kind::kRows) {
    return LaunchPackedKernel(RowsKernel<kBytes>, launch, in, out, stream);
  }
  cudaError_t code = cudaErrorInvalidValue;
  VisitPackedTile<kBytes>(launch, [&](auto tile) {
    using Tile = decltype(tile);
    code = LaunchPackedKernel(PackedKernel<kBytes, Tile::kInVectors, Tile::kOutVectors,
                                           Tile::kCopies, static_cast<int>(Tile::kReads)>,
                              launch, in, out, stream);
  });
  return code;
}

template <int kBytes>
cudaError_t LaunchWidth(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  if (plan.kind == Kind::kPacked || plan.kind == Kind::kRows) {
    return LaunchPacked<kBytes>(plan, in, out, stream);
  }
  // Byte offsets are 32-bit too, and indices count the threads of a partial last block.
  constexpr int64_t kSlack = int64_t{1} << 20;
  const Permutation& p = plan.permutation;
  if (p.elements() < (int64_t{1} << 31) - kSlack && p.bytes() < (int64_t{1} << 32) - kSlack) {
    return LaunchIndexed<kBytes, uint32_t>(plan, in, out, stream);
  }
  return LaunchIndexed<kBytes, uint64_t>(plan, in, out, stream);
}

}  // namespace jax_transpose::cuda
