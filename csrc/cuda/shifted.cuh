// Matrices whose rows start at any alignment. Global memory is read in aligned 16-byte units, whole
// rows of a tile by one warp, asynchronously into shared memory, and written in aligned words;
// bytes are shifted into place in registers between shared memory and the store. Scalar accesses
// would cost two to eight times the instructions, and instructions, not DRAM traffic, are what
// bounds an unaligned transpose.
#pragma once

#include "cuda/index.cuh"

namespace jax_transpose::cuda {

template <int kBytes>
struct ShiftedTile {
  static constexpr int kWindow = kShiftedWindow;  // bytes read of a row
  static constexpr int kUnits = kWindow / 16;
  static constexpr int kWord = kBytes < 4 ? 4 : kBytes;
  static constexpr int kPerWord = kWord / kBytes;  // elements a word
  static constexpr int kPitch = kWindow / kWord;   // words a row
  static constexpr int kRows = kShiftedRows;
  static constexpr int kThreads = kShiftedThreads;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kPasses = kRows / kPerWord / 32;  // warp-wide words down a column
  static constexpr int kGroupsPerWarp = (kPitch + kWarps - 1) / kWarps;  // words of columns
  // Shared-memory reads in flight for a warp: about eight words.
  static constexpr int kUnroll = kPasses * kPerWord >= 8 ? 1 : 8 / (kPasses * kPerWord);

  // A row begins in the first or second unit of its place in shared memory, as it does in a sector
  // of global memory, and its last unit may come round to the front: a copy of a sector whose
  // halves lie in two sectors of shared memory is two requests. Word w of a place in row group q
  // (the kPerWord rows of one output word) lies at w ^ Swizzle(q). Of rows that start at different
  // words of a unit two meet in a bank, of rows that all start at the same one four; both hide
  // behind the memory system.
  static constexpr int kUnitWords = 16 / kWord;
  __device__ __forceinline__ static int Swizzle(int q) { return q / kUnitWords % 8 * kUnitWords; }

  // Byte position of a lane's first word, from the sector on that holds the tile's first row.
  __device__ __forceinline__ static int SectorPosition(const uint8_t* place, int lane) {
    const auto row_start = reinterpret_cast<uintptr_t>(place) - lane * kWord;
    return static_cast<int>(row_start % 32) / kWord * kWord + lane * kWord;
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

// Copies the tile's rows: aligned 16-byte units from the one that holds the row's first byte on.
// kInterior: every row exists, goes on for a whole window, and is not the first one of an array
// that starts within a unit. The array lies from `begin` to `end`.
template <class Tile, bool kInterior>
__device__ __forceinline__ void LoadShifted(uint4* tile, const uint8_t* begin, const uint8_t* end,
                                            const uint8_t* in, int64_t row0, int64_t rows,
                                            int64_t pitch_bytes, int col_bytes) {
  constexpr int kStride = Tile::kThreads / Tile::kUnits;
  constexpr int kRounds = Tile::kRows / kStride;
  static_assert(kRounds * kStride == Tile::kRows, "whole rounds of rows");
  const int lane = threadIdx.x % Tile::kUnits, first = threadIdx.x / Tile::kUnits;
  const uint8_t* start = in + (row0 + first) * pitch_bytes;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int r = first + round * kStride;
    const int skew = static_cast<int>(reinterpret_cast<uintptr_t>(start) % 16);
    const int half = static_cast<int>(reinterpret_cast<uintptr_t>(start) % 32) / 16;
    const int swizzle = Tile::Swizzle(r / Tile::kPerWord) / Tile::kUnitWords;
    uint4* target = tile + r * Tile::kUnits + (((lane + half) & (Tile::kUnits - 1)) ^ swizzle);
    const uint8_t* source = start - skew + lane * 16;
    if constexpr (kInterior) {
      CopyAsync(target, source);
    } else {
      const int needed = col_bytes + skew - lane * 16;
      if (row0 + r >= 0 && row0 + r < rows && needed > 0) {
        if (source >= begin && source + 16 <= end) {
          CopyAsync(target, source, min(needed, 16));
        } else {  // what lies around the array is not ours to read
#pragma unroll 1
          for (int b = source < begin ? skew : 0; b < min(needed, 16); ++b) {
            reinterpret_cast<uint8_t*>(target)[b] = source[b];
          }
        }
      }
    }
    start += pitch_bytes * kStride;
  }
}

// Which sectors of an output row are a tile's. Where tiles overlap, the first is the tile before's,
// and the last, if it goes on after the tile, the next one's.
template <class Tile>
struct OwnSectors {
  int begin, end;  // of the words in the first and in the last pass

  __device__ __forceinline__ explicit OwnSectors(bool overlap)
      : begin(overlap ? 32 : 0), end(overlap ? 32 * Tile::kWord : 32 * Tile::kWord + 32) {}
  // Whether the lane's word of pass h is in one; `position` as of Tile::SectorPosition.
  __device__ __forceinline__ bool Hold(int position, int h) const {
    return (h > 0 || position >= begin) && (h < Tile::kPasses - 1 || position < end);
  }
};

// 8-byte elements need no shifting.
template <class Tile>
__device__ __forceinline__ void StoreWide(const uint2* tile, const uint8_t* in, uint8_t* out,
                                          bool overlap, int64_t row0, int64_t rows, int cols,
                                          int64_t in_pitch_bytes, int64_t out_pitch_bytes) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first = (reinterpret_cast<uintptr_t>(in) + (row0 + lane) * in_pitch_bytes) % 32 / 8;
  const OwnSectors<Tile> own(overlap);
  uint8_t* target = out + warp * out_pitch_bytes + lane * 8;
  for (int c = warp; c < cols; c += Tile::kWarps) {
    const int position = Tile::SectorPosition(target, lane);
#pragma unroll
    for (int h = 0; h < Tile::kPasses; ++h) {
      const int r = lane + 32 * h;
      if (own.Hold(position, h) && row0 + r >= 0 && row0 + r < rows) {
        reinterpret_cast<uint2*>(target)[32 * h] =
            tile[r * Tile::kPitch + (((c + first) & (Tile::kPitch - 1)) ^ Tile::Swizzle(r))];
      }
    }
    target += Tile::kWarps * out_pitch_bytes;
  }
}

// Elements up to a word: a lane owns the kPerWord rows of one output word; columns come out of a
// word-sized transpose, and each output row's words are then shifted by that row's misalignment.
// kWholeRows, kWholeCols: every row, every column of the tile exists.
template <int kBytes, class Tile, bool kWholeRows, bool kWholeCols>
__device__ __forceinline__ void StoreWords(const uint8_t* tile, const uint8_t* in, uint8_t* out,
                                           bool overlap, int64_t row0, int64_t rows, int cols,
                                           int64_t in_pitch_bytes, int64_t out_pitch_bytes) {
  constexpr int kPer = Tile::kPerWord, kPasses = Tile::kPasses;
  const int lane = threadIdx.x % 32;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // tells the compiler that it is uniform
  // Rows 32 groups apart start at the same byte of a sector, and rows of neighboring groups at the
  // same byte of a word: byte shifts are the same for all lanes, word shifts for all passes.
  int shift[kPer], first[kPer];
#pragma unroll
  for (int k = 0; k < kPer; ++k) {
    const int start = static_cast<int>(
        (reinterpret_cast<uintptr_t>(in) + (row0 + lane * kPer + k) * in_pitch_bytes) % 32);
    shift[k] = start % 4 * 8;
    first[k] = start / 4 * 4;
  }
  // In bytes, so that one instruction wraps, swizzles and adds the lane's rows.
  const int lane_rows = lane * kPer * Tile::kWindow + Tile::Swizzle(lane) * 4;
  auto word_at = [&](int h, int k, int w) {
    const int at = ((4 * w + first[k]) & (Tile::kWindow - 1)) ^ lane_rows;
    return *reinterpret_cast<const uint32_t*>(tile + at + (32 * h * kPer + k) * Tile::kWindow);
  };

  const OwnSectors<Tile> own(overlap);
  int group = warp * Tile::kGroupsPerWarp;
  const int groups = (cols + kPer - 1) / kPer;
  const int end = min(group + Tile::kGroupsPerWarp, groups);
  uint32_t current[kPasses][kPer];
  if constexpr (kPer > 1) {
#pragma unroll
    for (int h = 0; h < kPasses; ++h) {
#pragma unroll
      for (int k = 0; k < kPer; ++k) current[h][k] = word_at(h, k, group);
    }
  }
  uint8_t* target = out + group * kPer * out_pitch_bytes + lane * 4;
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
      const int offset = static_cast<int>(reinterpret_cast<uintptr_t>(target) % 4);
      const int position = Tile::SectorPosition(target, lane);
      uint8_t* aligned = target - offset;
      target += out_pitch_bytes;
      const bool exists = kPer == 1 || kWholeCols || group * kPer + i < cols;
#pragma unroll
      for (int h = 0; h < kPasses; ++h) {
        uint32_t value = word[h][i];
        const bool ours = exists && own.Hold(position, h);
        if constexpr (kPer > 1) {
          uint32_t previous = __shfl_up_sync(~0u, word[h][i], 1);
          if (h > 0) {
            const uint32_t last = __shfl_sync(~0u, word[h - 1][i], 31);
            if (lane == 0) previous = last;
          }
          value = __funnelshift_l(previous, word[h][i], 8 * offset);
        }
        uint8_t* place = aligned + 128 * h;
        const int64_t row = row0 + (32 * h + lane) * kPer - offset / kBytes;
        if (kWholeRows || (row >= 0 && row + kPer <= rows)) {
          if (ours) *reinterpret_cast<uint32_t*>(place) = value;
        } else {
#pragma unroll
          for (int e = 0; e < kPer; ++e) {
            if (ours && row + e >= 0 && row + e < rows) {
              reinterpret_cast<Element<kBytes>*>(place)[e] =
                  static_cast<Element<kBytes>>(value >> (8 * kBytes * e));
            }
          }
        }
      }
    }
  }
}

template <int kBytes, class Index>
__global__ void __launch_bounds__(kShiftedThreads, sizeof(Index) == 4 ? 4 : 2)
    ShiftedKernel(const uint8_t* __restrict__ in, uint8_t* __restrict__ out, TileGrid<Index> grid,
                  uint64_t first_block) {
  using Tile = ShiftedTile<kBytes>;
  __shared__ uint4 tile[Tile::kRows * Tile::kUnits];

  const TileOrigin<Index> origin = LocateTile(grid, BlockNumber<Index>(first_block),
                                              Tile::kRows - grid.row_overlap, grid.tile_cols);
  const int64_t row0 = static_cast<int64_t>(origin.row) - grid.row_overlap;
  const bool overlap = grid.row_overlap != 0;
  const int64_t rows = grid.rows;
  const Index left = grid.cols - origin.col;
  const int cols = static_cast<int>(min(left, static_cast<Index>(grid.tile_cols)));
  const int64_t in_pitch = static_cast<int64_t>(grid.in_row_stride) * kBytes;
  const int64_t out_pitch = static_cast<int64_t>(grid.out_col_stride) * kBytes;
  const uint8_t *begin = in, *end = in + grid.in_bytes;
  in += static_cast<int64_t>(origin.in + origin.col) * kBytes;
  out += (static_cast<int64_t>(origin.out) +
          static_cast<int64_t>(origin.col) * grid.out_col_stride + row0) *
         kBytes;

  const bool whole_rows = row0 >= 0 && row0 + Tile::kRows <= rows;
  const bool whole = whole_rows && left >= Tile::kWindow / kBytes;
  if (whole) {
    LoadShifted<Tile, true>(tile, begin, end, in, row0, rows, in_pitch, cols * kBytes);
  } else {
    LoadShifted<Tile, false>(tile, begin, end, in, row0, rows, in_pitch, cols * kBytes);
  }
  WaitForCopies();
  __syncthreads();
  if constexpr (Tile::kWord == 8) {
    StoreWide<Tile>(reinterpret_cast<const uint2*>(tile), in, out, overlap, row0, rows, cols,
                    in_pitch, out_pitch);
  } else {
    const auto* bytes = reinterpret_cast<const uint8_t*>(tile);
    if (whole) {
      StoreWords<kBytes, Tile, true, true>(bytes, in, out, overlap, row0, rows, cols, in_pitch,
                                           out_pitch);
    } else if (whole_rows) {
      StoreWords<kBytes, Tile, true, false>(bytes, in, out, overlap, row0, rows, cols, in_pitch,
                                            out_pitch);
    } else {
      StoreWords<kBytes, Tile, false, false>(bytes, in, out, overlap, row0, rows, cols, in_pitch,
                                             out_pitch);
    }
  }
}

}  // namespace jax_transpose::cuda
