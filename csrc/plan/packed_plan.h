// Everything the `packed` and `rows` kernels read: where blocks start, how a tile's elements are
// numbered on each side, and how the tile lies in shared memory. Filled on the host, passed by
// value; plain data.
#pragma once

#include <cstdint>

#include "plan/divisor.h"
#include "plan/permutation.h"

namespace jax_transpose {

inline constexpr int kMaxTileDigits = 16;
inline constexpr int kMaxGridDigits = 32;

// Numbers are split into mixed-radix digits, and every offset is a sum over the digits: a merged,
// split or padded dimension costs no instruction of its own. Coordinate i is q(i) - extent(i) *
// q(i + 1), where q(i) is the number over the product of the extents before i. So the sum of
// coordinates times strides is that of the q(i), which do not wait for each other, times *steps*:
// stride(i) - extent(i - 1) * stride(i - 1), modulo 2^32.
struct TileDigit {
  uint32_t reciprocal;  // 2^32 / the product of the extents before, rounded up; 0 for the first
  uint32_t extent;
  // Strides while a tile is laid out, steps in the kernel:
  uint32_t global;  // in this side's array, in elements
  uint32_t shared;  // in shared memory in bytes; for `rows`, in the output in elements
  uint32_t across;  // along the dimension that the other side splits
  uint32_t along;   // within this side's run, in elements
};

struct GridDigit {
  Divisor by;  // the product of the extents up to and including this digit's
  uint32_t extent;
  uint32_t splits;  // bit 0: the input's split dimension, bit 1: the output's
  int64_t in, out;  // strides in bytes
};

// The dimension that ends a side's run: tiles cut it, and the last tile may be short.
struct SplitDim {
  uint32_t tile, last, rest;  // elements a tile, the last tile's number, and its elements
  uint32_t under;             // elements of the run for each of its elements
};

// How the second phase reads the tile.
enum class Gather : uint8_t {
  kElements,     // one read an element
  kWords,        // a word a read: 4 / width output vectors from the same words
  kTakeApart3,   // bytes: 48 interleaved bytes become three vectors
  kInterleave3,  // bytes: three rows are interleaved
};

struct PackedGrid {
  int grid_digits;
  bool partial;  // some tile hangs over the array's edge
  GridDigit grid[kMaxGridDigits];
  SplitDim split[2];  // of the input and of the output
  int64_t bytes;      // of the whole array

  // The tile in input order: sub-runs of `in_run` elements, each moved as `in_vectors` vectors.
  int in_digits;
  uint32_t in_items, in_run, in_vectors, in_vectors_reciprocal;
  TileDigit in[kMaxTileDigits];

  // The tile in output order: `out_runs` sub-runs of `out_run` elements. `out` numbers sub-runs,
  // `element` the elements of one.
  int out_digits, element_digits;
  uint32_t out_items, out_runs, out_run, out_vectors, out_vectors_reciprocal;
  TileDigit out[kMaxTileDigits], element[kMaxTileDigits];

  uint32_t column_stride;  // in the output, between the columns that share a word
  // Shared memory, in bytes: the tile, then per sub-run its offsets (8 bytes each) and, in partial
  // grids, its valid length (4), then per element its offset (2).
  uint32_t run_table, length_table, element_table;
};

// What the launcher needs besides.
struct PackedLaunch {
  PackedGrid grid;
  bool in_vectors, out_vectors;  // runs are whole 16-byte vectors
  bool async;                    // 16-byte asynchronous copies into shared memory
  Gather gather;
  int shared_bytes;
  int threads;
  int64_t blocks;
  int64_t tile_elements;
  double cost;  // traffic that the tile model expects, over the array's bytes: 2 at best
};

// Threads a block, at most.
constexpr int PackedMaxThreads(bool vectors) { return vectors ? 512 : 384; }
inline constexpr int kPackedSharedBytes = 48 * 1024;  // more needs an opt-in on each device
inline constexpr int kRowsMaxThreads = 512;
// Elements of a kept run that a thread moves at once.
constexpr int RowsInFlight(int element_bytes) { return element_bytes == 16 ? 2 : 4; }

// Both return false where the kernel cannot move `p`; another kind then must.
bool MakePacked(const Permutation& p, int pointer_alignment, PackedLaunch* launch);
bool MakeRows(const Permutation& p, int pointer_alignment, PackedLaunch* launch);

}  // namespace jax_transpose
