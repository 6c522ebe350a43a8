#include "plan/tile_set.h"

#include <algorithm>

namespace jax_transpose {
namespace {

// Constants of the model, fitted to an H200: bytes of traffic that a break between two runs costs,
// a tile's fixed cost in bytes, and the weight of a tile that hangs over the array's edge.
constexpr double kRunBytes = 24;
constexpr double kTileBytes = 600;
constexpr double kEdgeWeight = 0.6;
// Bytes of traffic for each byte that a run starts after a sector boundary. An output sector that
// two blocks share is read back to be merged.
constexpr double kInputSector = 0.7, kOutputSector = 2;

constexpr int kMaxFactors = 32;
constexpr int kMaxSides = 96;

// The `whole` minor dimensions of a side, and `factor` elements of the next.
struct Side {
  int whole;
  int factor;
};

class FactorList {
 public:
  explicit FactorList(int64_t limit) : limit_(limit) {}
  void Add(int64_t value) {
    if (value < 1 || value > limit_ || count_ == kCapacity) return;
    int at = count_;
    while (at > 0 && values_[at - 1] > value) --at;
    if (at > 0 && values_[at - 1] == value) return;
    for (int i = count_; i > at; --i) values_[i] = values_[i - 1];
    values_[at] = static_cast<int>(value);
    ++count_;
  }
  int count() const { return count_; }
  int operator[](int i) const { return values_[i]; }

 private:
  static constexpr int kCapacity = 96;
  int64_t limit_;
  int count_ = 0;
  int values_[kCapacity];
};

// Sizes worth trying for a dimension: divisors, which leave no partial tile, and powers of two and
// their triples, which fill vectors. Ascending, at most kMaxFactors.
int FactorsOf(int64_t extent, int64_t limit, int* result) {
  limit = std::min(limit, extent);
  FactorList all(limit);
  constexpr int kTrialDivisors = 96;
  for (int64_t power = 1; power <= limit; power *= 2) {
    all.Add(power);
    if (power > 1) all.Add(power * 3);
  }
  for (int d = 1; d <= std::min<int64_t>(limit, kTrialDivisors); ++d) {
    if (extent % d != 0) continue;
    all.Add(extent / d);
    for (int64_t f = d; f <= limit && extent % f == 0; f *= 2) all.Add(f);
  }
  int count = 0;
  const int every = (all.count() + kMaxFactors - 1) / kMaxFactors;
  for (int i = 0; i < all.count(); ++i) {
    const bool keep = all[i] == limit || (all[i] & (all[i] - 1)) == 0 || i % every == 0;
    if (keep && count < kMaxFactors) result[count++] = all[i];
  }
  return count;
}

class Chooser {
 public:
  Chooser(const Permutation& p, const Strides& strides, const TileSetOptions& options)
      : p_(p),
        strides_(strides),
        options_(options),
        capacity_(options.max_bytes / p.element_bytes) {
    for (int i = 0; i < p.rank; ++i) {
      order_[0][i] = p.rank - 1 - i;
      order_[1][i] = p.axes[p.rank - 1 - i];
    }
  }

  bool Choose(TileSet* best) {
    best->cost = 1e30;
    best_ = best;
    ListSides(0);
    ListSides(1);
    // Large tiles first: their cost then rules most small ones out unseen.
    for (int a = count_[0] - 1; a >= 0; --a) {
      TileSet set;
      set.elements = 1;
      std::fill(set.extent, set.extent + p_.rank, 1);
      if (!Extend(0, sides_[0][a], &set)) continue;
      for (int b = count_[1] - 1; b >= 0; --b) {
        TileSet both = set;
        if (Extend(1, sides_[1][b], &both)) Consider(&both);
      }
    }
    return best->cost < 1e29;
  }

 private:
  void ListSides(int side) {
    int64_t whole = 1;
    int& count = count_[side] = 0;
    for (int k = 0; k < p_.rank && whole <= capacity_; ++k) {
      const int64_t extent = p_.extent[order_[side][k]];
      int factors[kMaxFactors];
      const int found = FactorsOf(extent, capacity_ / whole, factors);
      for (int i = 0; i < found; ++i) {
        // A dimension covered whole is the next dimension's factor of 1.
        if (factors[i] == extent && k + 1 < p_.rank) continue;
        if (count < kMaxSides) sides_[side][count++] = {k, factors[i]};
      }
      whole *= extent;
    }
  }

  bool Extend(int side, const Side& part, TileSet* set) const {
    for (int k = 0; k <= part.whole; ++k) {
      const int d = order_[side][k];
      const int64_t want = k < part.whole ? p_.extent[d] : part.factor;
      if (want <= set->extent[d]) continue;
      set->elements = set->elements / set->extent[d] * want;
      if (set->elements > capacity_) return false;
      set->extent[d] = static_cast<int>(want);
    }
    return true;
  }

  void Consider(TileSet* set) {
    const int width = p_.element_bytes;
    const double bytes = static_cast<double>(set->elements * width);
    const double break_cost = kRunBytes * (1 + options_.output_weight);
    if (2 + (kTileBytes + break_cost) / bytes >= best_->cost) return;
    if (options_.keep_minor && !KeepsMinor(*set)) return;

    int64_t blocks = 1, span[2] = {0, 0};
    double overhang = 1;
    for (int d = 0; d < p_.rank; ++d) {
      const int t = set->extent[d];
      span[0] += (t - 1) * strides_.in[d];
      span[1] += (t - 1) * strides_.out[d];
      if (t == p_.extent[d]) continue;
      const int64_t tiles = CeilDiv(p_.extent[d], t);
      blocks *= tiles;
      if (tiles * t != p_.extent[d]) overhang *= static_cast<double>(tiles * t) / p_.extent[d];
    }
    constexpr int64_t kMaxSpan = (int64_t{1} << 32) - (1 << 16),
                      kMaxBlocks = (int64_t{1} << 31) - 1;
    if (span[0] >= kMaxSpan || span[1] >= kMaxSpan || blocks > kMaxBlocks) return;

    double cost = kTileBytes / bytes + kEdgeWeight * (overhang - 1);
    set->blocks = blocks;
    if (blocks < kFullGrid) cost += 0.3 * static_cast<double>(kFullGrid - blocks) / kFullGrid;
    for (int side = 0; side < 2; ++side) {
      MeasureRuns(side, set);
      const double run_bytes = static_cast<double>(set->run[side] * width);
      const double break_bytes = kRunBytes * (side == 0 ? 1 : options_.output_weight);
      const int alignment = set->alignment[side];
      const double sector =
          alignment >= 32 ? 0 : (side == 0 ? kInputSector : kOutputSector) * (32 - alignment);
      const double line = alignment >= 128 ? 0 : 0.12 * (128 - std::max(alignment, 32));
      cost += 1 + (sector + line + break_bytes) / run_bytes;
      if (!set->vectors(side, width)) cost += (side == 0 ? 0.05 : 0.08) * std::max(1, 4 / width);
    }
    if (cost < best_->cost) {
      *best_ = *set;
      best_->cost = cost;
    }
  }

  bool KeepsMinor(const TileSet& set) const {
    const int minor = p_.rank - 1;
    return set.extent[minor] == p_.extent[minor] ||
           (set.elements == set.extent[minor] && p_.extent[minor] > capacity_);
  }

  void MeasureRuns(int side, TileSet* set) const {
    const int64_t* stride = side == 0 ? strides_.in : strides_.out;
    set->run[side] = 1;
    set->split[side] = -1;
    set->in_run[side] = 0;
    // JAX allocates on 128-byte boundaries and more; 16 stands for that.
    int64_t bits = options_.pointer_alignment >= 16 ? 128 : options_.pointer_alignment;
    for (int i = 0; i < p_.rank; ++i) {
      const int d = order_[side][i], t = set->extent[d];
      const bool outside = set->split[side] >= 0;
      if (!outside) {
        set->run[side] *= t;
        set->in_run[side] |= uint64_t{1} << d;
        if (t != p_.extent[d]) set->split[side] = d;
      } else if (t > 1) {
        bits |= stride[d] * p_.element_bytes;
      }
      if (t != p_.extent[d]) bits |= stride[d] * t * p_.element_bytes;
    }
    set->alignment[side] = static_cast<int>(bits & -bits);
  }

  const Permutation& p_;
  const Strides& strides_;
  const TileSetOptions options_;
  const int64_t capacity_;
  TileSet* best_ = nullptr;
  int order_[2][kMaxRank];  // dimensions of a side, minor first
  Side sides_[2][kMaxSides];
  int count_[2];
};

}  // namespace

bool ChooseTileSet(const Permutation& p, const Strides& strides, const TileSetOptions& options,
                   TileSet* result) {
  return Chooser(p, strides, options).Choose(result);
}

}  // namespace jax_transpose
