// A tile's digits in both orders: what the second phase of a packed tile can number and read.
#pragma once

#include <cstdint>

#include "plan/packed_plan.h"
#include "plan/tile_set.h"

namespace jax_transpose {

inline constexpr int kMaxFine = 24;

// A digit of the tile: `extent` values of a dimension's coordinate, `step` apart.
struct Fine {
  int dim;
  uint32_t step, extent;
  uint32_t shared;  // stride in bytes
};

// One way to order the reads of the second phase.
struct Order {
  int cut_dim, cut;  // where output sub-runs end: `cut` elements of a dimension, 0 after all
  int64_t out_run;   // elements of an output sub-run
  int vector_cut;    // splits the output's minor dimension here, 0: not
  bool input_order;  // sub-runs are walked along the input's minor dimensions first
  Gather gather;
};

struct Digits {
  int count = 0;
  Fine fine[kMaxFine];     // in input order, minor first
  int output[kMaxFine];    // the same in output order, as indices
  int runs[kMaxFine];      // digits that number output sub-runs
  int elements[kMaxFine];  // digits within an output sub-run
  int run_count = 0, element_count = 0;
  int whole = 0;  // leading digits of `fine` that lie together: no padding inside
  int64_t whole_elements = 1;
};

class DigitMaker {
 public:
  // The references must outlive this.
  DigitMaker(const Permutation& p, const TileSet& set, bool in_vectors, bool out_vectors);

  // The gather that suits the tile's minor dimensions.
  Gather WideGather() const;
  // The longest output sub-run of at most `target` bytes, or else the shortest.
  bool PickRun(int target, Order* order) const;
  // False where the order's cuts do not divide each other, or its gather does not fit.
  bool MakeDigits(const Order& order, Digits* digits) const;

  // Vectors of an output sub-run, and sub-runs of the tile that are numbered.
  int64_t OutVectors(const Order& order) const;
  int64_t OutRuns(const Order& order) const;
  // The output's minor dimension among those that the tile covers.
  int output_minor() const { return output_dims_[0]; }

 private:
  bool vectors() const { return in_vectors_ && out_vectors_; }
  int words() const { return 4 / width_; }
  bool AddDigits(int d, const Order& order, Digits* digits) const;
  bool FitsGather(const Order& order, Digits* digits) const;
  int ColumnsAtOnce(const Order& order) const;

  const Permutation& p_;
  const TileSet& set_;
  const bool in_vectors_, out_vectors_;
  const int width_, per_vector_, minor_;
  int output_dims_[kMaxRank];  // dimensions longer than 1 in the tile, in output order, minor first
  int output_count_ = 0;
};

}  // namespace jax_transpose
