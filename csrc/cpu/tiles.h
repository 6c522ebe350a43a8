// Tiles of 64 by 64 bytes, transposed in registers. Included by isa_kernels.cc only.
#pragma once

#include "cpu/kernel_table.h"
#include "cpu/small.h"
#include "cpu/vectors.h"

namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA {

constexpr int kLine = 64;  // bytes of a cache line, and of a tile's side
// How many tiles down the rows are finished before moving along them: the output's rows then grow
// by neighboring lines in short time, which memory takes twice as fast as single ones.
constexpr int kBand = 4;

// Where the data comes from and goes to.
enum class Mode {
  kCached,     // small arrays
  kAhead,      // large input; output still in the cache
  kStreaming,  // large input and output; whole lines bypass the cache
};

// Bytes from `at` to the next start of a line, and since the last one.
JT_INLINE int64_t ToLine(const char* at) {
  return static_cast<int64_t>(-reinterpret_cast<uintptr_t>(at) % kLine);
}
JT_INLINE int64_t BeyondLine(const char* at) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(at) % kLine);
}

// move(in, out) for every matrix.
template <class Move>
JT_INLINE void ForEachMatrix(const Planes& p, Move move) {
  for (int64_t k = 0; k < p.starts; ++k) {
    const char* in = p.in + p.start[k].in;
    char* out = p.out + p.start[k].out;
    for (int64_t i = 0; i < p.count; ++i, in += p.step.in, out += p.step.out) move(in, out);
  }
}

// Asks for the lines of `rows` rows. Into the second-level cache: rows of a power-of-two pitch
// crowd the first.
JT_INLINE void Prefetch(const char* at, ptrdiff_t pitch, int64_t rows) {
#pragma GCC unroll 8
  for (int64_t i = 0; i < rows; ++i) __builtin_prefetch(at + i * pitch, 0, 2);
}

// kCount * side rows of 16 bytes become `side` rows of 16 * kCount bytes, side = 16 / kWidth. Lane
// k holds rows k * side and on, so that the lanes' results lie next to each other in the output.
template <int kWidth, int kCount, bool kStreaming>
JT_INLINE void Block(const char* in, ptrdiff_t in_pitch, char* out, ptrdiff_t out_pitch) {
  constexpr int side = 16 / kWidth;
  Vector<kWidth, kCount> x[side];
#pragma GCC unroll 16
  for (int i = 0; i < side; ++i)
    x[i] = LoadLanes<kWidth, kCount>(in + i * in_pitch, side * in_pitch);
  TransposeLanes<kWidth, kCount>(x);
#pragma GCC unroll 16
  for (int i = 0; i < side; ++i) {
    if constexpr (kStreaming) {
      StoreStreaming<kWidth, kCount>(out + i * out_pitch, x[i]);
    } else {
      Store<kWidth, kCount>(out + i * out_pitch, x[i]);
    }
  }
}

template <bool kStreaming>
JT_INLINE void CopyLine(char* out, const char* in) {
#pragma GCC unroll 4
  for (int i = 0; i < kLine; i += 16 * kLanes) {
    const auto v = Load<1, kLanes>(in + i);
    if constexpr (kStreaming) {
      StoreStreaming<1, kLanes>(out + i, v);
    } else {
      Store<1, kLanes>(out + i, v);
    }
  }
}

// One whole tile. `kGather` first copies its lines to a local buffer: each line is then touched
// once, where rows of a power-of-two pitch would evict each other between the blocks' visits.
// Likewise a line of a streamed output must be written at once, which takes a buffer where the
// vectors are shorter.
template <int kWidth, bool kStreaming, bool kGather>
JT_INLINE void Tile(const char* in, ptrdiff_t in_pitch, char* out, ptrdiff_t out_pitch) {
  constexpr int side = 16 / kWidth, tile = kLine / kWidth;
  constexpr bool scatter = kStreaming && kLanes < 4;
  alignas(64) char gathered[kGather ? tile * kLine : 1];
  alignas(64) char scattered[scatter ? tile * kLine : 1];
  if constexpr (kGather) {
#pragma GCC unroll 8
    for (int r = 0; r < tile; ++r) CopyLine<false>(gathered + r * kLine, in + r * in_pitch);
    in = gathered;
    in_pitch = kLine;
  }
  char* target = scatter ? scattered : out;
  const ptrdiff_t target_pitch = scatter ? kLine : out_pitch;
  for (int c = 0; c < 4; ++c) {
    for (int r = 0; r < 4; r += kLanes) {
      Block<kWidth, kLanes, kStreaming && !scatter>(in + c * 16 + r * side * in_pitch, in_pitch,
                                                    target + c * side * target_pitch + r * 16,
                                                    target_pitch);
    }
  }
  if constexpr (scatter) {
    for (int c = 0; c < tile; ++c) CopyLine<true>(out + c * out_pitch, scattered + c * kLine);
  }
}

// At most a tile, with a side too short for a block: through local tiles, where what lies beyond
// the sides is moved too but never copied out.
template <int kWidth>
void PartialTile(const char* in, ptrdiff_t in_pitch, char* out, ptrdiff_t out_pitch, int64_t rows,
                 int64_t cols) {
  constexpr int side = 16 / kWidth, tile = kLine / kWidth;
  if (rows * cols <= 16) {
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t r = 0; r < rows; ++r) {
        __builtin_memcpy(out + c * out_pitch + r * kWidth, in + r * in_pitch + c * kWidth, kWidth);
      }
    }
    return;
  }
  alignas(64) char from[tile * kLine], to[tile * kLine];
  for (int64_t r = 0; r < rows; ++r) CopyShort(from + r * kLine, in + r * in_pitch, cols * kWidth);
  for (int64_t c = 0; c < cols; c += side) {
    for (int64_t r = 0; r < rows; r += side) {
      Block<kWidth, 1, false>(from + r * kLine + c * kWidth, kLine, to + c * kLine + r * kWidth,
                              kLine);
    }
  }
  for (int64_t c = 0; c < cols; ++c) CopyShort(out + c * out_pitch, to + c * kLine, rows * kWidth);
}

// What is left beside whole tiles, in blocks; the last ones overlap their neighbors.
template <int kWidth>
JT_INLINE void Edge(const char* in, ptrdiff_t in_pitch, char* out, ptrdiff_t out_pitch,
                    int64_t rows, int64_t cols) {
  constexpr int side = 16 / kWidth, tile = kLine / kWidth;
  if (rows < side || cols < side) {
    for (int64_t r = 0; r < rows; r += tile) {
      for (int64_t c = 0; c < cols; c += tile) {
        PartialTile<kWidth>(in + r * in_pitch + c * kWidth, in_pitch,
                            out + c * out_pitch + r * kWidth, out_pitch,
                            rows - r < tile ? rows - r : tile, cols - c < tile ? cols - c : tile);
      }
    }
    return;
  }
  for (int64_t c = 0; c < cols; c += side) {
    if (c + side > cols) c = cols - side;
    const char* from = in + c * kWidth;
    char* to = out + c * out_pitch;
    int64_t r = 0;
    if constexpr (kLanes > 1) {
      for (; r + side * kLanes <= rows; r += side * kLanes) {
        Block<kWidth, kLanes, false>(from + r * in_pitch, in_pitch, to + r * kWidth, out_pitch);
      }
    }
    for (; r < rows; r += side) {
      if (r + side > rows) r = rows - side;
      Block<kWidth, 1, false>(from + r * in_pitch, in_pitch, to + r * kWidth, out_pitch);
    }
  }
}

template <int kWidth, Mode kMode>
JT_INLINE void Plane(const char* in, ptrdiff_t in_pitch, char* out, ptrdiff_t out_pitch,
                     int64_t rows, int64_t cols, ptrdiff_t ahead) {
  constexpr int side = 16 / kWidth, tile = kLine / kWidth;
  const int64_t tiled_rows = rows / tile * tile, tiled_cols = cols / tile * tile;
  if (tiled_rows == 0 || tiled_cols == 0) {
    if constexpr (kMode != Mode::kCached) {
      for (int64_t c = 0; c < cols; c += tile) {
        Prefetch(in + c * kWidth + ahead, in_pitch, rows);
      }
    }
    Edge<kWidth>(in, in_pitch, out, out_pitch, rows, cols);
    return;
  }
  constexpr int band = kMode == Mode::kCached ? tile : kBand * tile;
  for (int64_t r0 = 0; r0 < tiled_rows; r0 += band) {
    const int64_t end = r0 + band < tiled_rows ? r0 + band : tiled_rows;
    for (int64_t c = 0; c < tiled_cols; c += tile) {
      for (int64_t r = r0; r < end; r += tile) {
        const char* from = in + r * in_pitch + c * kWidth;
        if constexpr (kMode != Mode::kCached) Prefetch(from + ahead, in_pitch, tile);
        Tile<kWidth, kMode == Mode::kStreaming, kWidth <= (kMode == Mode::kCached ? 2 : 4)>(
            from, in_pitch, out + c * out_pitch + r * kWidth, out_pitch);
      }
    }
  }
  if (tiled_cols < cols) {
    const int64_t c = cols - tiled_cols < side ? cols - side : tiled_cols;
    Edge<kWidth>(in + c * kWidth, in_pitch, out + c * out_pitch, out_pitch, rows, cols - c);
  }
  if (tiled_rows < rows) {
    const int64_t r = rows - tiled_rows < side ? rows - side : tiled_rows;
    Edge<kWidth>(in + r * in_pitch, in_pitch, out + r * kWidth, out_pitch, rows - r, tiled_cols);
  }
}

// A batch of square matrices of a side known to the compiler, none longer than 8.
template <int kWidth, int kSide, Mode kMode>
void SquarePlanes(const Planes& p) {
  constexpr int side = 16 / kWidth;
  ForEachMatrix(p, [&](const char* in, char* out) {
    if constexpr (kMode != Mode::kCached) Prefetch(in + p.ahead, p.in_pitch, kSide);
    if constexpr (kSide >= side) {
#pragma GCC unroll 8
      for (int c = 0; c < kSide; c += side) {
        const int col = c + side > kSide ? kSide - side : c;
#pragma GCC unroll 8
        for (int r = 0; r < kSide; r += side) {
          const int row = r + side > kSide ? kSide - side : r;
          Block<kWidth, 1, false>(in + row * p.in_pitch + col * kWidth, p.in_pitch,
                                  out + col * p.out_pitch + row * kWidth, p.out_pitch);
        }
      }
    } else {
#pragma GCC unroll 8
      for (int c = 0; c < kSide; ++c) {
#pragma GCC unroll 8
        for (int r = 0; r < kSide; ++r) {
          __builtin_memcpy(out + c * p.out_pitch + r * kWidth, in + r * p.in_pitch + c * kWidth,
                           kWidth);
        }
      }
    }
  });
}

template <int kWidth, Mode kMode>
void TilePlanes(const Planes& p) {
  if constexpr (kMode != Mode::kStreaming) {
    const bool moved = SmallPlanes<kWidth>(
        p, [&](int64_t r) { return r * p.in_pitch; }, [&](int64_t c) { return c * p.out_pitch; },
        [&](const char* in) {
          if constexpr (kMode == Mode::kAhead) {
            Prefetch(in + p.ahead, kLine, (p.rows * p.in_pitch + kLine - 1) / kLine);
          }
        });
    if (moved) return;
  }
  if (p.rows == p.cols) {
    switch (p.rows) {
      case 2:
        return SquarePlanes<kWidth, 2, kMode>(p);
      case 3:
        return SquarePlanes<kWidth, 3, kMode>(p);
      case 4:
        return SquarePlanes<kWidth, 4, kMode>(p);
      case 5:
        return SquarePlanes<kWidth, 5, kMode>(p);
      case 6:
        return SquarePlanes<kWidth, 6, kMode>(p);
      case 7:
        return SquarePlanes<kWidth, 7, kMode>(p);
      case 8:
        return SquarePlanes<kWidth, 8, kMode>(p);
      default:
        break;
    }
  }
  ForEachMatrix(p, [&](const char* in, char* out) {
    Plane<kWidth, kMode>(in, p.in_pitch, out, p.out_pitch, p.rows, p.cols, p.ahead);
  });
}

}  // namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA
