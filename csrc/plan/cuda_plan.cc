#include "plan/cuda_plan.h"

#include <algorithm>

#include "plan/block_order.h"
#include "plan/in_place.h"

namespace jax_transpose {
namespace {

struct TileRow {
  Kind kind;
  int element_bytes;
  TileChoice choice;
};

// Limits: 48 KiB of shared memory, which needs no per-device opt-in; and for swizzled tiles eight
// 16-byte chunks a row, so that the swizzle reaches every bank.
constexpr TileRow kTiles[] = {
    {Kind::kTiledUnpadded, 1, {{8, 16, 32, 64}, 32}},
    {Kind::kTiledUnpadded, 2, {{8, 16, 32, 64}, 32}},
    {Kind::kTiledUnpadded, 4, {{8, 16, 32, 64}, 32}},
    {Kind::kTiledUnpadded, 8, {{8, 16, 32, 64}, 32}},
    {Kind::kTiledUnpadded, 16, {{8, 16, 32}, 32}},
    {Kind::kTiled, 1, {{8, 16, 32, 64}, 32}},
    {Kind::kTiled, 2, {{8, 16, 32, 64}, 32}},
    {Kind::kTiled, 4, {{8, 16, 32, 64}, 32}},
    {Kind::kTiled, 8, {{8, 16, 32, 64}, 32}},
    {Kind::kTiled, 16, {{8, 16, 32}, 32}},
    {Kind::kVectorized, 1, {{128}, 128}},
    {Kind::kVectorized, 2, {{64, 128}, 128}},
    {Kind::kVectorized, 4, {{32, 64}, 64}},
    {Kind::kVectorized, 8, {{16, 32, 64}, 32}},
    {Kind::kVectorized, 16, {{8, 16, 32}, 32}},
    {Kind::kAsyncCopy, 1, {{128}, 128}},
    {Kind::kAsyncCopy, 2, {{64, 128}, 128}},
    {Kind::kAsyncCopy, 4, {{32, 64}, 64}},
    {Kind::kAsyncCopy, 8, {{16, 32, 64}, 32}},
    {Kind::kAsyncCopy, 16, {{8, 16, 32}, 16}},
};

// Below it, shifted tiles lie too far beyond the matrix: tiles of a set of dimensions are faster.
constexpr double kShiftedFill = 0.4;

// Share of a grid of asynchronous tiles that matrices of rows x cols fill.
double Fill(int64_t rows, int64_t cols, int width, int tile) {
  const int wide = AsyncCols(width, tile);
  return static_cast<double>(rows) * static_cast<double>(cols) /
         (static_cast<double>(CeilDiv(rows, tile) * tile) *
          static_cast<double>(CeilDiv(cols, wide) * wide));
}

// The tile side of asynchronous copies, the first whose share is filled; below the last, tiles of
// more dimensions are faster. Measured on the 57 permutations of the ttc57 suite in every width.
struct AsyncRule {
  int width, tile;
  double fill;
  bool wide_only;  // only where rows are read in runs at least twice as long as they are written
};
constexpr AsyncRule kAsyncRules[] = {
    {1, 128, 0.35, false}, {2, 128, 0.55, false}, {2, 64, 0.43, true},
    {4, 64, 0.42, false},  {4, 32, 0.90, false},  {8, 32, 0.90, false},
    {8, 64, 0.43, false},  {8, 32, 0.43, false},  {16, 16, 0.50, false},
};

int AsyncTile(int64_t rows, int64_t cols, int width) {
  for (const AsyncRule& rule : kAsyncRules) {
    if (rule.width == width && Fill(rows, cols, width, rule.tile) >= rule.fill &&
        (!rule.wide_only || cols >= 2 * rows)) {
      return rule.tile;
    }
  }
  return 0;
}

// Whether all of a side's runs along `along` start on multiples of `bytes`.
bool RunsStartOn(int bytes, const Permutation& p, const int64_t* stride, int along) {
  for (int d = 0; d < p.rank; ++d) {
    if (d != along && stride[d] * p.element_bytes % bytes != 0) return false;
  }
  return true;
}

// Whether tiles whose sides are multiples of 32 bytes write whole 32-byte sectors. Where two blocks
// share one, memory with error correction reads it back to merge the halves.
bool WritesWholeSectors(const Permutation& p) {
  return RunsStartOn(kSectorBytes, p, ComputeStrides(p).out, TiledPair(p).row_dim);
}

void SizeShifted(int pointer_alignment, Plan* plan) {
  const Permutation& p = plan->permutation;
  const int width = p.element_bytes;
  const TilePair pair = TiledPair(p);
  const bool aligned = pointer_alignment >= 16;
  plan->row_overlap = aligned && WritesWholeSectors(p) ? 0 : kSectorBytes / width;
  plan->tile_cols =
      ShiftedCols(width, aligned && RunsStartOn(16, p, ComputeStrides(p).in, pair.col_dim));
}

// Share of a grid of shifted tiles that the matrices fill.
double ShiftedFill(int pointer_alignment, const Permutation& p) {
  Plan plan;
  plan.permutation = p;
  SizeShifted(pointer_alignment, &plan);
  const TilePair pair = TiledPair(p);
  const int rows = kShiftedRows - plan.row_overlap;
  auto share = [](int64_t extent, int tile) {
    return static_cast<double>(extent) / static_cast<double>(CeilDiv(extent, tile) * tile);
  };
  return share(p.extent[pair.row_dim], rows) * share(p.extent[pair.col_dim], plan.tile_cols);
}

bool SizePacked(int pointer_alignment, Plan* plan) {
  const Permutation& p = plan->permutation;
  PackedLaunch& launch = plan->packed;
  const bool rows = plan->kind == Kind::kRows;
  if (rows && !p.keeps_minor()) {
    plan->kind = Kind::kPacked;
    plan->reason = "asked for 'rows', but the minor dimension moves";
  }
  if (rows && MakeRows(p, pointer_alignment, &launch)) {
    plan->vector_bytes = p.element_bytes;
  } else if (MakePacked(p, pointer_alignment, &launch)) {
    if (plan->kind == Kind::kRows) {
      plan->kind = Kind::kPacked;
      plan->reason = "the minor dimension is kept, but no whole runs fit a tile";
    }
    plan->vector_bytes = launch.in_vectors && launch.out_vectors ? 16 : p.element_bytes;
  } else {
    return false;
  }
  plan->threads = launch.threads;
  plan->blocks = launch.blocks;
  return true;
}

}  // namespace

TileChoice CudaTiles(Kind kind, int element_bytes) {
  for (const TileRow& row : kTiles) {
    if (row.kind == kind && row.element_bytes == element_bytes) return row.choice;
  }
  return {};
}

bool RowsAligned(const Permutation& p, int pointer_alignment) {
  if (pointer_alignment < 16 || p.rank < 2 || p.keeps_minor()) return false;
  const TilePair pair = TiledPair(p);
  const Strides s = ComputeStrides(p);
  // An extent needs no test of its own: it is the stride of the dimension above it.
  return RunsStartOn(16, p, s.in, pair.col_dim) && RunsStartOn(16, p, s.out, pair.row_dim);
}

void PickCudaKind(int pointer_alignment, Plan* plan) {
  const Permutation& p = plan->permutation;
  const int width = p.element_bytes;
  if (p.keeps_minor()) {
    // Narrow elements are moved faster as 16-byte vectors with shifts than one by one.
    const int64_t run = p.extent[p.rank - 1] * width;
    if (run >= (width >= 8 ? 64 : 256) && width >= 4) {
      plan->kind = Kind::kRows;
      plan->reason = "the minor dimension is kept: its runs are copied whole";
    } else {
      plan->kind = Kind::kPacked;
      plan->reason = "the minor dimension is kept but short: tiles of a set of dimensions";
    }
    return;
  }
  const TilePair pair = TiledPair(p);
  const int64_t rows = p.extent[pair.row_dim], cols = p.extent[pair.col_dim];
  const bool shift = width < 16 && std::min(rows, cols) >= 64 &&
                     (!plan->aligned || !WritesWholeSectors(p)) &&
                     ShiftedFill(pointer_alignment, p) >= kShiftedFill;
  plan->tile = plan->aligned && !shift ? AsyncTile(rows, cols, width) : 0;
  if (plan->tile != 0) {
    plan->kind = Kind::kAsyncCopy;
    plan->reason = "minor dimensions are exchanged: asynchronous 16-byte copies into tiles";
  } else if (shift) {
    plan->kind = Kind::kShifted;
    plan->reason = "minor dimensions are exchanged and rows are not on 32-byte boundaries";
  } else {
    plan->kind = Kind::kPacked;
    plan->reason = "minor dimensions are exchanged and short: tiles of a set of dimensions";
  }
}

void SizeCudaGrid(int pointer_alignment, Plan* plan) {
  const Permutation& p = plan->permutation;
  const int width = p.element_bytes;
  if (plan->kind == Kind::kPacked || plan->kind == Kind::kRows) {
    if (SizePacked(pointer_alignment, plan)) return;
    plan->kind = plan->aligned ? Kind::kAsyncCopy : Kind::kVectorized;
    plan->tile = CudaTiles(plan->kind, width).preferred;
    plan->reason = "no tile of a set of dimensions fits";
  }
  if (plan->kind == Kind::kNaive) {
    plan->vector_bytes = width;
    plan->threads = 256;
    plan->blocks = CeilDiv(p.elements(), plan->threads);
    return;
  }
  if (plan->kind == Kind::kShifted && (width == 16 || p.keeps_minor())) {
    plan->kind = Kind::kVectorized;
    plan->tile = CudaTiles(plan->kind, width).preferred;
    plan->reason = "asked for 'shifted', but there are no rows of narrow elements to shift";
  }
  const TilePair pair = TiledPair(p);
  const int64_t rows = p.extent[pair.row_dim], cols = p.extent[pair.col_dim];
  const int64_t batch = p.elements() / (rows * cols);
  int row_step = plan->tile, col_step = plan->tile, extra_rows = 0;
  if (plan->kind == Kind::kShifted) {
    SizeShifted(pointer_alignment, plan);
    plan->vector_bytes = 16;
    plan->threads = kShiftedThreads;
    row_step = kShiftedRows - plan->row_overlap;
    col_step = plan->tile_cols;
    // A tile may end early, within a sector of the next one's.
    extra_rows = std::max(plan->row_overlap - 1, 0);
  } else if (plan->aligned && (plan->kind == Kind::kVectorized || plan->kind == Kind::kAsyncCopy)) {
    plan->vector_bytes = 16;
    if (plan->kind == Kind::kAsyncCopy) col_step = AsyncCols(width, plan->tile);
    plan->threads = SwizzledThreads(width, plan->tile, col_step);
  } else {
    plan->vector_bytes = width;
    // The guarded path of `vectorized` is the padded scalar tile at its best side.
    if (plan->kind == Kind::kVectorized) plan->tile = row_step = col_step = width == 16 ? 32 : 64;
    // A guarded asynchronous tile is padded and must fit 48 KiB.
    if (plan->kind == Kind::kAsyncCopy) row_step = col_step = plan->tile = std::min(plan->tile, 64);
    plan->threads = ScalarThreads(plan->tile);
  }
  plan->row_tiles = CeilDiv(rows + extra_rows, row_step);
  plan->col_tiles = CeilDiv(cols, col_step);
  plan->blocks = plan->row_tiles * plan->col_tiles * batch;
  plan->matrices_first = plan->kind == Kind::kAsyncCopy && plan->aligned &&
                         PreferMatricesFirst(*plan, row_step, col_step);
}

void PlanCudaInPlace(const Swap& swap, int pointer_alignment, Plan* plan) {
  const Permutation& p = plan->permutation;
  const int width = p.element_bytes;
  // A tile for each small matrix would be idle for the most part.
  constexpr int64_t kSmallSide = 16;
  if (p.keeps_minor() || swap.side <= kSmallSide) {
    plan->threads = 256;
    plan->vector_bytes = width;
    plan->blocks = CeilDiv(swap.matrices() * PairCount(swap.side - 1) * swap.run, plan->threads);
    plan->reason = p.keeps_minor() ? "in place: pairs of kept runs change places"
                                   : "in place: pairs of elements of small matrices change places";
    return;
  }
  plan->aligned = pointer_alignment >= 16 && swap.side * width % 16 == 0;
  plan->tile = InPlaceTile(width, plan->aligned);
  plan->vector_bytes = plan->aligned ? 16 : width;
  plan->threads =
      plan->aligned ? SwizzledThreads(width, plan->tile, plan->tile) : ScalarThreads(plan->tile);
  plan->row_tiles = plan->col_tiles = CeilDiv(swap.side, plan->tile);
  plan->blocks = swap.matrices() * PairCount(plan->row_tiles);
  plan->reason = plan->aligned ? "in place: pairs of tiles change places, in 16-byte copies"
                               : "in place: pairs of tiles change places, element by element";
}

}  // namespace jax_transpose
