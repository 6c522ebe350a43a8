// Transposes of packed elements in registers, for both platforms.
#pragma once

#include <cstdint>

#include "plan/both_sides.h"

namespace jax_transpose {

// Exchanges the odd fields of `a` with the even ones of `b`: fields of `kBits` bits, counted from
// the lowest.
template <int kBits>
JAX_TRANSPOSE_INLINE void ExchangeFields(uint32_t& a, uint32_t& b) {
#if defined(__CUDA_ARCH__)
  if constexpr (kBits >= 8) {
    const uint32_t even = __byte_perm(a, b, kBits == 16 ? 0x5410 : 0x6240);
    b = __byte_perm(a, b, kBits == 16 ? 0x7632 : 0x7351);
    a = even;
    return;
  }
#endif
  constexpr uint32_t kEven = kBits == 16  ? 0x0000FFFF
                             : kBits == 8 ? 0x00FF00FF
                             : kBits == 4 ? 0x0F0F0F0F
                                          : 0x33333333;
  const uint32_t even = (a & kEven) | ((b & kEven) << kBits);
  b = ((a >> kBits) & kEven) | (b & ~kEven);
  a = even;
}

// The stages of a block transpose: halves first, then ever finer fields. Each word is `kLanes`
// words of as many blocks side by side, which gives the CPU's compiler loops to vectorize.
template <int kBits, int kField, int kLanes>
JAX_TRANSPOSE_INLINE void BlockStage(uint32_t (*words)[kLanes]) {
  constexpr int kWords = 32 / kBits, kDistance = kField / kBits;
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int i = 0; i < kWords; ++i) {
    if (i & kDistance) continue;
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (int lane = 0; lane < kLanes; ++lane) {
      ExchangeFields<kField>(words[i][lane], words[i + kDistance][lane]);
    }
  }
  if constexpr (kField > kBits) BlockStage<kBits, kField / 2, kLanes>(words);
}

// Transposes blocks of 32 / kBits words with as many elements each: afterwards element r of word c
// is what was element c of word r.
template <int kBits, int kLanes>
JAX_TRANSPOSE_INLINE void TransposeBlocks(uint32_t (*words)[kLanes]) {
  static_assert(kBits == 4 || kBits == 2, "the widths that XLA packs and these kernels move");
  BlockStage<kBits, 16, kLanes>(words);
}

}  // namespace jax_transpose
