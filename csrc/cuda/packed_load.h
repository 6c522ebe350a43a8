// First phase of a packed tile: global memory to shared memory in input order.
#pragma once

#include "cuda/packed_index.h"
#include "cuda/packed_vectors.h"

namespace jax_transpose::cuda {

// kVectors: runs are whole 16-byte vectors. Else the aligned 16-byte vectors that hold a run are
// read, the bytes around it dropped.
template <int kBytes, bool kVectors>
struct PackedLoad {
  static constexpr int kPerVector = 16 / kBytes;

  // Sub-run and vector of `kCount` items `stride` apart; items past the end repeat the last.
  template <bool kPartial, int kCount>
  struct Items {
    DigitSums<kCount> sums;
    int vector[kCount];

    JAX_TRANSPOSE_PORTABLE Items(const PackedGrid& grid, uint32_t first, uint32_t stride) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        uint32_t item = first + k * stride;
        if (item >= grid.in_items) item = grid.in_items - 1;
        sums.number[k] = Quotient(item, grid.in_vectors_reciprocal);
        vector[k] = static_cast<int>(item - sums.number[k] * grid.in_vectors);
        sums.global[k] = sums.shared[k] = sums.across[k] = sums.along[k] = 0;
      }
      SumDigits<kPartial>(grid.in, grid.in_digits, &sums);
    }
    // Elements from the sub-run's start on that exist.
    JAX_TRANSPOSE_PORTABLE int Valid(const PackedGrid& grid, const PackedBlock& block,
                                     int k) const {
      if (sums.across[k] >= block.valid[1]) return 0;
      return static_cast<int>(block.valid[0] * grid.split[0].under - sums.along[k]);
    }
  };

  // Whole vectors by asynchronous copies: no registers hold data, so all loads are in flight.
  template <bool kPartial>
  JAX_TRANSPOSE_PORTABLE static void CopyTile(const PackedGrid& grid, const PackedBlock& block,
                                              uint8_t* shared, uint32_t thread, uint32_t threads) {
    constexpr int kAtOnce = 4;
    for (uint32_t first = thread; first < grid.in_items; first += kAtOnce * threads) {
      const Items<kPartial, kAtOnce> items(grid, first, threads);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (first + k * threads >= grid.in_items) continue;
        const int at = items.vector[k] * kPerVector;
        uint8_t* target = shared + items.sums.shared[k] + items.vector[k] * 16;
        const uint8_t* source = block.in + static_cast<size_t>(items.sums.global[k] + at) * kBytes;
        const int valid = kPartial ? items.Valid(grid, block, k) - at : kPerVector;
        if (valid >= kPerVector) {
          CopyAsync(target, source);
        } else {
#pragma unroll
          for (int i = 0; i < kPerVector; ++i) {
            if (i < valid) {
              Store(target + i * kBytes, LoadGlobal<Element<kBytes>>(source + i * kBytes));
            }
          }
        }
      }
    }
  }

  template <int kCount>
  struct Held {
    uint4 value[kCount];
    int shared[kCount];
    int begin[kCount], end[kCount];  // elements of the value that belong to the tile
  };

  template <bool kPartial, int kCount>
  JAX_TRANSPOSE_PORTABLE static void Read(const PackedGrid& grid, const PackedBlock& block,
                                          const uint8_t* array, uint32_t first, uint32_t threads,
                                          Held<kCount>* held) {
    const Items<kPartial, kCount> items(grid, first, threads);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const bool active = first + k * threads < grid.in_items;
      const uint32_t global = items.sums.global[k];
      uint4 value{0, 0, 0, 0};
      if constexpr (kVectors) {
        const int at = items.vector[k] * kPerVector;
        int valid = kPartial ? items.Valid(grid, block, k) - at : kPerVector;
        if (!active) valid = 0;
        const uint8_t* source = block.in + static_cast<size_t>(global + at) * kBytes;
        if (valid >= kPerVector) {
          value = LoadGlobal<uint4>(source);
        } else if (kPartial && valid > 0) {
          value = LoadElements<kBytes>(source, 0, valid);
        }
        held->shared[k] = static_cast<int>(items.sums.shared[k]) + items.vector[k] * 16;
        held->begin[k] = 0;
        held->end[k] = active ? kPerVector : 0;
      } else {
        const auto base = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(block.in) / kBytes);
        const int skew = static_cast<int>((global + base) % kPerVector);
        const int at = items.vector[k] * kPerVector - skew;
        int top = static_cast<int>(grid.in_run);
        if (kPartial) {
          const int valid = items.Valid(grid, block, k);
          if (valid < top) top = valid;
        }
        if (!active) top = 0;
        const int begin = at < 0 ? -at : 0;
        const int end = top - at < kPerVector ? top - at : kPerVector;
        held->begin[k] = begin;
        held->end[k] = end;
        held->shared[k] = static_cast<int>(items.sums.shared[k]) + at * kBytes;
        if (begin < end) {
          const uint8_t* source = block.in + (static_cast<int64_t>(global) + at) * kBytes;
          // Only the array's ends can lie within a vector: the bytes around them are not ours.
          if (source >= array && source + 16 <= array + grid.bytes) {
            value = LoadGlobal<uint4>(source);
          } else {
            value = LoadElements<kBytes>(source, begin, end);
          }
        }
      }
      held->value[k] = value;
    }
  }

  template <int kCount>
  JAX_TRANSPOSE_PORTABLE static void Keep(uint8_t* shared, const Held<kCount>& held) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      if constexpr (kVectors) {
        if (held.end[k] > 0) Store(shared + held.shared[k], held.value[k]);
      } else {
#pragma unroll
        for (int i = 0; i < kPerVector; ++i) {
          if (i >= held.begin[k] && i < held.end[k]) {
            Store(shared + (held.shared[k] + i * kBytes), VectorElement<kBytes>(held.value[k], i));
          }
        }
      }
    }
  }
};

}  // namespace jax_transpose::cuda
