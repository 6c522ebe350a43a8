// Kept minor runs: no shared memory. Threads walk a tile's runs in output order.
#pragma once

#include "cuda/packed_index.h"

namespace jax_transpose::cuda {

template <int kBytes>
struct RowTile {
  static constexpr int kCount = RowsInFlight(kBytes);

  template <bool kPartial>
  JAX_TRANSPOSE_PORTABLE static void Move(const PackedGrid& grid, const PackedBlock& block,
                                          uint32_t thread, uint32_t threads) {
    for (uint32_t first = thread; first < grid.in_items; first += kCount * threads) {
      DigitSums<kCount> sums;
      bool active[kCount];
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        uint32_t item = first + k * threads;
        active[k] = item < grid.in_items;
        if (!active[k]) item = grid.in_items - 1;
        const uint32_t run = Quotient(item, grid.in_vectors_reciprocal);
        const uint32_t element = item - run * grid.in_vectors;
        sums.number[k] = run;
        sums.global[k] = sums.shared[k] = element;
        sums.across[k] = sums.along[k] = kPartial ? element * grid.column_stride : 0;
      }
      SumDigits<kPartial>(grid.in, grid.in_digits, &sums);
      Element<kBytes> value[kCount];
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        if (kPartial) {
          active[k] =
              active[k] && sums.along[k] < block.valid[0] && sums.across[k] < block.valid[1];
        }
        if (active[k]) {
          value[k] =
              LoadGlobal<Element<kBytes>>(block.in + static_cast<size_t>(sums.global[k]) * kBytes);
        }
      }
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        if (active[k]) Store(block.out + static_cast<size_t>(sums.shared[k]) * kBytes, value[k]);
      }
    }
  }

  JAX_TRANSPOSE_PORTABLE static void Run(const PackedGrid& grid, const PackedBlock& block,
                                         uint32_t thread, uint32_t threads) {
    if (block.full) {
      Move<false>(grid, block, thread, threads);
    } else {
      Move<true>(grid, block, thread, threads);
    }
  }
};

}  // namespace jax_transpose::cuda
