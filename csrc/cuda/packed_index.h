// From a block number to a tile, and from a number within the tile to offsets.
#pragma once

#include "cuda/portable.h"
#include "plan/packed_plan.h"

namespace jax_transpose::cuda {

struct PackedBlock {
  const uint8_t* in;  // the tile's first element in either array
  uint8_t* out;
  uint32_t valid[2];  // elements of the split dimensions that exist
  bool full;          // all of them do
};

JAX_TRANSPOSE_PORTABLE PackedBlock LocateBlock(const PackedGrid& grid, const uint8_t* in,
                                               uint8_t* out, uint32_t block) {
  PackedBlock result{in, out, {grid.split[0].tile, grid.split[1].tile}, true};
  uint32_t number = block;
#pragma unroll 2
  for (int i = 0; i < grid.grid_digits; ++i) {
    const GridDigit& digit = grid.grid[i];
    const uint32_t quotient = (MultiplyHigh(block, digit.by.multiplier) + block) >> digit.by.shift;
    const uint32_t coordinate = number - quotient * digit.extent;
    number = quotient;
    result.in += coordinate * digit.in;
    result.out += coordinate * digit.out;
    if (!grid.partial) continue;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      if ((digit.splits >> side & 1) && coordinate == grid.split[side].last) {
        result.valid[side] = grid.split[side].rest;
        result.full = false;
      }
    }
  }
  return result;
}

JAX_TRANSPOSE_PORTABLE uint32_t Quotient(uint32_t number, uint32_t reciprocal) {
  return reciprocal == 0 ? number : MultiplyHigh(number, reciprocal);
}

// What `kCount` numbers add up to, digit by digit.
template <int kCount>
struct DigitSums {
  uint32_t number[kCount];
  uint32_t global[kCount], shared[kCount];
  uint32_t across[kCount], along[kCount];
};

template <bool kPartial, int kCount>
JAX_TRANSPOSE_PORTABLE void SumDigits(const TileDigit* digits, int digit_count,
                                      DigitSums<kCount>* sums) {
  for (int i = 0; i < digit_count; ++i) {
    const TileDigit& digit = digits[i];
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const uint32_t quotient = Quotient(sums->number[k], digit.reciprocal);
      sums->global[k] += quotient * digit.global;
      sums->shared[k] += quotient * digit.shared;
      if (kPartial) {
        sums->across[k] += quotient * digit.across;
        sums->along[k] += quotient * digit.along;
      }
    }
  }
}

}  // namespace jax_transpose::cuda
