// Division by a number that is known beforehand.
#pragma once

#include <cstdint>

namespace jax_transpose {

// n / d is (the upper half of n * multiplier, plus n) >> shift, for n and d below 2^31 (Granlund
// and Montgomery, "Division by invariant integers using multiplication", 1994).
struct Divisor {
  uint32_t multiplier, shift;
};

inline Divisor MakeDivisor(int64_t d) {
  uint32_t shift = 0;
  while ((int64_t{1} << shift) < d) ++shift;
  const uint64_t above = (uint64_t{1} << shift) - d;
  return {static_cast<uint32_t>((uint64_t{1} << 32) * above / d + 1), shift};
}

}  // namespace jax_transpose
