#include "plan/cpu_blocks.h"

#include <algorithm>
#include <cstdlib>

namespace jax_transpose {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kLongRun = 1024;  // bytes that make the ends' part in a run's cost small

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t Env(const char* name, int64_t value) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : value;
}

// Lengths of a block's runs, and its size, in bytes.
struct Targets {
  int64_t in_run, out_run, block;
};

struct Shaper {
  const Permutation& p;
  int rank;
  int64_t element;
  int64_t block[kMaxRank];

  int64_t bytes() const {
    int64_t n = element;
    for (int d = 0; d < rank; ++d) n *= block[d];
    return n;
  }

  // Blocks that do not cover their dimension end on whole tiles.
  void Grow(int d, int64_t want) {
    const int64_t tile = std::max<int64_t>(1, kLine / element);
    want = CeilDiv(want, tile) * tile;
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

CpuBlocks MakeCpuBlocks(const Permutation& p, bool out_aligned, int64_t stream_bytes) {
  const Strides s = ComputeStrides(p);
  const bool kept = p.keeps_minor();
  CpuBlocks b;
  b.element = kept ? p.extent[p.rank - 1] * p.element_bytes : p.element_bytes;
  b.rank = p.rank - (kept ? 1 : 0);
  const int col = b.rank - 1, row = p.axes[b.rank - 1];

  const bool large = p.bytes() >= stream_bytes;
  bool lines = out_aligned;
  for (int d = 0; d < b.rank; ++d) {
    if (d != row || kept) lines = lines && s.out[d] * p.element_bytes % kLine == 0;
  }
  // Whole lines come out of whole tiles.
  const int64_t tile = kLine / p.element_bytes;
  const bool tiles =
      !kept && p.extent[row] >= tile && p.extent[col] >= tile && !CpuInterleaves(p);
  if (!large) {
    b.store = Store::kCached;
  } else if (kept) {
    // A long run is streamed by itself, ragged ends and all.
    b.store = lines || b.element >= kLongRun ? Store::kStreaming : Store::kStaged;
  } else if (tiles && lines) {
    b.store = Store::kStreaming;
  } else {
    const bool is_long = p.extent[row] * p.element_bytes >= Env("T_SH", kLongRun);
    b.store = tiles && is_long ? Store::kShifted : Store::kStaged;
  }

  if (Env("T_ST",0) && large) b.store = Store::kStaged;
  Targets t;
  switch (b.store) {
    case Store::kCached:
      t = {Env("T_CI", 256), Env("T_CO", 256), Env("T_CB", 16384)};
      break;
    case Store::kStreaming:
      t = {Env("T_SI", 4096), Env("T_SO", 256), Env("T_SB", 16384)};
      break;
    case Store::kShifted:
      t = {Env("T_HI", 64), Env("T_HO", 2048), Env("T_HB", 16384)};
      break;
    default:
      t = {Env("T_GI", 512), Env("T_GO", 2048), Env("T_GB", 65536)};
      break;
  }

  Shaper shape{p, b.rank, b.element, {}};
  std::fill(shape.block, shape.block + b.rank, 1);
  shape.GrowRun(t.in_run, [&](int i) { return b.rank - 1 - i; });
  shape.GrowRun(t.out_run, [&](int i) { return p.axes[b.rank - 1 - i]; });
  for (int d = b.rank - 1; d >= 0 && shape.bytes() < t.block; --d) {
    shape.Grow(d, CeilDiv(t.block * shape.block[d], shape.bytes()));
  }

  // Blocks follow the input, so that its pages are read in order.
  b.row = row;
  b.col = col;
  b.blocks = 1;
  for (int d = 0; d < b.rank; ++d) {
    b.dim[d] = {p.extent[d], shape.block[d], s.in[d] * p.element_bytes, s.out[d] * p.element_bytes};
    b.order_out[d] = p.axes[d];
    b.blocks *= CeilDiv(p.extent[d], shape.block[d]);
  }
  return b;
}

}  // namespace jax_transpose
