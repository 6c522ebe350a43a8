// Packed elements of 4 or 2 bits. Aligned rows go through the swizzled tile of the asynchronous
// kernel with 32 or 64 elements a chunk; for the rest each thread gathers whole output words, so
// that no two threads write one byte.
#pragma once

#include <cuda_pipeline.h>

#include "cuda/index.cuh"
#include "plan/bit_blocks.h"
#include "plan/sub_byte_plan.h"

namespace jax_transpose::cuda {

template <int kBits>
struct SubByteTile {
  static constexpr int kRows = kSubByteRows;
  static constexpr int kCols = SubByteCols(kBits);
  static constexpr int kRowStep = SubByteShiftedRows(kBits);
  static constexpr int kColStep = SubByteShiftedCols(kBits);
  static constexpr int kThreads = 256;
  static constexpr int kChunks = 8;                   // 16-byte chunks a row
  static constexpr int kChunkElements = 128 / kBits;  // columns a chunk
  static constexpr int kWordElements = 32 / kBits;    // columns a word, rows an output word
  static constexpr int kGroup = 32;                   // rows that one thread turns round
  static constexpr int kGroupWords = kGroup / kWordElements;
  static constexpr int kLoads = kRows * kChunks / kThreads;
  static_assert(kRows / kGroup * kChunks * 4 == kThreads, "one column of words a thread");

  // Words of eight groups at one chunk, and the four words of a chunk, lie in different banks.
  __device__ __forceinline__ static int Position(int row, int k) {
    return row * kChunks + (k ^ (row / kGroup));
  }
};

// What one thread stores of a column: the rows of a group.
template <int kWords>
struct alignas(4 * kWords) PackedRun {
  uint32_t word[kWords];
};

// Both sides' extents and strides are multiples of 16 bytes.
template <int kBits, class Index>
__global__ void __launch_bounds__(SubByteTile<kBits>::kThreads)
    SubByteKernel(const uint8_t* __restrict__ in, uint8_t* __restrict__ out, TileGrid<Index> grid,
                  uint64_t first_block) {
  using Tile = SubByteTile<kBits>;
  constexpr int kPerByte = 8 / kBits;
  __shared__ uint4 tile[Tile::kRows * Tile::kChunks];

  const TileOrigin<Index> origin =
      LocateTile(grid, BlockNumber<Index>(first_block), Tile::kRows, Tile::kCols);
  const Index in_pitch = grid.in_row_stride / kPerByte, out_pitch = grid.out_col_stride / kPerByte;
  in += origin.in / kPerByte + origin.row * in_pitch + origin.col / kPerByte;
  out += origin.out / kPerByte + origin.col * out_pitch + origin.row / kPerByte;
  const Index rows = grid.rows - origin.row, cols = grid.cols - origin.col;

#pragma unroll
  for (int i = 0; i < Tile::kLoads; ++i) {
    const int vector = threadIdx.x + i * Tile::kThreads;
    const Index row = vector / Tile::kChunks, k = vector % Tile::kChunks;
    if (row < rows && k * Tile::kChunkElements < cols) {
      __pipeline_memcpy_async(&tile[Tile::Position(row, k)], in + row * in_pitch + k * 16, 16);
    }
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();

  // Lanes: eight groups of rows (one run of the output), then the words of a chunk.
  const int group = threadIdx.x % 8, word = threadIdx.x / 8 % 4, k = threadIdx.x / 32;
  const Index row = group * Tile::kGroup;
  const Index col = k * Tile::kChunkElements + word * Tile::kWordElements;
  if (row >= rows || col >= cols) return;
  const uint32_t* words = reinterpret_cast<const uint32_t*>(tile);
  PackedRun<Tile::kGroupWords> column[Tile::kWordElements];
#pragma unroll
  for (int q = 0; q < Tile::kGroupWords; ++q) {
    uint32_t block[Tile::kWordElements][1];
#pragma unroll
    for (int r = 0; r < Tile::kWordElements; ++r) {
      block[r][0] = words[Tile::Position(row + q * Tile::kWordElements + r, k) * 4 + word];
    }
    TransposeBlocks<kBits>(block);
#pragma unroll
    for (int c = 0; c < Tile::kWordElements; ++c) column[c].word[q] = block[c][0];
  }
#pragma unroll
  for (int c = 0; c < Tile::kWordElements; ++c) {
    *reinterpret_cast<PackedRun<Tile::kGroupWords>*>(out + (col + c) * out_pitch + row / kPerByte) =
        column[c];
  }
}

// The output's dimensions, minor first; strides in elements.
template <class Index>
struct SubByteGrid {
  Index elements;
  int rank;
  Divider<Index> extent[kMaxRank];
  Index in_stride[kMaxRank];
};

template <class Index>
__device__ __forceinline__ Index LocateElement(const SubByteGrid<Index>& grid, Index i,
                                               Index* minor) {
  Index rest = grid.extent[0].DivMod(i, minor);
  Index offset = *minor * grid.in_stride[0];
  for (int d = 1; d < grid.rank; ++d) {
    Index coordinate;
    rest = grid.extent[d].DivMod(rest, &coordinate);
    offset += coordinate * grid.in_stride[d];
  }
  return offset;
}

// Writes word `unit` of the output, element by element; bits after the last element become zero.
template <int kBits, int kUnroll, class Index>
__device__ __forceinline__ void GatherWord(const uint8_t* in, uint8_t* out,
                                           const SubByteGrid<Index>& grid, Index unit) {
  constexpr int kPerByte = 8 / kBits, kPerWord = 32 / kBits;
  const Index first = unit * kPerWord;
  if (first >= grid.elements) return;
  const Index left = grid.elements - first;
  const int count = left < kPerWord ? static_cast<int>(left) : kPerWord;

  Index minor, offset = LocateElement(grid, first, &minor);
  uint32_t value = 0;
#pragma unroll kUnroll
  for (int e = 0; e < kPerWord; ++e) {
    if (e >= count) break;
    const uint32_t byte = in[offset / kPerByte];
    const uint32_t element = (byte >> (offset % kPerByte * kBits)) & ((1u << kBits) - 1);
    value |= element << (e * kBits);
    offset += grid.in_stride[0];
    if (++minor == grid.extent[0].divisor && e + 1 < count) {
      offset = LocateElement(grid, static_cast<Index>(first + e + 1), &minor);
    }
  }
  uint8_t* target = out + unit * 4;
  if (count == kPerWord && reinterpret_cast<uintptr_t>(out) % 4 == 0) {
    *reinterpret_cast<uint32_t*>(target) = value;
    return;
  }
  for (int b = 0; b * kPerByte < count; ++b) target[b] = static_cast<uint8_t>(value >> (8 * b));
}

// Any rank and any strides.
template <int kBits, class Index>
__global__ void __launch_bounds__(256)
    SubByteGatherKernel(const uint8_t* __restrict__ in, uint8_t* __restrict__ out,
                        SubByteGrid<Index> grid, uint64_t first_block) {
  const Index unit = BlockNumber<Index>(first_block) * blockDim.x + threadIdx.x;
  GatherWord<kBits, 32 / kBits>(in, out, grid, unit);
}

// The word of which the array's end leaves less than four bytes, as far as it exists.
template <int kBits, class Index>
__device__ __forceinline__ uint32_t LastWord(const uint32_t* in, Index elements) {
  constexpr int kPerByte = 8 / kBits, kPerWord = 32 / kBits;
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(in + elements / kPerWord);
  const int count = (static_cast<int>(elements % kPerWord) + kPerByte - 1) / kPerByte;
  uint32_t value = 0;
#pragma unroll 1
  for (int b = 0; b < count; ++b) value |= static_cast<uint32_t>(bytes[b]) << (8 * b);
  return value;
}

template <class Index>
struct ShiftedGrid {
  TileGrid<Index> tiles;
  SubByteGrid<Index> output;
};

// Rows and columns that start anywhere: a shift brings each row's words into place on the way into
// the tile, and each column's on the way out. A word that two columns share belongs to neither: the
// last row of tiles gathers it, so columns must be no shorter than a word.
template <int kBits, class Index>
__global__ void __launch_bounds__(SubByteTile<kBits>::kThreads)
    SubByteShiftedKernel(const uint32_t* __restrict__ in, uint32_t* __restrict__ out,
                         ShiftedGrid<Index> grid, uint64_t first_block) {
  using Tile = SubByteTile<kBits>;
  constexpr int kPerWord = Tile::kWordElements;
  constexpr int kRowWords = Tile::kCols / kPerWord, kColWords = Tile::kRows / kPerWord;
  constexpr int kRowStep = Tile::kRowStep, kColStep = Tile::kColStep;
  static_assert(kRowWords == 32, "a warp moves a row");
  __shared__ uint4 tile[Tile::kRows * Tile::kChunks];
  uint32_t* words = reinterpret_cast<uint32_t*>(tile);

  const TileOrigin<Index> origin =
      LocateTile(grid.tiles, BlockNumber<Index>(first_block), kRowStep, kColStep);
  const Index rows = grid.tiles.rows - origin.row, cols = grid.tiles.cols - origin.col;
  const int used_cols = cols < kColStep ? static_cast<int>(cols) : kColStep;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  const Index whole_words = grid.output.elements / kPerWord;
  constexpr int kBatch = 8;  // loads in flight, a row of each warp
  for (int base = warp; base < Tile::kRows && base < rows; base += 8 * kBatch) {
    uint32_t value[kBatch];
    int skip[kBatch];
    uint32_t cut = 0;  // loads of the word that the array's end cuts off, as bits
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const Index row = base + 8 * i;
      const Index first = origin.in + (origin.row + row) * grid.tiles.in_row_stride + origin.col;
      skip[i] = static_cast<int>(first % kPerWord);
      const Index word = first / kPerWord + lane;
      const bool needed = row < rows && lane * kPerWord < skip[i] + used_cols;
      value[i] = needed && word < whole_words ? __ldg(in + word) : 0;
      if (needed && word >= whole_words) cut |= 1u << i;
    }
    if (cut != 0) {
      const uint32_t last = LastWord<kBits>(in, grid.output.elements);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (cut >> i & 1) value[i] = last;
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const uint32_t next = __shfl_down_sync(0xFFFFFFFFu, value[i], 1);
      words[Tile::Position(base + 8 * i, lane / 4) * 4 + lane % 4] =
          __funnelshift_r(value[i], next, skip[i] * kBits);
    }
  }
  __syncthreads();

  const int group = threadIdx.x % 8, word = threadIdx.x / 8;
  PackedRun<Tile::kGroupWords> column[kPerWord];
#pragma unroll
  for (int q = 0; q < Tile::kGroupWords; ++q) {
    uint32_t block[kPerWord][1];
#pragma unroll
    for (int r = 0; r < kPerWord; ++r) {
      const int row = group * Tile::kGroup + q * kPerWord + r;
      block[r][0] = words[Tile::Position(row, word / 4) * 4 + word % 4];
    }
    TransposeBlocks<kBits>(block);
#pragma unroll
    for (int c = 0; c < kPerWord; ++c) column[c].word[q] = block[c][0];
  }
  __syncthreads();
  // The same memory, now a run of kColWords words for each column.
  auto* runs = reinterpret_cast<PackedRun<Tile::kGroupWords>*>(tile);
#pragma unroll
  for (int c = 0; c < kPerWord; ++c) runs[(word * kPerWord + c) * 8 + group] = column[c];
  __syncthreads();

  constexpr int kPerPass = Tile::kThreads / kColWords;  // columns written at once
  const int j = threadIdx.x % kColWords;
  for (int col = threadIdx.x / kColWords; col < used_cols; col += kPerPass) {
    const Index first = origin.out + (origin.col + col) * grid.tiles.out_col_stride + origin.row;
    const int ahead = static_cast<int>((kPerWord - first % kPerWord) % kPerWord);
    if (j == kColWords - 1 || static_cast<Index>(ahead + (j + 1) * kPerWord) > rows) continue;
    const uint32_t* run = words + col * kColWords + j;
    out[(first + ahead) / kPerWord + j] = __funnelshift_r(run[0], run[1], ahead * kBits);
  }

  if (rows > kRowStep) return;
  for (int col = threadIdx.x; col < used_cols; col += Tile::kThreads) {
    const Index end = origin.out + (origin.col + col) * grid.tiles.out_col_stride + grid.tiles.rows;
    if (end % kPerWord == 0) continue;
    GatherWord<kBits, 1>(reinterpret_cast<const uint8_t*>(in), reinterpret_cast<uint8_t*>(out),
                         grid.output, static_cast<Index>(end / kPerWord));
  }
}

}  // namespace jax_transpose::cuda
