// A side of 2 to 8 elements, adjacent in memory: few long streams become one, or one becomes few.
// The trip counts are constants and the compiler vectorizes. Included by isa_kernels.cc only.
#pragma once

#include "cpu/kernel_table.h"
#include "cpu/tiles.h"

namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA {

// Reads `kSide` streams `pitch` words apart.
template <class Word, int kSide>
void Interleave(const Word* __restrict in, ptrdiff_t pitch, Word* __restrict out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 8
    for (int s = 0; s < kSide; ++s) out[i * kSide + s] = in[s * pitch + i];
  }
}

// Writes `kSide` streams `pitch` words apart.
template <class Word, int kSide>
void Deinterleave(const Word* __restrict in, Word* __restrict out, ptrdiff_t pitch, int64_t count) {
  if constexpr (kSide == 2 || kSide == 3 || kSide == 4 || kSide == 8) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 8
      for (int s = 0; s < kSide; ++s) out[s * pitch + i] = in[i * kSide + s];
    }
  } else {
    for (int s = 0; s < kSide; ++s) {
      Word* __restrict stream = out + s * pitch;
      for (int64_t i = 0; i < count; ++i) stream[i] = in[i * kSide + s];
    }
  }
}

template <class Word, int kSide>
void InterleaveSide(const Planes& p, bool columns) {
  constexpr ptrdiff_t width = sizeof(Word);
  ForEachMatrix(p, [&](const char* from, char* to) {
    const Word* in = reinterpret_cast<const Word*>(from);
    Word* out = reinterpret_cast<Word*>(to);
    if (columns) {
      Deinterleave<Word, kSide>(in, out, p.out_pitch / width, p.rows);
    } else {
      Interleave<Word, kSide>(in, p.in_pitch / width, out, p.cols);
    }
  });
}

// Requires cols in 2..8 and in_pitch == cols * kWidth, or rows in 2..8 and out_pitch == rows *
// kWidth; where both hold, cols decides.
template <int kWidth>
void InterleavePlanes(const Planes& p) {
  using Word = typename WordOf<kWidth>::type;
  const bool columns = p.cols >= 2 && p.cols <= 8 && p.in_pitch == p.cols * kWidth;
  switch (columns ? p.cols : p.rows) {
    case 2:
      return InterleaveSide<Word, 2>(p, columns);
    case 3:
      return InterleaveSide<Word, 3>(p, columns);
    case 4:
      return InterleaveSide<Word, 4>(p, columns);
    case 5:
      return InterleaveSide<Word, 5>(p, columns);
    case 6:
      return InterleaveSide<Word, 6>(p, columns);
    case 7:
      return InterleaveSide<Word, 7>(p, columns);
    case 8:
      return InterleaveSide<Word, 8>(p, columns);
    default:
      return;
  }
}

}  // namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA
