// The shared-memory tile of the vector kernels. Rows are stored as 16-byte chunks whose position is
// XORed with the row group, so that 16-byte writes along a row and word reads down a column both
// reach all 32 banks. A group is the 16 / kBytes rows whose elements fill one 16-byte output
// vector.
#pragma once

#include "cuda/index.cuh"

namespace jax_transpose::cuda {

template <int kBytes, int kRows, int kCols>
struct SwizzledTile {
  static constexpr int kGroup = 16 / kBytes;      // rows a group, elements a chunk
  static constexpr int kChunks = kCols / kGroup;  // chunks a row
  static constexpr int kRowGroups = kRows / kGroup;
  static constexpr int kWord = kBytes < 4 ? 4 : kBytes;  // bytes read at once down a column
  static constexpr int kWordsPerChunk = 16 / kWord;
  static constexpr int kColsPerWord = kWord / kBytes;
  static constexpr int kThreads = SwizzledThreads(kBytes, kRows, kCols);
  static constexpr int kVectors = kRows * kChunks;  // 16-byte vectors a tile
  static constexpr int kLoads = kVectors / kThreads;
  static constexpr int kColumnSteps = kRowGroups * kChunks * kWordsPerChunk / kThreads;
  static_assert(kChunks >= 8 && kRowGroups >= 8, "the swizzle needs eight chunks and groups");
  static_assert(kLoads * kThreads == kVectors && kColumnSteps >= 1, "uneven split");

  uint4 chunk[kVectors];

  __device__ __forceinline__ static int Position(int row, int k) {
    return row * kChunks + (k ^ ((row / kGroup) & 7));
  }

  // Writes the transposed tile; every output run is a multiple of 16 bytes on a 16-byte boundary.
  template <class Index>
  __device__ __forceinline__ void Store(uint8_t* out, Index out_col_stride, Index rows,
                                        Index cols) const;
};

// Exchanges rows and bytes of the words in `v`: result `c` holds column c of every row.
template <int kBytes>
struct SubTranspose;

template <>
struct SubTranspose<1> {
  __device__ __forceinline__ static void Run(const uint32_t (&v)[16], uint4 (&result)[4]) {
    uint32_t column[4][4];
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const uint32_t* a = &v[4 * q];
      const uint32_t low01 = __byte_perm(a[0], a[1], 0x5140),
                     low23 = __byte_perm(a[2], a[3], 0x5140);
      const uint32_t high01 = __byte_perm(a[0], a[1], 0x7362);
      const uint32_t high23 = __byte_perm(a[2], a[3], 0x7362);
      column[0][q] = __byte_perm(low01, low23, 0x5410);
      column[1][q] = __byte_perm(low01, low23, 0x7632);
      column[2][q] = __byte_perm(high01, high23, 0x5410);
      column[3][q] = __byte_perm(high01, high23, 0x7632);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      result[c] = make_uint4(column[c][0], column[c][1], column[c][2], column[c][3]);
    }
  }
};

template <>
struct SubTranspose<2> {
  __device__ __forceinline__ static void Run(const uint32_t (&v)[8], uint4 (&result)[2]) {
    result[0] = make_uint4(__byte_perm(v[0], v[1], 0x5410), __byte_perm(v[2], v[3], 0x5410),
                           __byte_perm(v[4], v[5], 0x5410), __byte_perm(v[6], v[7], 0x5410));
    result[1] = make_uint4(__byte_perm(v[0], v[1], 0x7632), __byte_perm(v[2], v[3], 0x7632),
                           __byte_perm(v[4], v[5], 0x7632), __byte_perm(v[6], v[7], 0x7632));
  }
};

template <>
struct SubTranspose<4> {
  __device__ __forceinline__ static void Run(const uint32_t (&v)[4], uint4 (&result)[1]) {
    result[0] = make_uint4(v[0], v[1], v[2], v[3]);
  }
};

template <>
struct SubTranspose<8> {
  __device__ __forceinline__ static void Run(const uint2 (&v)[2], uint4 (&result)[1]) {
    result[0] = make_uint4(v[0].x, v[0].y, v[1].x, v[1].y);
  }
};

template <>
struct SubTranspose<16> {
  __device__ __forceinline__ static void Run(const uint4 (&v)[1], uint4 (&result)[1]) {
    result[0] = v[0];
  }
};

template <int kBytes, int kRows, int kCols>
template <class Index>
__device__ __forceinline__ void SwizzledTile<kBytes, kRows, kCols>::Store(uint8_t* out,
                                                                          Index out_col_stride,
                                                                          Index rows,
                                                                          Index cols) const {
  using Word = Element<kWord>;
  const Word* words = reinterpret_cast<const Word*>(chunk);
#pragma unroll
  for (int step = 0; step < kColumnSteps; ++step) {
    // Lanes: eight row groups (one 128-byte output line), then the words of a chunk.
    int item = threadIdx.x + step * kThreads;
    const int group_low = item % 8;
    item /= 8;
    const int word = item % kWordsPerChunk;
    item /= kWordsPerChunk;
    const int group = group_low + item % (kRowGroups / 8) * 8;
    const int k = item / (kRowGroups / 8);

    Word v[kGroup];
#pragma unroll
    for (int r = 0; r < kGroup; ++r) {
      v[r] = words[Position(group * kGroup + r, k) * kWordsPerChunk + word];
    }
    uint4 column[kColsPerWord];
    SubTranspose<kBytes>::Run(v, column);
    const Index row = group * kGroup;
    const Index col = k * kGroup + word * kColsPerWord;
    if (row < rows && col < cols) {
#pragma unroll
      for (int c = 0; c < kColsPerWord; ++c) {
        *reinterpret_cast<uint4*>(out + ((col + c) * out_col_stride + row) * kBytes) = column[c];
      }
    }
  }
}

}  // namespace jax_transpose::cuda
