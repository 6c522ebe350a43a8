// The plans of a thread's recent calls. Planning takes up to a few hundred microseconds; a program
// asks for the same few plans again and again. A cache for each thread needs no lock, and holds for
// every device and program alike: a plan depends on nothing but the call's own arguments.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "ffi/arguments.h"

namespace jax_transpose {

// Everything that a plan depends on, word by word.
class PlanKey {
 public:
  PlanKey(Platform platform, const int64_t* dims, const int64_t* axes, int64_t rank,
          int64_t element_bits, std::string_view kernel, int64_t tile, int pointer_alignment,
          bool in_place) {
    if (rank > kMaxKeyRank || kernel.size() > kNameWords * sizeof(int64_t)) return;
    int64_t name[kNameWords] = {};
    std::memcpy(name, kernel.data(), kernel.size());
    for (int64_t word : name) Add(word);
    Add(static_cast<int64_t>(platform));
    Add(element_bits);
    Add(tile);
    Add(pointer_alignment | in_place << 8);
    for (int64_t i = 0; i < rank; ++i) Add(dims[i]);
    for (int64_t i = 0; i < rank; ++i) Add(axes[i]);
  }
  // False where the call is too unusual to be remembered.
  bool valid() const { return count_ > 0; }
  uint64_t hash() const { return hash_ ^ hash_ >> 32; }
  bool operator==(const PlanKey& other) const {
    return count_ == other.count_ &&
           std::memcmp(words_, other.words_, count_ * sizeof(words_[0])) == 0;
  }

 private:
  static constexpr int kMaxKeyRank = 32, kNameWords = 3;
  void Add(int64_t word) {
    words_[count_++] = word;
    hash_ = (hash_ ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15u;
    hash_ ^= hash_ >> 29;
  }
  int count_ = 0;
  uint64_t hash_ = 0;
  int64_t words_[kNameWords + 4 + 2 * kMaxKeyRank];
};

struct CachedPlan {
  PlanKey key;
  Plan plan;
};

// `plan` then points at a plan that lasts until the thread's next call. Types and shapes must have
// been checked.
inline ffi::Error CachedPlanCall(Platform platform, ffi::AnyBuffer in, ffi::AnyBuffer out,
                                 ffi::Span<const int64_t> permutation, int64_t element_bits,
                                 std::string_view kernel, int64_t tile, const Plan** plan) {
  // A plan lies in one of the slots of its set; a new one takes the first slot, the others move up
  // and the last is forgotten. The slot after all sets is for calls that are not remembered.
  constexpr uint64_t kSets = 64, kWays = 4;
  thread_local std::unique_ptr<CachedPlan> slots[kSets * kWays + 1];
  const PlanKey key(platform, in.dimensions().begin(), permutation.begin(),
                    static_cast<int64_t>(permutation.size()), element_bits, kernel, tile,
                    PointerAlignment(in.untyped_data(), out.untyped_data()),
                    in.untyped_data() == out.untyped_data());
  std::unique_ptr<CachedPlan>* set = slots + (key.valid() ? key.hash() % kSets : kSets) * kWays;
  const uint64_t ways = key.valid() ? kWays : 1;
  for (uint64_t i = 0; i < ways && key.valid() && set[i] != nullptr; ++i) {
    if (!(set[i]->key == key)) continue;
    *plan = &set[i]->plan;
    return ffi::Error::Success();
  }
  auto fresh = std::make_unique<CachedPlan>(CachedPlan{key, {}});
  ffi::Error error =
      PlanCall(platform, in, out, permutation, element_bits, kernel, tile, &fresh->plan);
  if (error.failure()) return error;
  for (uint64_t i = ways - 1; i > 0; --i) set[i] = std::move(set[i - 1]);
  set[0] = std::move(fresh);
  *plan = &set[0]->plan;
  return ffi::Error::Success();
}

}  // namespace jax_transpose
