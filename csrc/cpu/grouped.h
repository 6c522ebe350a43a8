// Matrices whose rows and columns each run over several dimensions: many short dimensions then make
// whole tiles. Included by isa_kernels.cc only.
#pragma once

#include "cpu/kernel_table.h"
#include "cpu/small.h"
#include "cpu/tiles.h"

namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA {

// Asks for the lines that `p` lists, in as many parts as there are moves.
class LinesAhead {
 public:
  JT_INLINE LinesAhead(const Planes& p, int64_t moves_a_matrix)
      : p_(p), share_(p.ahead_lines / (p.starts * p.count * moves_a_matrix) + 1) {}
  JT_INLINE void AskForNext() {
    const char* in = p_.in + p_.ahead;
    const int64_t left = p_.ahead_lines - asked_, end = asked_ + (share_ < left ? share_ : left);
    for (; asked_ < end; ++asked_) __builtin_prefetch(in + p_.ahead_at[asked_], 0, 2);
  }

 private:
  const Planes& p_;
  const int64_t share_;
  int64_t asked_ = 0;
};

// One whole tile: rows of the input lie at `row_at`, rows of the output at `col_at`.
template <int kWidth>
JT_INLINE void GroupedTile(const char* in, const ptrdiff_t* row_at, char* out,
                           const ptrdiff_t* col_at) {
  constexpr int side = 16 / kWidth, tile = kLine / kWidth;
  alignas(64) char from[tile * kLine];
#pragma GCC unroll 16
  for (int r = 0; r < tile; ++r) CopyLine<false>(from + r * kLine, in + row_at[r]);
  for (int c = 0; c < 4; ++c) {
    for (int r = 0; r < 4; r += kLanes) {
      Vector<kWidth, kLanes> x[side];
#pragma GCC unroll 16
      for (int i = 0; i < side; ++i) {
        x[i] = LoadLanes<kWidth, kLanes>(from + (r * side + i) * kLine + c * 16, side * kLine);
      }
      TransposeLanes<kWidth, kLanes>(x);
#pragma GCC unroll 16
      for (int i = 0; i < side; ++i) {
        Store<kWidth, kLanes>(out + col_at[c * side + i] + r * 16, x[i]);
      }
    }
  }
}

// Rows of a local tile, `kPitch` bytes each, become columns of another one.
template <int kWidth, int kPitch, int kCount>
JT_INLINE void GroupedBlocks(const char* from, int64_t rows, char* to, int64_t cols) {
  constexpr int side = 16 / kWidth;
  for (int64_t c = 0; c < cols; c += side) {
    for (int64_t r = 0; r < rows; r += side * kCount) {
      Block<kWidth, kCount, false>(from + r * kPitch + c * kWidth, kPitch,
                                   to + c * kLine + r * kWidth, kLine);
    }
  }
}

// Less than a tile, through local ones: what lies beyond the sides is moved too but never copied
// out. `kPitch` bytes hold a row; `whole`: that many may be read of each.
template <int kWidth, int kPitch>
JT_INLINE void GroupedPart(const char* in, const ptrdiff_t* row_at, int64_t rows, char* out,
                           const ptrdiff_t* col_at, int64_t cols, bool whole) {
  constexpr int tile = kLine / kWidth;
  alignas(64) char from[tile * kPitch], to[kPitch / kWidth * kLine];
  if (whole) {
    for (int64_t r = 0; r < rows; ++r) {
      if constexpr (kPitch == kLine) {
        CopyLine<false>(from + r * kPitch, in + row_at[r]);
      } else {
        Store<1, 1>(from + r * kPitch, Load<1, 1>(in + row_at[r]));
      }
    }
  } else {
    for (int64_t r = 0; r < rows; ++r) CopyShort(from + r * kPitch, in + row_at[r], cols * kWidth);
  }
  if (rows * kWidth <= 16) {
    GroupedBlocks<kWidth, kPitch, 1>(from, rows, to, cols);
  } else {
    GroupedBlocks<kWidth, kPitch, kLanes>(from, rows, to, cols);
  }
  if (rows == tile) {
    for (int64_t c = 0; c < cols; ++c) CopyLine<false>(out + col_at[c], to + c * kLine);
  } else {
    for (int64_t c = 0; c < cols; ++c) CopyShort(out + col_at[c], to + c * kLine, rows * kWidth);
  }
}

// The next tile's length at `*at` of a side of `length`. The last tile reaches back over the one
// before where the other side is a `whole` tile and more than a block is left.
template <int kWidth>
JT_INLINE int64_t TileAt(int64_t* at, int64_t length, bool whole) {
  constexpr int tile = kLine / kWidth;
  const int64_t left = length - *at;
  if (left >= tile) return tile;
  if (!whole || length < tile || left * kWidth <= 16) return left;
  *at = length - tile;
  return tile;
}

// A side of `kSide` elements, one element at a time along the other side.
template <int kWidth, int kSide>
JT_INLINE void ShortRows(const char* in, const ptrdiff_t* row_at, char* out,
                         const ptrdiff_t* col_at, int64_t cols) {
  const char* from[kSide];
  for (int r = 0; r < kSide; ++r) from[r] = in + row_at[r];
  for (int64_t c = 0; c < cols; ++c) {
    char* to = out + col_at[c];
#pragma GCC unroll 4
    for (int r = 0; r < kSide; ++r) __builtin_memcpy(to + r * kWidth, from[r] + c * kWidth, kWidth);
  }
}

template <int kWidth, int kSide>
JT_INLINE void ShortCols(const char* in, const ptrdiff_t* row_at, int64_t rows, char* out,
                         const ptrdiff_t* col_at) {
  char* to[kSide];
  for (int c = 0; c < kSide; ++c) to[c] = out + col_at[c];
  for (int64_t r = 0; r < rows; ++r) {
    const char* from = in + row_at[r];
#pragma GCC unroll 4
    for (int c = 0; c < kSide; ++c) __builtin_memcpy(to[c] + r * kWidth, from + c * kWidth, kWidth);
  }
}

// One element at a time: for sides so short that tiles would be mostly empty, and for elements
// that fill a lane.
template <int kWidth, bool kAhead>
void GroupedElements(const Planes& p, LinesAhead ahead) {
  ForEachMatrix(p, [&](const char* in, char* out) {
    if constexpr (kAhead) ahead.AskForNext();
    if (p.rows <= p.cols) {
      switch (p.rows) {
        case 1:
          return ShortRows<kWidth, 1>(in, p.row_at, out, p.col_at, p.cols);
        case 2:
          return ShortRows<kWidth, 2>(in, p.row_at, out, p.col_at, p.cols);
        case 3:
          return ShortRows<kWidth, 3>(in, p.row_at, out, p.col_at, p.cols);
        default:
          break;
      }
      for (int64_t r = 0; r < p.rows; ++r) {
        ShortRows<kWidth, 1>(in, p.row_at + r, out + r * kWidth, p.col_at, p.cols);
      }
      return;
    }
    switch (p.cols) {
      case 2:
        return ShortCols<kWidth, 2>(in, p.row_at, p.rows, out, p.col_at);
      case 3:
        return ShortCols<kWidth, 3>(in, p.row_at, p.rows, out, p.col_at);
      default:
        break;
    }
    for (int64_t c = 0; c < p.cols; ++c) {
      ShortCols<kWidth, 1>(in + c * kWidth, p.row_at, p.rows, out, p.col_at + c);
    }
  });
}

template <int kWidth, bool kAhead>
void GroupedPlanes(const Planes& p) {
  constexpr int short_side = 3;
  LinesAhead by_matrix(p, 1);
  const bool moved = SmallPlanes<kWidth>(
      p, [&](int64_t r) { return p.row_at[r]; }, [&](int64_t c) { return p.col_at[c]; },
      [&](const char*) {
        if constexpr (kAhead) by_matrix.AskForNext();
      });
  if (moved) return;
  if (kWidth == 16 || p.rows <= short_side || p.cols <= short_side) {
    return GroupedElements<kWidth, kAhead>(p, by_matrix);
  }
  constexpr int tile = kLine / kWidth;
  LinesAhead ahead(p, ((p.rows + tile - 1) / tile) * ((p.cols + tile - 1) / tile));
  ForEachMatrix(p, [&](const char* in, char* out) {
    // The last row lies farthest.
    const char* last = in + p.row_at[p.rows - 1];
    for (int64_t c = 0; c < p.cols; c += tile) {
      const int64_t cols = TileAt<kWidth>(&c, p.cols, p.rows >= tile);
      const char* from = in + c * kWidth;
      const bool narrow = cols * kWidth <= 16;
      const bool whole = last + c * kWidth + (narrow ? 16 : kLine) <= p.in_end;
      for (int64_t r = 0; r < p.rows; r += tile) {
        const int64_t rows = TileAt<kWidth>(&r, p.rows, cols == tile);
        const ptrdiff_t* row_at = p.row_at + r;
        const ptrdiff_t* col_at = p.col_at + c;
        if constexpr (kAhead) ahead.AskForNext();
        char* to = out + r * kWidth;
        if (rows == tile && cols == tile) {
          GroupedTile<kWidth>(from, row_at, to, col_at);
        } else if (narrow) {
          GroupedPart<kWidth, 16>(from, row_at, rows, to, col_at, cols, whole);
        } else {
          GroupedPart<kWidth, kLine>(from, row_at, rows, to, col_at, cols, whole);
        }
      }
    }
  });
}

}  // namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA
