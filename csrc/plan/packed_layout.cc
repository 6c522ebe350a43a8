#include "plan/packed_layout.h"

#include <algorithm>
#include <cstring>

#include "plan/packed_digits.h"

namespace jax_transpose {
namespace {

// Twofold conflicts hide behind the memory system: they end the search for better orders.
constexpr double kNoConflicts = 1.1, kFewConflicts = 2.2;
// Asynchronous copies write 16 bytes each; where padding breaks up 128-byte lines they write them
// badly, and the way through registers is faster. Threefold conflicts are cheaper than either.
constexpr int kUnbrokenBytes = 128;
constexpr double kBearableConflicts = 3.1;
constexpr int kPadTrials = 12, kPairTrials = 8;  // of an order: they bound the time of planning

class Layouter {
 public:
  Layouter(const Permutation& p, const Strides& strides, const TileSet& set, PackedLaunch* launch)
      : strides_(strides),
        set_(set),
        launch_(launch),
        width_(p.element_bytes),
        per_vector_(16 / p.element_bytes),
        minor_(p.rank - 1),
        maker_(p, set, launch->in_vectors, launch->out_vectors) {}

  bool Run() {
    Gather gather = maker_.WideGather();
    Search(gather);
    if (!found_ && gather != Gather::kElements) Search(gather = Gather::kElements);
    if (found_ && conflicts_ > kBearableConflicts && vectors() && width_ < 16) {
      break_lines_ = true;
      Search(gather);
    }
    return found_ && Emit();
  }

 private:
  bool vectors() const { return launch_->in_vectors && launch_->out_vectors; }

  void Search(Gather gather) {
    // Unaligned output sub-runs pay at both ends, so they are as long as they can be.
    constexpr int kTargets[] = {512, 256, 128, 1024}, kLongest[] = {1 << 20};
    const int* target = launch_->out_vectors ? kTargets : kLongest;
    const int* end = target + (launch_->out_vectors ? 4 : 1);
    int64_t tried[4];
    for (int count = 0; target != end; ++target) {
      Order order;
      order.gather = gather;
      if (!maker_.PickRun(*target, &order)) return;
      if (std::find(tried, tried + count, order.out_run) != tried + count) continue;
      tried[count++] = order.out_run;
      for (int cut : {0, per_vector_}) {
        for (bool input_order : {false, true}) {
          order.vector_cut = cut;
          order.input_order = input_order;
          Try(order);
          if (found_ && conflicts_ <= kNoConflicts) return;
        }
      }
      if (found_ && conflicts_ <= kFewConflicts) return;
    }
  }

  // The lanes of one warp in the middle of the tile, by the coordinates of what they read.
  struct Sample {
    int reads = 0, lanes = 0;
    uint16_t coordinate[4][32][kMaxFine];
  };

  void TakeSample(const Order& order, const Digits& digits, Sample* sample) const {
    const int64_t vectors = maker_.OutVectors(order), items = maker_.OutRuns(order) * vectors;
    const int64_t warps = (items + 31) / 32, first = (warps - 1) / 2 * 32;
    sample->lanes = static_cast<int>(std::min<int64_t>(32, items - first));
    const int stride = per_vector_ >= 16 ? 5 : per_vector_ >= 8 ? 3 : 1;
    for (int k = 0; k < per_vector_ && sample->reads < 4; k += stride, ++sample->reads) {
      for (int lane = 0; lane < sample->lanes; ++lane) {
        uint16_t* coordinate = sample->coordinate[sample->reads][lane];
        const auto item = static_cast<uint32_t>(first + lane);
        const auto per_run = static_cast<uint32_t>(vectors);
        uint32_t run = item / per_run, element = item % per_run * per_vector_ + k;
        std::memset(coordinate, 0, sizeof(uint16_t) * digits.count);
        auto spread = [&](uint32_t n, const int* list, int count) {
          for (int i = 0; i < count; ++i) {
            const uint32_t extent = digits.fine[list[i]].extent;
            coordinate[list[i]] = static_cast<uint16_t>(n % extent);
            n /= extent;
          }
        };
        spread(run, digits.runs, digits.run_count);
        spread(element, digits.elements, digits.element_count);
      }
    }
  }

  // Shared-memory wavefronts a read takes, over the fewest possible.
  double CountConflicts(const Digits& digits, const Sample& sample) const {
    const uint32_t unit = std::max(4, width_), banks = 128 / unit;
    int total = 0, groups = 0;
    for (int read = 0; read < sample.reads; ++read) {
      for (int begin = 0; begin < sample.lanes; begin += banks) {
        uint16_t words[32][32];
        uint8_t count[32] = {};
        int most = 1;
        const int end = std::min<int>(begin + banks, sample.lanes);
        for (int lane = begin; lane < end; ++lane) {
          uint32_t address = 0;
          for (int i = 0; i < digits.count; ++i) {
            address += sample.coordinate[read][lane][i] * digits.fine[i].shared;
          }
          const uint32_t word = address / unit, bank = word % banks;
          int i = 0;
          while (i < count[bank] && words[bank][i] != word) ++i;
          if (i < count[bank]) continue;
          words[bank][count[bank]++] = static_cast<uint16_t>(word);
          most = std::max<int>(most, count[bank]);
        }
        total += most;
        ++groups;
      }
    }
    return static_cast<double>(total) / groups;
  }

  // Shared strides with `pad` units of padding before each digit; the tile's bytes.
  uint32_t SetStrides(const int* pad, Digits* digits) const {
    const int unit = launch_->in_vectors ? 16 : std::max(4, width_);
    uint32_t stride = width_, bytes = width_;
    for (int i = 0; i < digits->count; ++i) {
      Fine& fine = digits->fine[i];
      stride += pad[i] * unit;
      fine.shared = stride;
      bytes += (fine.extent - 1) * stride;
      stride *= fine.extent;
    }
    return (bytes + 15) / 16 * 16;
  }

  int SharedBytes(const Order& order, uint32_t tile_bytes) {
    PackedGrid& grid = launch_->grid;
    grid.run_table = tile_bytes;
    grid.length_table = grid.run_table + 8 * static_cast<uint32_t>(maker_.OutRuns(order));
    grid.element_table = grid.length_table;
    if (grid.partial) grid.element_table += 4 * static_cast<uint32_t>(maker_.OutRuns(order));
    grid.element_table = (grid.element_table + 15) / 16 * 16;
    const int64_t elements = order.out_run + (launch_->out_vectors ? 0 : 2 * per_vector_);
    return static_cast<int>(grid.element_table + (2 * elements + 15) / 16 * 16);
  }

  bool BreaksLines(const Digits& digits, const int* pad) const {
    if (!vectors()) return false;
    int64_t unbroken = width_;
    for (int i = 0; i < digits.count; ++i) {
      if (pad[i] != 0) return unbroken < kUnbrokenBytes;
      unbroken *= digits.fine[i].extent;
    }
    return false;
  }

  // Whether padding moves the halves of a 32-byte sector into two sectors of shared memory. An
  // asynchronous copy of it then takes two requests instead of one: in all half as many again.
  bool SplitsSectors(const Digits& digits, const int* pad) const {
    if (!vectors()) return false;
    int64_t bytes = width_;
    for (int i = 0; i < digits.count; ++i) {
      if (pad[i] != 0 && (pad[i] % 2 != 0 || bytes % kSectorBytes != 0)) return true;
      bytes *= digits.fine[i].extent;
    }
    return false;
  }

  // Through registers sectors stay whole, but each vector takes more instructions, which only
  // pays where finding the tile takes one division. Elements of 16 bytes are always copied.
  bool CopiesAsync() const {
    if (!launch_->in_vectors || width_ == 16) return launch_->in_vectors;
    if (BreaksLines(digits_, pad_)) return false;
    return launch_->grid.grid_digits > 1 || !SplitsSectors(digits_, pad_);
  }

  bool MayPad(const Digits& digits, int i) const {
    int pad[kMaxFine] = {};
    pad[i] = 1;
    return width_ == 16 || break_lines_ || !BreaksLines(digits, pad);
  }

  double Attempt(const Order& order, const int* pad, const Sample& sample, Digits* digits) {
    const uint32_t bytes = SetStrides(pad, digits);
    if (SharedBytes(order, bytes) > kPackedSharedBytes) return 1e9;
    double conflicts = order.gather == Gather::kTakeApart3    ? 1
                       : order.gather == Gather::kInterleave3 ? 1.2
                                                              : CountConflicts(*digits, sample);
    if (BreaksLines(*digits, pad)) {
      conflicts += width_ < 16 ? kBearableConflicts - 1 : SplitsSectors(*digits, pad) ? 1 : 0;
    }
    const int64_t run_bytes = order.out_run * width_;
    const double score = conflicts + (run_bytes < 512 ? 0.02 : 0) + (run_bytes < 128 ? 1 : 0) +
                         0.02 * digits->run_count + (order.input_order ? 0.03 : 0);
    if (!found_ || score < score_ - 1e-9) {
      found_ = true;
      score_ = score;
      conflicts_ = conflicts;
      order_ = order;
      digits_ = *digits;
      std::copy(pad, pad + digits->count, pad_);
    }
    return conflicts;
  }

  void Try(const Order& order) {
    if (order.vector_cut != 0) {
      const int t = set_.extent[maker_.output_minor()];
      if (order.vector_cut == 1 || t % order.vector_cut != 0 || t == order.vector_cut) return;
    }
    Digits digits;
    if (!maker_.MakeDigits(order, &digits)) return;
    Sample sample;
    const bool counted = order.gather == Gather::kElements || order.gather == Gather::kWords;
    if (counted) TakeSample(order, digits, &sample);
    int pad[kMaxFine] = {};
    int trials = 0, pair_trials = 0;
    double least = Attempt(order, pad, sample, &digits);
    if (!counted) return;
    for (int i = digits.whole; i < digits.count && least > kNoConflicts; ++i) {
      if (!MayPad(digits, i)) continue;
      for (int units : {1, 2, 3, 4, 6}) {
        if (trials++ >= kPadTrials) break;
        pad[i] = units;
        least = std::min(least, Attempt(order, pad, sample, &digits));
        if (least <= kNoConflicts) break;
      }
      pad[i] = 0;
    }
    for (int i = digits.whole; i < digits.count && least > kFewConflicts; ++i) {
      if (!MayPad(digits, i)) continue;
      for (int j = i + 1; j < digits.count && least > 1.3; ++j) {
        for (int units : {1, 2, 4}) {
          for (int others : {1, 2}) {
            if (pair_trials++ >= kPairTrials) return;
            pad[i] = units;
            pad[j] = others;
            least = std::min(least, Attempt(order, pad, sample, &digits));
          }
        }
        pad[i] = pad[j] = 0;
      }
    }
  }

  // A side's digits as the kernel reads them.
  TileDigit MakeDigit(const Fine& fine, int side) const {
    const int64_t* stride = side == 0 ? strides_.in : strides_.out;
    const auto global = static_cast<uint32_t>(fine.step * stride[fine.dim]);
    const bool across = fine.dim == set_.split[1 - side] && set_.split[0] != set_.split[1];
    const bool along = set_.in_run[side] >> fine.dim & 1;
    return {0, fine.extent, global, fine.shared, across ? fine.step : 0, along ? global : 0};
  }

  bool Emit() {
    PackedGrid& grid = launch_->grid;
    launch_->gather = order_.gather;
    launch_->shared_bytes = SharedBytes(order_, SetStrides(pad_, &digits_));
    const Fine* fine = digits_.fine;

    int next = digits_.whole, count = 0;
    int64_t run = digits_.whole_elements;
    // The sub-run grows while both memories continue it.
    for (; next < digits_.count; ++next) {
      const Fine& f = fine[next];
      if (!(set_.in_run[0] >> f.dim & 1) || f.shared != run * width_ ||
          f.step * strides_.in[f.dim] != run) {
        break;
      }
      run *= f.extent;
    }
    launch_->async = CopiesAsync();

    for (; next < digits_.count; ++next) {
      if (count == kMaxTileDigits) return false;
      grid.in[count++] = MakeDigit(fine[next], 0);
    }
    grid.in_digits = MergeDigits(grid.in, count);
    grid.in_run = static_cast<uint32_t>(run);
    grid.in_vectors = static_cast<uint32_t>(
        launch_->in_vectors ? run / per_vector_ : (run + 2 * (per_vector_ - 1)) / per_vector_);
    grid.in_vectors_reciprocal = Reciprocal(grid.in_vectors);
    grid.in_items = static_cast<uint32_t>(set_.elements / run * grid.in_vectors);

    if (digits_.run_count > kMaxTileDigits || digits_.element_count > kMaxTileDigits) return false;
    for (int i = 0; i < digits_.run_count; ++i) grid.out[i] = MakeDigit(fine[digits_.runs[i]], 1);
    grid.out_digits = MergeDigits(grid.out, digits_.run_count);
    for (int i = 0; i < digits_.element_count; ++i) {
      const Fine& f = fine[digits_.elements[i]];
      grid.element[i] = {0, f.extent, 0, f.shared, 0, 0};
    }
    // An interleaving kernel takes its rows' stride from the first digit.
    grid.element_digits = order_.gather == Gather::kInterleave3
                              ? digits_.element_count
                              : MergeDigits(grid.element, digits_.element_count);
    FinishDigits(grid.in, grid.in_digits);
    FinishDigits(grid.out, grid.out_digits);
    FinishDigits(grid.element, grid.element_digits);
    grid.out_run = static_cast<uint32_t>(order_.out_run);
    grid.out_vectors = static_cast<uint32_t>(maker_.OutVectors(order_));
    grid.out_vectors_reciprocal = Reciprocal(grid.out_vectors);
    grid.out_runs = static_cast<uint32_t>(maker_.OutRuns(order_));
    grid.out_items = grid.out_runs * grid.out_vectors;
    grid.column_stride = static_cast<uint32_t>(strides_.out[minor_]);
    return grid.in_items < 65536 && grid.out_items < 65536;
  }

  const Strides& strides_;
  const TileSet& set_;
  PackedLaunch* const launch_;
  const int width_, per_vector_, minor_;
  const DigitMaker maker_;

  bool break_lines_ = false;  // padding may break up 128-byte lines
  bool found_ = false;
  double score_ = 0, conflicts_ = 0;
  Order order_;
  Digits digits_;
  int pad_[kMaxFine];
};

}  // namespace

uint32_t Reciprocal(uint32_t divisor) {
  return divisor <= 1 ? 0 : static_cast<uint32_t>(((uint64_t{1} << 32) + divisor - 1) / divisor);
}

int MergeDigits(TileDigit* digits, int count) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const TileDigit& digit = digits[i];
    if (digit.extent == 1) continue;
    if (kept > 0) {
      TileDigit& last = digits[kept - 1];
      if (digit.global == last.extent * last.global && digit.shared == last.extent * last.shared &&
          digit.across == last.extent * last.across && digit.along == last.extent * last.along) {
        last.extent *= digit.extent;
        continue;
      }
    }
    digits[kept++] = digit;
  }
  return kept;
}

void FinishDigits(TileDigit* digits, int count) {
  uint32_t before = 1;
  for (int i = 0; i < count; ++i) {
    digits[i].reciprocal = Reciprocal(before);
    before *= digits[i].extent;
  }
  for (int i = count - 1; i > 0; --i) {
    const TileDigit& inner = digits[i - 1];
    digits[i].global -= inner.extent * inner.global;
    digits[i].shared -= inner.extent * inner.shared;
    digits[i].across -= inner.extent * inner.across;
    digits[i].along -= inner.extent * inner.along;
  }
}

bool LayOutTile(const Permutation& p, const Strides& strides, const TileSet& set,
                PackedLaunch* launch) {
  return Layouter(p, strides, set, launch).Run();
}

}  // namespace jax_transpose
