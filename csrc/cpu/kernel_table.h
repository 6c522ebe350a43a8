// What one instruction set offers: the inner kernels, compiled once for each set.
//
// This header and those included by isa_kernels.cc define no inline function outside the
// namespace of an instruction set, and use none of the standard library's: the linker keeps one
// copy of such a function, which could be the one compiled for a newer processor than this one.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace jax_transpose::cpu {

// Where a matrix starts, in bytes from the first one.
struct Offset {
  ptrdiff_t in, out;
};

// Matrices of rows x cols elements, to be transposed: `count` of them, a step apart, from each of
// `starts` offsets. Element (r, c) of a matrix lies at
// in + r * in_pitch + c * element and goes to out + c * out_pitch + r * element (in bytes), where
// `element` is the kernel's width, or `run`.
struct Planes {
  const char* in;
  char* out;
  ptrdiff_t in_pitch, out_pitch;
  int64_t rows, cols;
  int64_t count;
  Offset step;
  int64_t starts;
  const Offset* start;
  int64_t run;  // bytes of one element, for `rows`
  // How far ahead of its use a line of the input is asked for, in bytes; for kernels that ask.
  ptrdiff_t ahead;
  // For `tiles_shifted`: an output row is written up to the end of the line in which this part of
  // it ends, from the start of the next line where another part comes before; `rows_ahead` more
  // rows than this part's may be read to complete that line.
  int64_t rows_ahead;
  bool starts_row, ends_row;  // whether this part is the first, the last of its output rows
  // For `grouped`: offsets of the input's rows and of the output's, in ascending order, instead of
  // the pitches; and the input's end, before which rows may be read further than their length.
  const ptrdiff_t *row_at, *col_at;
  const char* in_end;
  // For `grouped_ahead`: offsets of lines to ask for, from `in` + `ahead`.
  const ptrdiff_t* ahead_at;
  int64_t ahead_lines;
};

using PlanesKernel = void (*)(const Planes&);

// Blocks of one array, `a` of rows x cols elements and `b` of cols x rows, of which each shall
// become the other's transpose. They are disjoint or, where a == b, one square block.
struct BlockPair {
  char *a, *b;
  ptrdiff_t pitch;
  int64_t rows, cols;
  int64_t run;  // bytes of one element, for `swap_runs`
};

using SwapKernel = void (*)(const BlockPair&);

struct KernelTable {
  const char* name;
  int vector_bytes;
  // By log2 of the element width: for cached data, for inputs that are not cached, and for outputs
  // that shall not be. Streaming kernels need outputs whose every row starts on a 64-byte boundary.
  PlanesKernel tiles[5], tiles_ahead[5], tiles_streaming[5];
  // Streaming too, to rows that start anywhere.
  PlanesKernel tiles_shifted[5];
  // Rows and columns that run over several dimensions, for cached data and for inputs that are not.
  PlanesKernel grouped[5], grouped_ahead[5];
  // One side of 2 to 8 elements, adjacent in memory: see Interleaves().
  PlanesKernel interleave[5];
  PlanesKernel rows, rows_ahead, rows_streaming;
  SwapKernel swap_tiles[5], swap_runs;
  // Copies `bytes` with stores that bypass the cache, whatever the alignment.
  void (*stream)(char* out, const char* in, size_t bytes);
  // Orders streaming stores before whatever publishes that they are done.
  void (*fence)();
};

#if defined(__x86_64__)
namespace sse2 {
extern const KernelTable kTable;
}
namespace avx2 {
extern const KernelTable kTable;
}
namespace avx512 {
extern const KernelTable kTable;
}
#else
namespace generic {
extern const KernelTable kTable;
}
#endif

}  // namespace jax_transpose::cpu
