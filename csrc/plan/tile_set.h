// Tiles that span a set of dimensions: some of the input's minor ones and some of the output's, so
// that both sides see long contiguous runs where no single dimension is long enough.
#pragma once

#include <cstdint>

#include "plan/permutation.h"

namespace jax_transpose {

struct TileSet {
  int extent[kMaxRank];  // of the tile, by input dimension
  int64_t elements;
  int64_t blocks;  // tiles that cover the array
  double cost;
  // By side, 0 for the input and 1 for the output: elements of a contiguous run, the first
  // dimension (minor first) that the tile does not cover whole (-1: none), the dimensions up to
  // that one as bits, and the bytes that every run's start is a multiple of (128 at most).
  int64_t run[2];
  int split[2];
  uint64_t in_run[2];
  int alignment[2];
  // True where every run of the side starts on a 16-byte boundary and holds whole 16-byte vectors.
  bool vectors(int side, int element_bytes) const {
    return alignment[side] % 16 == 0 && run[side] * element_bytes % 16 == 0;
  }
};

inline constexpr int64_t kFullGrid = 528;  // blocks that keep a large device busy

struct TileSetOptions {
  int64_t max_bytes;
  // Bytes of traffic that each break between two output runs costs, relative to one of input runs.
  double output_weight;
  // The tile holds whole minor runs, which then need no transpose (or a part of one run).
  bool keep_minor;
  int pointer_alignment;  // the largest power of two up to 16 that divides both addresses
};

// Finds the tile that a model of sectors and runs finds cheapest. Returns false where none fits:
// offsets within a tile are 32-bit.
bool ChooseTileSet(const Permutation& p, const Strides& strides, const TileSetOptions& options,
                   TileSet* result);

}  // namespace jax_transpose
