#include "plan/packed_digits.h"

#include <algorithm>

namespace jax_transpose {
namespace {

constexpr int kMaxRuns = 1024;    // output sub-runs of a tile
constexpr int kMaxSubRun = 2048;  // elements of one, where shorter ones exist

}  // namespace

DigitMaker::DigitMaker(const Permutation& p, const TileSet& set, bool in_vectors, bool out_vectors)
    : p_(p),
      set_(set),
      in_vectors_(in_vectors),
      out_vectors_(out_vectors),
      width_(p.element_bytes),
      per_vector_(16 / p.element_bytes),
      minor_(p.rank - 1) {
  for (int i = p.rank - 1; i >= 0; --i) {
    if (set.extent[p.axes[i]] > 1) output_dims_[output_count_++] = p.axes[i];
  }
}

Gather DigitMaker::WideGather() const {
  if (!vectors() || width_ >= 4 || output_count_ == 0) return Gather::kElements;
  const int first = output_dims_[0];
  const bool whole3 = width_ == 1 && set_.extent[first] == 3 && p_.extent[first] == 3;
  if (whole3 && first != minor_ && output_count_ > 1 && output_dims_[1] == minor_) {
    return Gather::kInterleave3;
  }
  if (set_.extent[minor_] % words() == 0 && p_.extent[minor_] % words() == 0) {
    return Gather::kWords;
  }
  if (width_ == 1 && set_.extent[minor_] == 3 && p_.extent[minor_] == 3 && first == minor_ - 1) {
    return Gather::kTakeApart3;
  }
  return Gather::kElements;
}

bool DigitMaker::PickRun(int target, Order* order) const {
  auto better = [&](int64_t run, int64_t best) {
    const bool fits = run * width_ <= target, best_fits = best * width_ <= target;
    if (fits != best_fits) return fits;
    return fits ? run > best : run < best;
  };
  bool found = false;
  for (int limit : {kMaxSubRun, 16384}) {
    int64_t below = 1;
    for (int i = 0; i < output_count_; ++i) {
      const int d = output_dims_[i], t = set_.extent[d];
      if (!(set_.in_run[1] >> d & 1) || below > limit) break;
      for (int f = 1; f <= t && below * f <= limit; ++f) {
        if (t % f != 0) continue;
        const int64_t run = below * f;
        if (out_vectors_ && run % per_vector_ != 0) continue;
        if (set_.elements / run > kMaxRuns) continue;
        if (found && !better(run, order->out_run)) continue;
        order->cut_dim = d;
        order->cut = f == t ? 0 : f;
        order->out_run = run;
        found = true;
      }
      below *= t;
    }
    if (found) return true;
  }
  return false;
}

// Digits of dimension d for this order; false where cuts do not divide each other.
bool DigitMaker::AddDigits(int d, const Order& order, Digits* digits) const {
  int cuts[4], count = 0;
  auto add = [&](int dim, int cut) {
    if (dim != d || cut <= 1 || cut >= set_.extent[d]) return;
    int at = count++;
    for (; at > 0 && cuts[at - 1] > cut; --at) cuts[at] = cuts[at - 1];
    cuts[at] = cut;
  };
  add(order.cut_dim, order.cut);
  add(output_dims_[0], order.vector_cut);
  if (order.gather == Gather::kWords) add(minor_, words());
  cuts[count++] = set_.extent[d];
  int step = 1;
  for (int i = 0; i < count; ++i) {
    if (cuts[i] == step) continue;
    if (cuts[i] % step != 0 || digits->count == kMaxFine) return false;
    digits->fine[digits->count++] = {d, static_cast<uint32_t>(step),
                                     static_cast<uint32_t>(cuts[i] / step), 0};
    step = cuts[i];
  }
  return true;
}

bool DigitMaker::MakeDigits(const Order& order, Digits* digits) const {
  for (int d = minor_; d >= 0; --d) {
    if (set_.extent[d] > 1 && !AddDigits(d, order, digits)) return false;
  }
  int placed = 0;
  for (int i = 0; i < output_count_; ++i) {
    for (int k = 0; k < digits->count; ++k) {
      if (digits->fine[k].dim == output_dims_[i]) digits->output[placed++] = k;
    }
  }
  const Fine* fine = digits->fine;
  const bool in_vectors = in_vectors_;
  while (digits->whole < digits->count && (in_vectors ? digits->whole_elements % per_vector_ != 0
                                                      : digits->whole_elements < set_.run[0])) {
    digits->whole_elements *= fine[digits->whole++].extent;
  }
  if (in_vectors && digits->whole_elements % per_vector_ != 0) return false;

  int64_t below = 1;
  for (int i = 0; i < digits->count; ++i) {
    const int k = digits->output[i];
    if (below < order.out_run) {
      digits->elements[digits->element_count++] = k;
    } else {
      digits->runs[digits->run_count++] = k;
    }
    below *= fine[k].extent;
  }
  if (!FitsGather(order, digits)) return false;
  if (order.input_order) std::sort(digits->runs, digits->runs + digits->run_count);
  if (order.gather == Gather::kWords || order.gather == Gather::kTakeApart3) {
    // The columns that share a word are not numbered: every read brings all of them.
    int* end = std::remove_if(digits->runs, digits->runs + digits->run_count,
                              [&](int k) { return fine[k].dim == minor_ && fine[k].step == 1; });
    digits->run_count = static_cast<int>(end - digits->runs);
  }
  return true;
}

bool DigitMaker::FitsGather(const Order& order, Digits* digits) const {
  if (order.gather == Gather::kElements) return true;
  const Fine* fine = digits->fine;
  const int* output = digits->output;
  if (order.gather == Gather::kInterleave3) {
    return digits->count > 1 && fine[output[0]].extent == 3 && fine[output[1]].dim == minor_ &&
           fine[output[1]].step == 1 && fine[output[1]].extent % 16 == 0 &&
           order.out_run == 3 * static_cast<int64_t>(fine[output[1]].extent);
  }
  for (int i = 0; i < digits->element_count; ++i) {
    if (fine[digits->elements[i]].dim == minor_) return false;
  }
  if (order.gather == Gather::kTakeApart3) {
    if (digits->count < 2 || fine[output[0]].extent % 16 != 0 || fine[1].dim != output_dims_[0]) {
      return false;
    }
    while (digits->whole < 2) digits->whole_elements *= fine[digits->whole++].extent;
  }
  return true;
}

int64_t DigitMaker::OutVectors(const Order& order) const {
  return out_vectors_ ? order.out_run / per_vector_
                      : (order.out_run + 2 * (per_vector_ - 1)) / per_vector_;
}
int DigitMaker::ColumnsAtOnce(const Order& order) const {
  return order.gather == Gather::kWords ? words() : order.gather == Gather::kTakeApart3 ? 3 : 1;
}
int64_t DigitMaker::OutRuns(const Order& order) const {
  return set_.elements / order.out_run / ColumnsAtOnce(order);
}

}  // namespace jax_transpose
