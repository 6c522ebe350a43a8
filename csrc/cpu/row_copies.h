// Copies of whole runs, and the streaming copy. Included by isa_kernels.cc only.
#pragma once

#include "cpu/kernel_table.h"
#include "cpu/tiles.h"

namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA {

// At least 64 bytes; beyond a few KiB the C library's copy is as good.
JT_INLINE void CopyLong(char* out, const char* in, int64_t bytes) {
  if (bytes >= 4096) {
    __builtin_memcpy(out, in, static_cast<size_t>(bytes));
    return;
  }
  int64_t at = 0;
  for (; at + kLine <= bytes; at += kLine) CopyLine<false>(out + at, in + at);
  if (at < bytes) CopyLine<false>(out + bytes - kLine, in + bytes - kLine);
}

void Stream(char* out, const char* in, size_t size) {
  const int64_t bytes = static_cast<int64_t>(size);
  const int64_t ahead = ToLine(out);
  if (bytes < ahead + kLine) {
    __builtin_memcpy(out, in, size);
    return;
  }
  // The ragged ends share their lines with other runs, so they go through the cache.
  CopyShort(out, in, ahead);
  int64_t at = ahead;
  for (; at + kLine <= bytes; at += kLine) CopyLine<true>(out + at, in + at);
  CopyShort(out + at, in + at, bytes - at);
}

template <bool kAhead, class Copy>
JT_INLINE void ForEachRun(const Planes& p, Copy copy) {
  ForEachMatrix(p, [&](const char* in, char* out) {
    for (int64_t c = 0; c < p.cols; ++c) {
      const char* from = in + c * p.run;
      char* to = out + c * p.out_pitch;
      for (int64_t r = 0; r < p.rows; ++r, from += p.in_pitch, to += p.run) {
        if constexpr (kAhead) Prefetch(from + p.ahead, kLine, (p.run + kLine - 1) / kLine);
        copy(to, from);
      }
    }
  });
}

template <bool kAhead, int kBytes>
JT_INLINE void RunsOf(const Planes& p) {
  ForEachRun<kAhead>(p, [](char* out, const char* in) { __builtin_memcpy(out, in, kBytes); });
}

template <bool kAhead>
void Rows(const Planes& p) {
  const int64_t bytes = p.run;
  switch (bytes) {
    case 3:
      return RunsOf<kAhead, 3>(p);
    case 6:
      return RunsOf<kAhead, 6>(p);
    case 12:
      return RunsOf<kAhead, 12>(p);
    case 16:
      return RunsOf<kAhead, 16>(p);
    case 24:
      return RunsOf<kAhead, 24>(p);
    case 32:
      return RunsOf<kAhead, 32>(p);
    case 48:
      return RunsOf<kAhead, 48>(p);
    default:
      break;
  }
  if (bytes < kLine) {
    ForEachRun<kAhead>(p, [=](char* out, const char* in) { CopyShort(out, in, bytes); });
  } else {
    ForEachRun<kAhead>(p, [=](char* out, const char* in) { CopyLong(out, in, bytes); });
  }
}

void RowsStreaming(const Planes& p) {
  const size_t bytes = static_cast<size_t>(p.run);
  // Along the input's rows: runs are whole lines, so that only the reads gain from order.
  ForEachMatrix(p, [&](const char* in, char* out) {
    for (int64_t r = 0; r < p.rows; ++r) {
      const char* from = in + r * p.in_pitch;
      char* to = out + r * p.run;
      for (int64_t c = 0; c < p.cols; ++c, from += p.run, to += p.out_pitch)
        Stream(to, from, bytes);
    }
  });
}

void Fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA
