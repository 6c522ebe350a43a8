// How the CPU walks a permutation: blocks that fit a cache and keep long runs on both sides.
#pragma once

#include <cstdint>

#include "plan/permutation.h"

namespace jax_transpose {

// How a block's bytes reach the output.
enum class Store : uint8_t {
  kCached,     // plain stores
  kStreaming,  // whole lines past the cache, straight from registers
  kShifted,    // the same where long rows do not start on a line: cut at the output's lines
  kStaged,     // through a buffer that is then streamed: short runs
};

struct CpuBlocks {
  struct Dim {
    int64_t extent, block;  // in elements
    int64_t in, out;        // strides in bytes
  };
  int64_t element = 0;  // bytes of what is moved whole: an element, or a kept minor run
  int rank = 0;
  Dim dim[kMaxRank];        // in the order of the walk, the outermost first
  int order_out[kMaxRank];  // the same dims in output order, the outermost first
  int row = 0, col = 0;     // dims that are innermost in the output and in the input
  // How many of the output's and of the input's innermost dims form a block's rows and columns:
  // more than one where that makes short sides long.
  int row_dims = 1, col_dims = 1;
  bool grouped = false;  // whether the kernel for such rows and columns is used
  Store store = Store::kCached;
  int64_t blocks = 0;
};

// True where one side has 2 to 8 elements that are adjacent in memory, and the other side is long
// and its runs follow each other.
bool CpuInterleaves(const Permutation& p);

// Outputs at least this large bypass the cache: docs/tuning.md has the measurements.
inline constexpr int64_t kCpuStreamBytes = int64_t{2} << 20;

// `p` has rank >= 2. `out_aligned`: the output starts on a 64-byte boundary. Arrays of
// `stream_bytes` and more are treated as too large for the cache.
CpuBlocks MakeCpuBlocks(const Permutation& p, bool out_aligned,
                        int64_t stream_bytes = kCpuStreamBytes);

}  // namespace jax_transpose
