// Second phase of a packed tile: shared memory to global memory in output order. Addresses are
// sums of two table entries: one of the output sub-run, one of the element within it.
#pragma once

#include "cuda/packed_index.h"
#include "cuda/packed_vectors.h"

namespace jax_transpose::cuda {

template <int kBytes, bool kVectors>
struct PackedStore {
  static constexpr int kPerVector = 16 / kBytes;

  JAX_TRANSPOSE_PORTABLE static void FillTables(const PackedGrid& grid, const PackedBlock& block,
                                                uint8_t* shared, uint32_t thread,
                                                uint32_t threads) {
    for (uint32_t run = thread; run < grid.out_runs; run += threads) {
      DigitSums<1> sums{{run}, {0}, {0}, {0}, {0}};
      if (block.full) {
        SumDigits<false>(grid.out, grid.out_digits, &sums);
      } else {
        SumDigits<true>(grid.out, grid.out_digits, &sums);
      }
      // The shared offset twice: one addition then serves two elements.
      Store(shared + grid.run_table + 8 * run, uint2{sums.shared[0] * 0x10001u, sums.global[0]});
      if (!grid.partial) continue;
      int valid = static_cast<int>(grid.out_run);
      if (!block.full) {
        const int left = static_cast<int>(block.valid[1] * grid.split[1].under - sums.along[0]);
        valid = left < valid ? left : valid;
        if (valid < 0 || sums.across[0] >= block.valid[0]) valid = 0;
      }
      Store(shared + grid.length_table + 4 * run, valid);
    }
    // A vector that begins before its sub-run, or ends after, reads entries that no store uses.
    constexpr uint32_t kMargin = kVectors ? 0 : kPerVector;
    for (uint32_t i = thread; i < grid.out_run + 2 * kMargin; i += threads) {
      const uint32_t element = i - kMargin;  // wraps before the sub-run
      DigitSums<1> sums{{element}, {0}, {0}, {0}, {0}};
      if (element < grid.out_run) SumDigits<false>(grid.element, grid.element_digits, &sums);
      Store(shared + grid.element_table + 2 * i, static_cast<uint16_t>(sums.shared[0]));
    }
  }

  struct Item {
    uint32_t run;
    int vector;
    uint2 entry;  // shared offset twice, global offset

    JAX_TRANSPOSE_PORTABLE Item(const PackedGrid& grid, const uint8_t* shared, uint32_t item) {
      run = Quotient(item, grid.out_vectors_reciprocal);
      vector = static_cast<int>(item - run * grid.out_vectors);
      entry = Load<uint2>(shared + grid.run_table + 8 * run);
    }
    JAX_TRANSPOSE_PORTABLE int Valid(const PackedGrid& grid, const uint8_t* shared) const {
      return Load<int>(shared + grid.length_table + 4 * run);
    }
  };

  // Offsets of kPerVector elements, two a word.
  static constexpr int kPairs = (kPerVector + 1) / 2;
  JAX_TRANSPOSE_PORTABLE static void LoadOffsets(const uint8_t* table, uint32_t (&pair)[kPairs]) {
    if constexpr (kPerVector >= 8) {
#pragma unroll
      for (int i = 0; i < kPairs; i += 4) {
        const uint4 v = Load<uint4>(table + 4 * i);
        pair[i] = v.x;
        pair[i + 1] = v.y;
        pair[i + 2] = v.z;
        pair[i + 3] = v.w;
      }
    } else if constexpr (kPerVector == 4) {
      const uint2 v = Load<uint2>(table);
      pair[0] = v.x;
      pair[1] = v.y;
    } else if constexpr (kPerVector == 2) {
      pair[0] = Load<uint32_t>(table);
    } else {
      pair[0] = Load<uint16_t>(table);
    }
  }

  template <class T>
  JAX_TRANSPOSE_PORTABLE static void LoadTile(const uint8_t* shared, uint32_t base,
                                              const uint32_t (&pair)[kPairs],
                                              T (&value)[kPerVector]) {
#pragma unroll
    for (int i = 0; i < kPerVector; i += 2) {
      const uint32_t both = base + pair[i / 2];
      value[i] = Load<T>(shared + (both & 0xffff));
      if (i + 1 < kPerVector) value[i + 1] = Load<T>(shared + (both >> 16));
    }
  }

  template <bool kPartial>
  JAX_TRANSPOSE_PORTABLE static void StoreVector(uint8_t* target, const uint4& value, int valid) {
    if (!kPartial || valid >= kPerVector) {
      Store(target, value);
    } else {
      StoreElements<kBytes>(target, value, 0, valid);
    }
  }

  template <bool kPartial>
  JAX_TRANSPOSE_PORTABLE static void Elements(const PackedGrid& grid, const PackedBlock& block,
                                              const uint8_t* shared, uint32_t number) {
    const Item item(grid, shared, number);
    int at = item.vector * kPerVector;
    int begin = 0, end = kPerVector;
    uint32_t pair[kPairs];
    if constexpr (kVectors) {
      LoadOffsets(shared + grid.element_table + 2 * at, pair);
      if (kPartial) end = item.Valid(grid, shared) - at;
    } else {
      const auto base = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(block.out) / kBytes);
      at -= static_cast<int>((item.entry.y + base) % kPerVector);
      const int top = kPartial ? item.Valid(grid, shared) : static_cast<int>(grid.out_run);
      begin = at < 0 ? -at : 0;
      end = top - at;
      if (begin >= end) return;
      const uint8_t* table = shared + grid.element_table + 2 * (at + kPerVector);
#pragma unroll
      for (int i = 0; i < kPerVector; i += 2) {
        pair[i / 2] = Load<uint16_t>(table + 2 * i);
        if (i + 1 < kPerVector) {
          pair[i / 2] |= static_cast<uint32_t>(Load<uint16_t>(table + 2 * i + 2)) << 16;
        }
      }
    }
    Element<kBytes> value[kPerVector];
    LoadTile(shared, item.entry.x, pair, value);
    uint8_t* target = block.out + (static_cast<int64_t>(item.entry.y) + at) * kBytes;
    if ((kVectors && !kPartial) || (begin == 0 && end >= kPerVector)) {
      Store(target, PackVector<kBytes>(value));
    } else {
#pragma unroll
      for (int i = 0; i < kPerVector; ++i) {
        if (i >= begin && i < end) Store(target + i * kBytes, value[i]);
      }
    }
  }

  // Each word holds one row of 4 / kBytes columns.
  template <bool kPartial>
  JAX_TRANSPOSE_PORTABLE static void Words(const PackedGrid& grid, const PackedBlock& block,
                                           const uint8_t* shared, uint32_t number) {
    const Item item(grid, shared, number);
    const int at = item.vector * kPerVector;
    uint32_t pair[kPairs], word[kPerVector];
    LoadOffsets(shared + grid.element_table + 2 * at, pair);
    LoadTile(shared, item.entry.x, pair, word);
    uint4 column[4 / kBytes];
    SplitWords<kBytes>(word, column);
    const int valid = kPartial ? item.Valid(grid, shared) - at : kPerVector;
#pragma unroll
    for (int c = 0; c < 4 / kBytes; ++c) {
      const uint32_t global = item.entry.y + at + c * grid.column_stride;
      StoreVector<kPartial>(block.out + static_cast<size_t>(global) * kBytes, column[c], valid);
    }
  }

  template <bool kPartial>
  JAX_TRANSPOSE_PORTABLE static void Apart3(const PackedGrid& grid, const PackedBlock& block,
                                            const uint8_t* shared, uint32_t number) {
    const Item item(grid, shared, number);
    const int at = item.vector * 16;
    const uint8_t* pixels =
        shared + (item.entry.x & 0xffff) + Load<uint16_t>(shared + grid.element_table + 2 * at);
    uint32_t word[12];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const uint4 v = Load<uint4>(pixels + 16 * i);
      word[4 * i] = v.x;
      word[4 * i + 1] = v.y;
      word[4 * i + 2] = v.z;
      word[4 * i + 3] = v.w;
    }
    uint4 channel[3];
    TakeApart3(word, channel);
    const int valid = kPartial ? item.Valid(grid, shared) - at : 16;
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      const uint32_t global = item.entry.y + at + c * grid.column_stride;
      StoreVector<kPartial>(block.out + global, channel[c], valid);
    }
  }

  template <bool kPartial>
  JAX_TRANSPOSE_PORTABLE static void Interleaved3(const PackedGrid& grid, const PackedBlock& block,
                                                  const uint8_t* shared, uint32_t number) {
    const Item item(grid, shared, number);
    const auto vector = static_cast<uint32_t>(item.vector);
    const uint32_t group = MultiplyHigh(vector, 0x55555556u);  // a third: 16 pixels
    const uint32_t phase = vector - 3 * group;
    const uint8_t* row = shared + (item.entry.x & 0xffff) + 16 * group + 4 * phase;
    const uint4 value = Interleave3(row, grid.element[0].shared, phase);
    const int valid = kPartial ? item.Valid(grid, shared) - 16 * item.vector : 16;
    StoreVector<kPartial>(block.out + (item.entry.y + 16 * vector), value, valid);
  }
};

}  // namespace jax_transpose::cuda
