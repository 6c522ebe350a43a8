// Vectors of one, two or four 16-byte lanes, through compiler extensions that GCC and Clang share.
// Included by isa_kernels.cc only; JAX_TRANSPOSE_ISA is the namespace of the instruction set.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define JT_INLINE inline __attribute__((always_inline))

namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA {

#if defined(__AVX512BW__) && defined(__AVX512VL__)
inline constexpr int kLanes = 4;
#elif defined(__AVX2__)
inline constexpr int kLanes = 2;
#else
inline constexpr int kLanes = 1;
#endif

template <int kWidth>
struct WordOf;
template <>
struct WordOf<1> {
  using type = uint8_t;
};
template <>
struct WordOf<2> {
  using type = uint16_t;
};
template <>
struct WordOf<4> {
  using type = uint32_t;
};
template <>
struct WordOf<8> {
  using type = uint64_t;
};
// A 16-byte element fills a lane: it is moved, never shuffled within.
template <>
struct WordOf<16> {
  using type = uint64_t;
};

template <int kWidth, int kCount>
struct VectorOf {
  using Word = typename WordOf<kWidth>::type;
  static constexpr int kWords = 16 * kCount / sizeof(Word);
  typedef Word type __attribute__((vector_size(16 * kCount)));
  typedef Word anywhere __attribute__((vector_size(16 * kCount), aligned(1), may_alias));
};
template <int kWidth, int kCount>
using Vector = typename VectorOf<kWidth, kCount>::type;

template <int kWidth, int kCount>
JT_INLINE Vector<kWidth, kCount> Load(const char* at) {
  return *reinterpret_cast<const typename VectorOf<kWidth, kCount>::anywhere*>(at);
}

template <int kWidth, int kCount>
JT_INLINE void Store(char* at, Vector<kWidth, kCount> value) {
  *reinterpret_cast<typename VectorOf<kWidth, kCount>::anywhere*>(at) = value;
}

// Writes past the cache where the instruction set can; `at` is aligned to the vector.
template <int kWidth, int kCount>
JT_INLINE void StoreStreaming(char* at, Vector<kWidth, kCount> value) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  if constexpr (kCount == 4) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(at), reinterpret_cast<__m512i>(value));
    return;
  }
#endif
#if defined(__AVX2__)
  if constexpr (kCount == 2) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(at), reinterpret_cast<__m256i>(value));
    return;
  }
#endif
#if defined(__x86_64__)
  if constexpr (kCount == 1) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(at), reinterpret_cast<__m128i>(value));
    return;
  }
#endif
  Store<kWidth, kCount>(at, value);
}

// GCC before 12 lacks __builtin_shufflevector, the one form that Clang knows.
#if defined(__clang__) || __GNUC__ >= 12
#define JT_SHUFFLEVECTOR 1
#endif

template <class Whole, class Half, size_t... kIndex>
JT_INLINE Whole Join(Half low, Half high, std::index_sequence<kIndex...>) {
#if JT_SHUFFLEVECTOR
  return __builtin_shufflevector(low, high, static_cast<int>(kIndex)...);
#else
  Whole whole;
  __builtin_memcpy(&whole, &low, sizeof(Half));
  __builtin_memcpy(reinterpret_cast<char*>(&whole) + sizeof(Half), &high, sizeof(Half));
  return whole;
#endif
}

// Word kIndex of `a` followed by `b`, for every word of the result.
template <size_t... kIndex, class V>
JT_INLINE V Shuffle(V a, V b) {
#if JT_SHUFFLEVECTOR
  return __builtin_shufflevector(a, b, static_cast<int>(kIndex)...);
#else
  return __builtin_shuffle(a, b, V{kIndex...});
#endif
}

// kCount lanes read `step` bytes apart.
template <int kWidth, int kCount>
JT_INLINE Vector<kWidth, kCount> LoadLanes(const char* at, ptrdiff_t step) {
  if constexpr (kCount == 1) {
    return Load<kWidth, 1>(at);
  } else {
    return Join<Vector<kWidth, kCount>>(
        LoadLanes<kWidth, kCount / 2>(at, step),
        LoadLanes<kWidth, kCount / 2>(at + step * (kCount / 2), step),
        std::make_index_sequence<VectorOf<kWidth, kCount>::kWords>());
  }
}

// In every lane, the words of the low (or high) halves of `a` and `b`, alternating.
template <bool kHigh, class V, size_t... kIndex>
JT_INLINE V Zip(V a, V b, std::index_sequence<kIndex...>) {
  constexpr size_t words = sizeof...(kIndex), lane = 16 * words / sizeof(V);
  constexpr size_t half = kHigh ? lane / 2 : 0;
  return Shuffle<(kIndex / lane * lane + half + kIndex % lane / 2 + (kIndex % 2 ? words : 0))...>(
      a, b);
}

// Transposes, in every lane, the square matrix whose row i is that lane of x[i]. One round is a
// perfect shuffle of the 2^k rows' bits; k rounds exchange the row's with the column's.
template <int kWidth, int kCount>
JT_INLINE void TransposeLanes(Vector<kWidth, kCount>* x) {
  constexpr int side = 16 / kWidth;
  using Words = std::make_index_sequence<VectorOf<kWidth, kCount>::kWords>;
  if constexpr (side > 1) {
#pragma GCC unroll 4
    for (int round = 1; round < side; round *= 2) {
      Vector<kWidth, kCount> y[side];
#pragma GCC unroll 8
      for (int i = 0; i < side / 2; ++i) {
        y[2 * i] = Zip<false>(x[i], x[i + side / 2], Words());
        y[2 * i + 1] = Zip<true>(x[i], x[i + side / 2], Words());
      }
#pragma GCC unroll 16
      for (int i = 0; i < side; ++i) x[i] = y[i];
    }
  }
}

// Up to 64 bytes, as two overlapping moves of the largest power of two that fits.
JT_INLINE void CopyShort(char* out, const char* in, int64_t bytes) {
  if (bytes >= 32) {
    const auto a = Load<1, 1>(in), b = Load<1, 1>(in + 16);
    const auto c = Load<1, 1>(in + bytes - 32), d = Load<1, 1>(in + bytes - 16);
    Store<1, 1>(out, a);
    Store<1, 1>(out + 16, b);
    Store<1, 1>(out + bytes - 32, c);
    Store<1, 1>(out + bytes - 16, d);
  } else if (bytes >= 16) {
    const auto a = Load<1, 1>(in), b = Load<1, 1>(in + bytes - 16);
    Store<1, 1>(out, a);
    Store<1, 1>(out + bytes - 16, b);
  } else if (bytes >= 8) {
    uint64_t a, b;
    __builtin_memcpy(&a, in, 8);
    __builtin_memcpy(&b, in + bytes - 8, 8);
    __builtin_memcpy(out, &a, 8);
    __builtin_memcpy(out + bytes - 8, &b, 8);
  } else if (bytes >= 4) {
    uint32_t a, b;
    __builtin_memcpy(&a, in, 4);
    __builtin_memcpy(&b, in + bytes - 4, 4);
    __builtin_memcpy(out, &a, 4);
    __builtin_memcpy(out + bytes - 4, &b, 4);
  } else {
    for (int64_t i = 0; i < bytes; ++i) out[i] = in[i];
  }
}

}  // namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA
