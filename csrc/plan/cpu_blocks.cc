#include "plan/cpu_blocks.h"

#include <algorithm>

namespace jax_transpose {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kLongRun = 1024;  // bytes that make the ends' part in a run's cost small
constexpr int64_t kShortRun = 256;  // bytes of a run below which neighbors must be staged
// Blocks of short runs stay in the cache until four times the size of tiles.
constexpr int64_t kStagedFactor = 4;
// Kept runs are written as they come; the third-level cache then holds what fits it.
constexpr int64_t kKeptFactor = 8;
// Outputs written in order stay in the cache until they are this many times as large as others.
constexpr int64_t kInOrderFactor = 16;

// Lengths of a block's runs, and its size, in bytes.
struct Targets {
  int64_t in_run, out_run, block;
};

struct Shaper {
  const Permutation& p;
  int rank, row, col;
  int64_t element;
  bool even;  // blocks of about one size instead of whole tiles
  int64_t block[kMaxRank];

  int64_t bytes() const {
    int64_t n = element;
    for (int d = 0; d < rank; ++d) n *= block[d];
    return n;
  }

  // The sides of tiles, where cut, end on whole tiles.
  void Grow(int d, int64_t want) {
    if (!even && (d == row || d == col)) {
      const int64_t tile = std::max<int64_t>(1, kLine / element);
      want = CeilDiv(want, tile) * tile;
    }
    if (even) want = CeilDiv(p.extent[d], CeilDiv(p.extent[d], want));
    block[d] = std::max(block[d], std::min(p.extent[d], want));
  }

  // Walks dims from the innermost out until the run they form reaches `bytes`; `at(i)` is the i-th
  // dim from the innermost.
  template <class At>
  void GrowRun(int64_t bytes, At at) {
    int64_t run = element;
    for (int i = 0; i < rank && run < bytes; ++i) {
      const int d = at(i);
      Grow(d, CeilDiv(bytes, run));
      run *= block[d];
      if (block[d] < p.extent[d]) break;
    }
  }
};

}  // namespace

bool CpuInterleaves(const Permutation& p) {
  if (p.rank < 2 || p.keeps_minor() || p.element_bytes > 8) return false;
  const Strides s = ComputeStrides(p);
  const int col = p.rank - 1, row = p.axes[p.rank - 1];
  // Short streams are better off as a batch of small matrices.
  auto fits = [](int64_t side, int64_t length) { return 2 <= side && side <= 8 && length >= 64; };
  return (fits(p.extent[col], p.extent[row]) && s.in[row] == p.extent[col]) ||
         (fits(p.extent[row], p.extent[col]) && s.out[col] == p.extent[row]);
}

namespace {

// Whether the blocks' outputs follow each other, so that plain stores are as good as any.
bool WritesInOrder(const Permutation& p, int row, int col) {
  const Strides s = ComputeStrides(p);
  const bool batch = s.in[row] == p.extent[col] && s.out[col] == p.extent[row];
  return CpuInterleaves(p) || (batch && p.extent[row] <= 8 && p.extent[col] <= 8);
}

Store PickStore(const Permutation& p, const CpuBlocks& b, bool out_aligned, int64_t stream_bytes) {
  const int64_t bytes = p.bytes();
  if (bytes < stream_bytes) return Store::kCached;
  const Strides s = ComputeStrides(p);
  const bool kept = p.keeps_minor();
  bool lines = out_aligned;
  for (int d = 0; d < b.rank; ++d) {
    if (d != b.row || kept) lines = lines && s.out[d] * p.element_bytes % kLine == 0;
  }
  const Store staged = bytes < stream_bytes * kStagedFactor ? Store::kCached : Store::kStaged;
  if (kept) {
    if (bytes < stream_bytes * kKeptFactor) return Store::kCached;
    // A long run is streamed by itself, ragged ends and all.
    return lines || b.element >= kLongRun ? Store::kStreaming : staged;
  }
  if (WritesInOrder(p, b.row, b.col)) {
    return bytes < stream_bytes * kInOrderFactor ? Store::kCached : Store::kStaged;
  }
  // Whole lines come out of whole tiles.
  const int64_t rows = p.extent[b.row], cols = p.extent[b.col], tile = kLine / p.element_bytes;
  if (rows < tile || cols < tile) return staged;
  // Short output runs that do not follow each other would be streamed as single lines.
  if (b.rank > 2 && rows * p.element_bytes < kShortRun && s.out[b.col] != rows) return staged;
  if (lines) return Store::kStreaming;
  return rows * p.element_bytes >= kLongRun ? Store::kShifted : staged;
}

Targets PickTargets(const Permutation& p, const CpuBlocks& b) {
  const int64_t rows = p.extent[b.row] * b.element, cols = p.extent[b.col] * b.element;
  switch (b.store) {
    case Store::kCached:
      return {1024, 1024, 64 << 10};
    case Store::kStreaming:
      if (b.rank == 2 && cols < kLongRun) return {1024, 1024, 16 << 10};
      if (rows < 256) return {1024, 512, 16 << 10};
      return {4096, 256, 16 << 10};
    case Store::kShifted:
      return {256, 2048, 16 << 10};
    default:
      return {512, b.element >= 4 ? 1024 : 512, 64 << 10};
  }
}

// Adds to a block's rows and columns the dims that lie next to them, to the shorter side first.
void PickGroups(const Shaper& shape, CpuBlocks* b) {
  const Permutation& p = shape.p;
  int64_t rows = shape.block[b->row], cols = shape.block[b->col];
  bool taken[kMaxRank] = {};
  taken[b->row] = taken[b->col] = true;
  // The dim that comes next, where a side's dims so far are whole; -1 otherwise.
  auto next = [&](int outermost, int candidate) {
    if (shape.block[outermost] < p.extent[outermost]) return -1;
    return taken[candidate] || shape.block[candidate] == 1 ? -1 : candidate;
  };
  while (b->row_dims < b->rank && b->col_dims < b->rank) {
    const int row = next(p.axes[b->rank - b->row_dims], p.axes[b->rank - 1 - b->row_dims]);
    const int col = next(b->rank - b->col_dims, b->rank - 1 - b->col_dims);
    if (row < 0 && col < 0) return;
    if (col < 0 || (row >= 0 && rows <= cols)) {
      rows *= shape.block[row];
      taken[row] = true;
      ++b->row_dims;
    } else {
      cols *= shape.block[col];
      taken[col] = true;
      ++b->col_dims;
    }
  }
}

}  // namespace

CpuBlocks MakeCpuBlocks(const Permutation& p, bool out_aligned, int64_t stream_bytes) {
  const Strides s = ComputeStrides(p);
  const bool kept = p.keeps_minor();
  CpuBlocks b;
  b.element = kept ? p.extent[p.rank - 1] * p.element_bytes : p.element_bytes;
  b.rank = p.rank - (kept ? 1 : 0);
  const int col = b.col = b.rank - 1, row = b.row = p.axes[b.rank - 1];
  b.store = PickStore(p, b, out_aligned, stream_bytes);
  const Targets t = PickTargets(p, b);
  const bool even = b.rank > 2 && (b.store == Store::kCached || b.store == Store::kStaged);
  Shaper shape{p, b.rank, row, col, b.element, even, {}};
  std::fill(shape.block, shape.block + b.rank, 1);
  shape.GrowRun(t.in_run, [&](int i) { return b.rank - 1 - i; });
  shape.GrowRun(t.out_run, [&](int i) { return p.axes[b.rank - 1 - i]; });
  for (int d = b.rank - 1; d >= 0 && shape.bytes() < t.block; --d) {
    shape.Grow(d, CeilDiv(t.block * shape.block[d], shape.bytes()));
  }

  if (!kept && !CpuInterleaves(p) && (b.store == Store::kCached || b.store == Store::kStaged)) {
    PickGroups(shape, &b);
    // Batches of small squares have kernels of their own; other small matrices are as good here.
    const int64_t rows = p.extent[row], cols = p.extent[col], tile = kLine / b.element;
    const bool small = rows <= tile && cols <= tile && rows != cols;
    b.grouped = b.row_dims > 1 || b.col_dims > 1 || (b.rank > 2 && small);
  }

  // Blocks follow the input, so that its pages are read in order.
  b.blocks = 1;
  for (int d = 0; d < b.rank; ++d) {
    b.dim[d] = {p.extent[d], shape.block[d], s.in[d] * p.element_bytes, s.out[d] * p.element_bytes};
    b.order_out[d] = p.axes[d];
    b.blocks *= CeilDiv(p.extent[d], shape.block[d]);
  }
  return b;
}

}  // namespace jax_transpose
