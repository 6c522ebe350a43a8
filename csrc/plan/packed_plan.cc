#include "plan/packed_plan.h"

#include <algorithm>

#include "plan/packed_layout.h"
#include "plan/tile_set.h"

namespace jax_transpose {
namespace {

// A break between output runs costs more than one between input runs: partial lines are written
// back by read-modify-write when the other part comes late.
constexpr double kPackedOutputWeight = 1.3;
constexpr double kRowsOutputWeight = 6;

int RoundToWarps(int64_t threads) { return static_cast<int>(CeilDiv(threads, 32) * 32); }

// Blocks are numbered along the output's minor direction first.
bool FillGrid(const Permutation& p, const Strides& strides, const TileSet& set,
              PackedLaunch* launch) {
  PackedGrid& grid = launch->grid;
  grid.grid_digits = 0;
  grid.bytes = p.bytes();
  grid.partial = false;
  launch->blocks = 1;
  for (int i = p.rank - 1; i >= 0; --i) {
    const int d = p.axes[i], t = set.extent[d];
    const int64_t tiles = CeilDiv(p.extent[d], t);
    if (tiles == 1) continue;
    if (grid.grid_digits == kMaxGridDigits) return false;
    GridDigit& digit = grid.grid[grid.grid_digits++];
    digit.extent = static_cast<uint32_t>(tiles);
    launch->blocks *= tiles;
    digit.by = MakeDivisor(launch->blocks);
    digit.splits = (d == set.split[0] ? 1u : 0u) | (d == set.split[1] ? 2u : 0u);
    digit.in = strides.in[d] * t * p.element_bytes;
    digit.out = strides.out[d] * t * p.element_bytes;
  }
  for (int side = 0; side < 2; ++side) {
    SplitDim& split = grid.split[side];
    const int d = set.split[side];
    split.tile = split.rest = d < 0 ? 1 : set.extent[d];
    split.last = ~0u;
    split.under = static_cast<uint32_t>(set.run[side] / split.tile);
    if (d >= 0 && p.extent[d] % split.tile != 0) {
      split.last = static_cast<uint32_t>(p.extent[d] / split.tile);
      split.rest = static_cast<uint32_t>(p.extent[d] % split.tile);
      grid.partial = true;
    }
  }
  launch->tile_elements = set.elements;
  launch->cost = set.cost;
  return true;
}

bool PackTile(const Permutation& p, const Strides& strides, const TileSet& set,
              PackedLaunch* launch) {
  const int width = p.element_bytes;
  launch->in_vectors = set.vectors(0, width);
  launch->out_vectors = set.vectors(1, width);
  if (width == 16 && !(launch->in_vectors && launch->out_vectors)) return false;
  if (!FillGrid(p, strides, set, launch) || !LayOutTile(p, strides, set, launch)) return false;
  // Four vectors a thread in flight; two where they pass through registers at full width.
  const bool vectors = launch->in_vectors && launch->out_vectors;
  const int in_flight = launch->async || !vectors ? 4 : 2;
  int threads = RoundToWarps(CeilDiv(launch->grid.in_items, in_flight));
  const int limit = PackedMaxThreads(vectors);
  while (threads > limit) threads = RoundToWarps(threads / 2);
  launch->threads = std::max(threads, 64);
  return true;
}

}  // namespace

bool MakePacked(const Permutation& p, int pointer_alignment, PackedLaunch* launch) {
  if (p.rank < 2) return false;
  const Strides strides = ComputeStrides(p);
  TileSetOptions options;
  options.output_weight = kPackedOutputWeight;
  options.keep_minor = false;
  options.pointer_alignment = pointer_alignment;
  // Small tiles overlap loads and stores of more blocks and move long runs fastest. Where they cut
  // runs below a few hundred bytes, or runs that share sectors with the next below 1 KiB, larger
  // ones win as far as they lengthen the shorter run.
  TileSet sets[4];
  int count = 0;
  int64_t shorter = 0;
  for (int kib : {8, 16, 32, 40}) {
    options.max_bytes = int64_t{kib} * 1024;
    TileSet& set = sets[count];
    if (!ChooseTileSet(p, strides, options, &set)) continue;
    const int64_t run = std::min(set.run[0], set.run[1]) * p.element_bytes;
    if (count > 0 && run * 5 <= shorter * 6) continue;
    if (shorter >= 256 && set.blocks < kFullGrid) break;
    ++count;
    shorter = run;
    const bool vectors = set.vectors(0, p.element_bytes) && set.vectors(1, p.element_bytes);
    if (run >= (set.alignment[1] < kSectorBytes ? 1024 : kib == 8 && vectors ? 512 : 256)) break;
  }
  // Offsets within a tile bound what it can span: of huge arrays, too little may be left.
  constexpr double kPoorCost = 6;
  if (p.elements() >= int64_t{1} << 31 && count > 0 && sets[count - 1].cost > kPoorCost)
    return false;
  while (count > 0 && !PackTile(p, strides, sets[count - 1], launch)) --count;
  if (count == 0) return false;
  if (launch->gather == Gather::kInterleave3 && launch->tile_elements <= 8 * 1024) {
    // Twice the tile moves these a tenth faster whatever the runs.
    options.max_bytes = 16 * 1024;
    PackedLaunch larger;
    if (ChooseTileSet(p, strides, options, &sets[0]) && PackTile(p, strides, sets[0], &larger)) {
      *launch = larger;
    }
  }
  return true;
}

bool MakeRows(const Permutation& p, int pointer_alignment, PackedLaunch* launch) {
  if (p.rank < 2 || !p.keeps_minor()) return false;
  const Strides strides = ComputeStrides(p);
  TileSetOptions options;
  options.max_bytes = 8 * 1024;
  options.output_weight = kRowsOutputWeight;
  options.keep_minor = true;
  options.pointer_alignment = pointer_alignment;
  TileSet set;
  if (!ChooseTileSet(p, strides, options, &set)) return false;
  if (!FillGrid(p, strides, set, launch)) return false;

  PackedGrid& grid = launch->grid;
  const int minor = p.rank - 1;
  int count = 0;
  for (int i = p.rank - 2; i >= 0; --i) {
    const int d = p.axes[i];
    const auto t = static_cast<uint32_t>(set.extent[d]);
    if (t == 1) continue;
    if (count == kMaxTileDigits) return false;
    grid.in[count++] = {0,
                        t,
                        static_cast<uint32_t>(strides.in[d]),
                        static_cast<uint32_t>(strides.out[d]),
                        d == set.split[1] ? 1u : 0u,
                        d == set.split[0] ? 1u : 0u};
  }
  grid.in_digits = MergeDigits(grid.in, count);
  FinishDigits(grid.in, grid.in_digits);
  grid.in_run = grid.in_vectors = static_cast<uint32_t>(set.extent[minor]);
  grid.in_vectors_reciprocal = Reciprocal(grid.in_vectors);
  grid.in_items = static_cast<uint32_t>(set.elements);
  // A run that is cut into tiles is the split dimension of both sides.
  grid.column_stride = set.extent[minor] != p.extent[minor] ? 1 : 0;
  launch->in_vectors = launch->out_vectors = true;
  launch->async = false;
  launch->gather = Gather::kElements;
  launch->shared_bytes = 0;
  launch->threads =
      std::min(kRowsMaxThreads, RoundToWarps(CeilDiv(set.elements, RowsInFlight(p.element_bytes))));
  return true;
}

}  // namespace jax_transpose
