// Two blocks of one array change places, each as the other's transpose. Included by isa_kernels.cc
// only.
#pragma once

#include "cpu/kernel_table.h"
#include "cpu/tiles.h"

namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA {

// The transpose of a tile's part, into a buffer whose rows are lines.
template <int kWidth>
JT_INLINE void TurnTile(const char* in, ptrdiff_t pitch, char* turned, int64_t rows, int64_t cols) {
  constexpr int tile = kLine / kWidth;
  if (rows == tile && cols == tile) {
    Tile<kWidth, false, (kWidth <= 4)>(in, pitch, turned, kLine);
  } else {
    Edge<kWidth>(in, pitch, turned, kLine, rows, cols);
  }
}

JT_INLINE void PutTile(const char* turned, char* out, ptrdiff_t pitch, int64_t rows,
                       int64_t bytes) {
  if (bytes == kLine) {
    for (int64_t r = 0; r < rows; ++r) CopyLine<false>(out + r * pitch, turned + r * kLine);
  } else {
    for (int64_t r = 0; r < rows; ++r) CopyShort(out + r * pitch, turned + r * kLine, bytes);
  }
}

// Bytes along a row to the tile that is asked for: that of the next block.
constexpr int kSwapAhead = 256;

template <int kWidth>
void SwapTiles(const BlockPair& p) {
  constexpr int tile = kLine / kWidth;
  alignas(64) char from_a[tile * kLine], from_b[tile * kLine];
  const bool diagonal = p.a == p.b;
  for (int64_t r = 0; r < p.rows; r += tile) {
    for (int64_t c = diagonal ? r : 0; c < p.cols; c += tile) {
      char* a = p.a + r * p.pitch + c * kWidth;
      char* b = p.b + c * p.pitch + r * kWidth;
      const int64_t rows = p.rows - r < tile ? p.rows - r : tile;
      const int64_t cols = p.cols - c < tile ? p.cols - c : tile;
      Prefetch(a + kSwapAhead, p.pitch, rows);
      Prefetch(b + tile * p.pitch, p.pitch, tile);
      TurnTile<kWidth>(a, p.pitch, from_a, rows, cols);
      if (a != b) {
        TurnTile<kWidth>(b, p.pitch, from_b, cols, rows);
        PutTile(from_b, a, p.pitch, rows, cols * kWidth);
      }
      PutTile(from_a, b, p.pitch, cols, rows * kWidth);
    }
  }
}

JT_INLINE void SwapBytes(char* a, char* b, int64_t bytes) {
  int64_t at = 0;
  for (; at + 16 * kLanes <= bytes; at += 16 * kLanes) {
    const auto x = Load<1, kLanes>(a + at), y = Load<1, kLanes>(b + at);
    Store<1, kLanes>(a + at, y);
    Store<1, kLanes>(b + at, x);
  }
  for (; at + 16 <= bytes; at += 16) {
    const auto x = Load<1, 1>(a + at), y = Load<1, 1>(b + at);
    Store<1, 1>(a + at, y);
    Store<1, 1>(b + at, x);
  }
  for (; at < bytes; ++at) {
    const char x = a[at];
    a[at] = b[at];
    b[at] = x;
  }
}

// Elements are runs of `run` bytes.
void SwapRuns(const BlockPair& p) {
  const bool diagonal = p.a == p.b;
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t c = diagonal ? r + 1 : 0; c < p.cols; ++c) {
      SwapBytes(p.a + r * p.pitch + c * p.run, p.b + c * p.pitch + r * p.run, p.run);
    }
  }
}

}  // namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA
