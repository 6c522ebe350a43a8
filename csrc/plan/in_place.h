// Transposes within one buffer: two dimensions of equal length change places, the others stay.
#pragma once

#include <cstdint>
#include <string>

#include "plan/both_sides.h"
#include "plan/plan.h"

namespace jax_transpose {

// The array as [batch, side, middle, side, run], of which the two sides are exchanged.
struct Swap {
  int64_t batch = 1, side = 0, middle = 1, run = 1;

  int64_t pitch() const { return middle * side * run; }  // elements from one row to the next
  int64_t matrices() const { return batch * middle; }
};

// False where the permutation is of another form.
bool FindSwap(const Permutation& p, Swap* swap);

constexpr int64_t PairCount(int64_t n) { return n * (n + 1) / 2; }

// Pair number k of the pairs i <= j < n: rows i and n - 1 - i hold n + 1 pairs together, which
// makes a rectangle of the triangle. `line` is k / (n + 1) and `place` the remainder.
template <class Index>
JAX_TRANSPOSE_INLINE void PairOf(Index line, Index place, Index n, Index* i, Index* j) {
  const bool first = place < n - line;
  *i = first ? line : n - 1 - line;
  *j = first ? line + place : place - 1;
}

// How the CPU walks a swap.
struct CpuSwap {
  // Small slices [middle, side, run] x side go through a buffer, several at once, and are copied
  // back. In large ones pairs of blocks change places.
  bool staged = false;
  int64_t slices = 0;  // a staged item's slices of the batch
  int64_t block = 0;   // elements of a block's side
  int64_t items = 0;
};
CpuSwap MakeCpuSwap(const Swap& swap, int element_bytes);

// Completes the plan of a request whose operand and result are one buffer. False where that is not
// possible; `error` then says what is.
bool PlanInPlace(const Request& request, Plan* plan, std::string* error);

}  // namespace jax_transpose
