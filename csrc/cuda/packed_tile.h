// One instance of the packed kernel: both phases of a tile, and which instances exist.
#pragma once

#include "cuda/packed_load.h"
#include "cuda/packed_store.h"

namespace jax_transpose::cuda {

template <int kBytes_, bool kInVectors_, bool kOutVectors_, bool kAsync, Gather kGather>
struct PackedTile {
  static constexpr int kBytes = kBytes_;
  static constexpr bool kInVectors = kInVectors_, kOutVectors = kOutVectors_, kCopies = kAsync;
  static constexpr Gather kReads = kGather;
  using In = PackedLoad<kBytes, kInVectors>;
  using Out = PackedStore<kBytes, kOutVectors>;
  // Vectors that a thread holds where they pass through registers.
  static constexpr int kHeld = kInVectors && kOutVectors ? 2 : 4;

  // After this and a barrier the tile lies in shared memory.
  JAX_TRANSPOSE_PORTABLE static void Load(const PackedGrid& grid, const PackedBlock& block,
                                          const uint8_t* array, uint8_t* shared, uint32_t thread,
                                          uint32_t threads) {
    // The tables are computed while the first loads fly.
    if constexpr (kAsync) {
      if (block.full) {
        In::template CopyTile<false>(grid, block, shared, thread, threads);
      } else {
        In::template CopyTile<true>(grid, block, shared, thread, threads);
      }
      Out::FillTables(grid, block, shared, thread, threads);
      WaitForCopies();
    } else {
      bool filled = false;
      for (uint32_t first = thread; !filled || first < grid.in_items; first += kHeld * threads) {
        typename In::template Held<kHeld> held;
        if (block.full) {
          In::template Read<false>(grid, block, array, first, threads, &held);
        } else {
          In::template Read<true>(grid, block, array, first, threads, &held);
        }
        if (!filled) Out::FillTables(grid, block, shared, thread, threads);
        filled = true;
        In::Keep(shared, held);
      }
    }
  }

  template <bool kPartial>
  JAX_TRANSPOSE_PORTABLE static void StoreItem(const PackedGrid& grid, const PackedBlock& block,
                                               const uint8_t* shared, uint32_t item) {
    if constexpr (kGather == Gather::kWords) {
      Out::template Words<kPartial>(grid, block, shared, item);
    } else if constexpr (kGather == Gather::kTakeApart3) {
      Out::template Apart3<kPartial>(grid, block, shared, item);
    } else if constexpr (kGather == Gather::kInterleave3) {
      Out::template Interleaved3<kPartial>(grid, block, shared, item);
    } else {
      Out::template Elements<kPartial>(grid, block, shared, item);
    }
  }

  JAX_TRANSPOSE_PORTABLE static void StoreTile(const PackedGrid& grid, const PackedBlock& block,
                                               const uint8_t* shared, uint32_t thread,
                                               uint32_t threads) {
    if (block.full) {
      constexpr int kUnroll = kBytes >= 4 ? 2 : 1;
#pragma unroll kUnroll
      for (uint32_t item = thread; item < grid.out_items; item += threads) {
        StoreItem<false>(grid, block, shared, item);
      }
    } else {
#pragma unroll 1
      for (uint32_t item = thread; item < grid.out_items; item += threads) {
        StoreItem<true>(grid, block, shared, item);
      }
    }
  }
};

// Calls `visit` with the instance that `launch` asks for, as a value of its type. Returns false
// where there is none.
template <int kBytes, class Visitor>
bool VisitPackedTile(const PackedLaunch& launch, Visitor visit) {
  constexpr auto kElements = Gather::kElements;
  if (launch.in_vectors && launch.out_vectors) {
    if constexpr (kBytes < 4) {
      if (launch.gather == Gather::kWords) {
        if (launch.async)
          return visit(PackedTile<kBytes, true, true, true, Gather::kWords>()), true;
        return visit(PackedTile<kBytes, true, true, false, Gather::kWords>()), true;
      }
    }
    if constexpr (kBytes == 1) {
      if (launch.gather == Gather::kTakeApart3) {
        return visit(PackedTile<1, true, true, true, Gather::kTakeApart3>()), true;
      }
      if (launch.gather == Gather::kInterleave3) {
        return visit(PackedTile<1, true, true, true, Gather::kInterleave3>()), true;
      }
    }
    if constexpr (kBytes < 16) {
      if (!launch.async) return visit(PackedTile<kBytes, true, true, false, kElements>()), true;
    }
    return visit(PackedTile<kBytes, true, true, true, kElements>()), true;
  }
  if constexpr (kBytes < 16) {
    if (launch.in_vectors) {
      return visit(PackedTile<kBytes, true, false, true, kElements>()), true;
    }
    if (launch.out_vectors) {
      return visit(PackedTile<kBytes, false, true, false, kElements>()), true;
    }
    return visit(PackedTile<kBytes, false, false, false, kElements>()), true;
  }
  return false;
}

}  // namespace jax_transpose::cuda
