// Matrices whose rows start at any alignment. Global memory is read in aligned 8-byte units, whole
// rows of a tile by one warp, and written in aligned words; bytes are shifted into place in
// registers between shared memory and the store. Scalar accesses would cost two to eight times the
// instructions, and instructions, not DRAM traffic, are what bounds an unaligned transpose.
#pragma once

#include "cuda/index.cuh"

namespace jax_transpose::cuda {

template <int kBytes>
struct ShiftedTile {
  static constexpr int kWindow = ShiftedWindow(kBytes);  // bytes read of a row
  static constexpr int kUnits = kWindow / 8;
  static constexpr int kRowsPerLoad = 32 / kUnits;
  static constexpr int kWord = kBytes < 4 ? 4 : kBytes;
  static constexpr int kPerWord = kWord / kBytes;  // elements a word
  static constexpr int kPitch = kWindow / kWord;   // words a row
  static constexpr int kRows = ShiftedRows(kBytes);
  static constexpr int kCols = ShiftedCols(kBytes);
  static constexpr int kGroups = kCols / kPerWord;  // words of columns
  // Tiles of sub-word elements overlap by one word of rows: shifted output words then need no
  // partial stores where two tiles meet.
  static constexpr int kHalo = ShiftedSpareRows(kBytes);
  static constexpr int kStep = kRows - kHalo;
  static constexpr int kWarps = 8;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kPasses = kRows / kPerWord / 32;  // warp-wide words down a column
  static constexpr int kGroupsPerWarp = (kGroups + kWarps - 1) / kWarps;
  // Shared-memory reads in flight for a warp: about eight words.
  static constexpr int kUnroll = kPasses * kPerWord >= 8 ? 1 : 8 / (kPasses * kPerWord);

  // Word w of a row in row group q (the kPerWord rows of one output word) lies at w ^ Swizzle(q):
  // 8-byte units along a row and words down a column both reach every bank.
  __device__ __forceinline__ static int Swizzle(int q) {
    return kWord == 8 ? q % kUnits : (q % 16) * 2 + q / 16 % 2;
  }
};

__device__ __forceinline__ void TransposeWords(uint32_t (&w)[4]) {
  const uint32_t low01 = __byte_perm(w[0], w[1], 0x5140), low23 = __byte_perm(w[2], w[3], 0x5140);
  const uint32_t high01 = __byte_perm(w[0], w[1], 0x7362), high23 = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(low01, low23, 0x5410);
  w[1] = __byte_perm(low01, low23, 0x7632);
  w[2] = __byte_perm(high01, high23, 0x5410);
  w[3] = __byte_perm(high01, high23, 0x7632);
}

__device__ __forceinline__ void TransposeWords(uint32_t (&w)[2]) {
  const uint32_t low = __byte_perm(w[0], w[1], 0x5410);
  w[1] = __byte_perm(w[0], w[1], 0x7632);
  w[0] = low;
}

__device__ __forceinline__ void TransposeWords(uint32_t (&)[1]) {}

// Reads the tile's rows: aligned 8-byte units from the one that holds the row's first byte on.
template <class Tile>
__device__ __forceinline__ void LoadShifted(uint2* tile, const uint8_t* in, int64_t row0,
                                            int64_t rows, int64_t pitch_bytes, int col_bytes) {
  constexpr int kRowsAtOnce = 8;
  constexpr int kStride = Tile::kWarps * Tile::kRowsPerLoad;
  constexpr int kRounds = Tile::kRows / kStride;
  static_assert(kRounds * kStride == Tile::kRows, "whole rounds of rows");
  constexpr int kBatch = kRounds < kRowsAtOnce ? kRounds : kRowsAtOnce;
  const int lane = threadIdx.x % Tile::kUnits, first = threadIdx.x / Tile::kUnits;
  const uint8_t* source = in + (row0 + first) * pitch_bytes;
#pragma unroll 1
  for (int round = 0; round < kRounds; round += kBatch) {
    uint2 value[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t row = row0 + first + (round + i) * kStride;
      const auto address = reinterpret_cast<uintptr_t>(source);
      const uint2* unit = reinterpret_cast<const uint2*>(address & ~uintptr_t{7}) + lane;
      if (row >= 0 && row < rows && reinterpret_cast<uintptr_t>(unit) < address + col_bytes) {
        value[i] = __ldg(unit);
      }
      source += pitch_bytes * kStride;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int r = first + (round + i) * kStride;
      const int swizzle = Tile::Swizzle(r / Tile::kPerWord);
      if constexpr (Tile::kWord == 8) {
        tile[r * Tile::kUnits + (lane ^ swizzle)] = value[i];
      } else {
        const bool swap = swizzle % 2 != 0;
        tile[r * Tile::kUnits + (lane ^ (swizzle / 2))] =
            swap ? make_uint2(value[i].y, value[i].x) : value[i];
      }
    }
  }
}

// 8-byte elements need no shifting.
template <class Tile>
__device__ __forceinline__ void StoreWide(const uint2* tile, uint8_t* out, int64_t row0,
                                          int64_t rows, int cols, int64_t pitch_bytes) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int c = warp; c < cols; c += Tile::kWarps) {
    uint2* target = reinterpret_cast<uint2*>(out + c * pitch_bytes);
#pragma unroll
    for (int h = 0; h < Tile::kPasses; ++h) {
      const int r = lane + 32 * h;
      if (row0 + r < rows) target[r] = tile[r * Tile::kUnits + (c ^ Tile::Swizzle(r))];
    }
  }
}

// Elements up to a word: a lane owns the kPerWord rows of one output word; columns come out of a
// word-sized transpose, and each output row's words are then shifted by that row's misalignment.
// kInterior: every row of the tile exists, so every word is stored whole.
template <int kBytes, class Tile, bool kInterior>
__device__ __forceinline__ void StoreWords(const uint32_t* tile, const uint8_t* in, uint8_t* out,
                                           int64_t row0, int64_t rows, int cols,
                                           int64_t in_pitch_bytes, int64_t out_pitch_bytes) {
  constexpr int kPer = Tile::kPerWord, kPasses = Tile::kPasses;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int swizzle = Tile::Swizzle(lane);
  // Rows 32 groups apart start at the same byte of an 8-byte unit, and rows of neighbouring groups
  // at the same byte of a word: byte shifts are the same for all lanes, word shifts for all passes.
  int shift[kPer], first[kPer];
#pragma unroll
  for (int k = 0; k < kPer; ++k) {
    const int start = static_cast<int>(
        (reinterpret_cast<uintptr_t>(in) + (row0 + lane * kPer + k) * in_pitch_bytes) % 8);
    shift[k] = start % 4 * 8;
    first[k] = start / 4;
  }
  auto word_at = [&](int h, int k, int w) {
    return tile[((32 * h + lane) * kPer + k) * Tile::kPitch + ((w + first[k]) ^ swizzle)];
  };

  int group = warp * Tile::kGroupsPerWarp;
  const int end = min(group + Tile::kGroupsPerWarp, (cols + kPer - 1) / kPer);
  uint32_t current[kPasses][kPer];
  if constexpr (kPer > 1) {
#pragma unroll
    for (int h = 0; h < kPasses; ++h) {
#pragma unroll
      for (int k = 0; k < kPer; ++k) current[h][k] = word_at(h, k, group);
    }
  }
  uint8_t* target_row = out + group * kPer * out_pitch_bytes;
#pragma unroll Tile::kUnroll
  for (; group < end; ++group) {
    uint32_t word[kPasses][kPer];
#pragma unroll
    for (int h = 0; h < kPasses; ++h) {
#pragma unroll
      for (int k = 0; k < kPer; ++k) {
        if constexpr (kPer == 1) {
          word[h][k] = word_at(h, k, group);
        } else {
          const uint32_t next = word_at(h, k, group + 1);
          word[h][k] = __funnelshift_r(current[h][k], next, shift[k]);
          current[h][k] = next;
        }
      }
      TransposeWords(word[h]);
    }
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const auto address = reinterpret_cast<uintptr_t>(target_row);
      target_row += out_pitch_bytes;
      if (kPer > 1 && group * kPer + i >= cols) break;
      const int offset = static_cast<int>(address % 4);
      uint32_t* target = reinterpret_cast<uint32_t*>(address - offset) + lane;
#pragma unroll
      for (int h = 0; h < kPasses; ++h) {
        uint32_t value = word[h][i];
        if constexpr (kPer > 1) {
          uint32_t previous = __shfl_up_sync(~0u, word[h][i], 1);
          if (h > 0) {
            const uint32_t last = __shfl_sync(~0u, word[h - 1][i], 31);
            if (lane == 0) previous = last;
          }
          value = __funnelshift_l(previous, word[h][i], 8 * offset);
          if (h == 0 && lane == 0) continue;  // the tile before has written this word
        }
        if constexpr (kInterior) {
          target[32 * h] = value;
        } else {
          const int64_t row = row0 + (32 * h + lane) * kPer - offset / kBytes;
#pragma unroll
          for (int e = 0; e < kPer; ++e) {
            if (row + e >= 0 && row + e < rows) {
              reinterpret_cast<Element<kBytes>*>(target + 32 * h)[e] =
                  static_cast<Element<kBytes>>(value >> (8 * kBytes * e));
            }
          }
        }
      }
    }
  }
}

template <int kBytes, class Index>
__global__ void __launch_bounds__(256, sizeof(Index) == 4 ? 5 : 4)
    ShiftedKernel(const uint8_t* __restrict__ in, uint8_t* __restrict__ out, TileGrid<Index> grid,
                  uint64_t first_block) {
  using Tile = ShiftedTile<kBytes>;
  __shared__ uint2 tile[Tile::kRows * Tile::kUnits];

  const TileOrigin<Index> origin =
      LocateTile(grid, BlockNumber<Index>(first_block), Tile::kStep, Tile::kCols);
  const int64_t row0 = static_cast<int64_t>(origin.row) - Tile::kHalo;
  const int64_t rows = grid.rows;
  const Index left = grid.cols - origin.col;
  const int cols = left < Tile::kCols ? static_cast<int>(left) : Tile::kCols;
  const int64_t in_pitch = static_cast<int64_t>(grid.in_row_stride) * kBytes;
  const int64_t out_pitch = static_cast<int64_t>(grid.out_col_stride) * kBytes;
  in += static_cast<int64_t>(origin.in + origin.col) * kBytes;
  out += (static_cast<int64_t>(origin.out) +
          static_cast<int64_t>(origin.col) * grid.out_col_stride + row0) *
         kBytes;

  LoadShifted<Tile>(tile, in, row0, rows, in_pitch, cols * kBytes);
  __syncthreads();
  if constexpr (Tile::kWord == 8) {
    StoreWide<Tile>(tile, out, row0, rows, cols, out_pitch);
  } else {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(tile);
    if (row0 >= 0 && row0 + Tile::kRows <= rows) {
      StoreWords<kBytes, Tile, true>(words, in, out, row0, rows, cols, in_pitch, out_pitch);
    } else {
      StoreWords<kBytes, Tile, false>(words, in, out, row0, rows, cols, in_pitch, out_pitch);
    }
  }
}

}  // namespace jax_transpose::cuda
