// Outputs whose rows start anywhere: tiles go through a buffer that shifts them onto whole lines.
// Included by isa_kernels.cc only.
#pragma once

#include "cpu/kernel_table.h"
#include "cpu/row_copies.h"
#include "cpu/tiles.h"

namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA {

// A column of tiles is worked down in bands. Of each output row, the whole lines that a band
// completes are streamed; what is left of the last one, less than a line, is carried over.
template <int kWidth>
JT_INLINE void ShiftedPlane(const Planes& p, const char* in, char* out) {
  constexpr int tile = kLine / kWidth, band = kBand * tile;
  constexpr ptrdiff_t pitch = (kBand + 1) * kLine;  // a line carried over, then the band
  alignas(64) char buffer[tile * pitch];
  const int64_t readable = p.rows + p.rows_ahead;
  for (int64_t c = 0; c < p.cols; c += tile) {
    const int64_t cols = p.cols - c < tile ? p.cols - c : tile;
    for (int64_t r = 0; r < readable; r += band) {
      const int64_t rows = readable - r < band ? readable - r : band;
      const char* from = in + r * p.in_pitch + c * kWidth;
      int64_t tiled = 0;
      if (cols == tile) {
        for (; tiled + tile <= rows; tiled += tile) {
          const char* corner = from + tiled * p.in_pitch;
          Prefetch(corner + p.ahead, p.in_pitch, tile);
          Tile<kWidth, false, (kWidth <= 4)>(corner, p.in_pitch, buffer + kLine + tiled * kWidth,
                                             pitch);
        }
      }
      if (tiled < rows) {
        Edge<kWidth>(from + tiled * p.in_pitch, p.in_pitch, buffer + kLine + tiled * kWidth, pitch,
                     rows - tiled, cols);
      }
      const bool last = r + rows == readable;
      for (int64_t i = 0; i < cols; ++i) {
        // Positions count bytes from the band's start, in the output row and in the buffer alike.
        char* row = out + (c + i) * p.out_pitch + r * kWidth;
        const char* data = buffer + i * pitch + kLine;
        int64_t end = (p.rows - r) * kWidth;
        if (!p.ends_row) end += ToLine(row + end);
        const int64_t whole = rows * kWidth - (last ? 0 : BeyondLine(row + rows * kWidth));
        if (end > whole) end = whole;
        int64_t at = r == 0 ? (p.starts_row ? 0 : ToLine(row)) : -BeyondLine(row);
        if (r == 0 && p.starts_row) {
          const int64_t head = ToLine(row) < end ? ToLine(row) : end;
          CopyShort(row, data, head);
          at = head;
        }
        for (; at + kLine <= end; at += kLine) CopyLine<true>(row + at, data + at);
        if (at < end) CopyShort(row + at, data + at, end - at);
        if (!last) CopyLine<false>(buffer + i * pitch, data + (kBand - 1) * kLine);
      }
    }
  }
}

template <int kWidth>
void ShiftedPlanes(const Planes& p) {
  ForEachMatrix(p, [&](const char* in, char* out) { ShiftedPlane<kWidth>(p, in, out); });
}

}  // namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA
