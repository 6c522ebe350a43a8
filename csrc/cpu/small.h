// Matrices of up to 256 bytes that lie whole in both arrays: loaded, put in order by permutations
// of whole vectors, and stored. With AVX-512 only. Included by isa_kernels.cc only.
#pragma once

#include "cpu/kernel_table.h"
#include "cpu/vectors.h"

namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA {

#if defined(__AVX512BW__) && defined(__AVX512VL__)

// Permutes words of one vector, or of two concatenated, by index; only an index's low bits count.
template <int kWord>
struct Permuter;

#define JT_PERMUTER(kWord, suffix, mask_type)                               \
  template <>                                                               \
  struct Permuter<kWord> {                                                  \
    using Mask = mask_type;                                                 \
    static JT_INLINE __m512i Load(Mask mask, const char* at) {              \
      return _mm512_maskz_loadu_##suffix(mask, at);                         \
    }                                                                       \
    static JT_INLINE void Store(char* at, Mask mask, __m512i value) {       \
      _mm512_mask_storeu_##suffix(at, mask, value);                         \
    }                                                                       \
    static JT_INLINE __m512i Blend(Mask mask, __m512i a, __m512i b) {       \
      return _mm512_mask_blend_##suffix(mask, a, b);                        \
    }                                                                       \
    static JT_INLINE __m512i Permute(__m512i index, __m512i a);             \
    static JT_INLINE __m512i Permute2(__m512i index, __m512i a, __m512i b); \
  }
JT_PERMUTER(1, epi8, __mmask64);
JT_PERMUTER(2, epi16, __mmask32);
JT_PERMUTER(4, epi32, __mmask16);
JT_PERMUTER(8, epi64, __mmask8);
#undef JT_PERMUTER

#define JT_PERMUTE(kWord, suffix)                                                    \
  JT_INLINE __m512i Permuter<kWord>::Permute(__m512i index, __m512i a) {             \
    return _mm512_permutexvar_##suffix(index, a);                                    \
  }                                                                                  \
  JT_INLINE __m512i Permuter<kWord>::Permute2(__m512i index, __m512i a, __m512i b) { \
    return _mm512_permutex2var_##suffix(a, index, b);                                \
  }
JT_PERMUTE(2, epi16)
JT_PERMUTE(4, epi32)
JT_PERMUTE(8, epi64)
#undef JT_PERMUTE
// Not every processor with AVX-512 has these two, so the compiler must not use them by itself.
JT_INLINE __m512i Permuter<1>::Permute(__m512i index, __m512i a) {
  __m512i result;
  __asm__("vpermb %2, %1, %0" : "=v"(result) : "v"(index), "v"(a));
  return result;
}
JT_INLINE __m512i Permuter<1>::Permute2(__m512i index, __m512i a, __m512i b) {
  __asm__("vpermi2b %2, %1, %0" : "+v"(index) : "v"(a), "v"(b));
  return index;
}

// Which word of a matrix, or of several behind each other, becomes each word of its transpose.
template <int kWord>
struct SmallOrder {
  static constexpr int kWords = 64 / kWord, kVectors = 4;
  using Mask = typename Permuter<kWord>::Mask;

  alignas(64) typename WordOf<kWord>::type source[kVectors * kWords];
  Mask high[kVectors];  // words of an output vector that come from the third or fourth input one
  Mask last, single;    // words in the last vector: of all matrices, and of one alone
  int64_t together;     // matrices at once
  int vectors;

  static Mask FirstWords(int64_t count) {
    return static_cast<Mask>(~uint64_t{0} >> (64 - (count < kWords ? count : kWords)));
  }

  // False where the matrices are too large, or do not lie whole in both arrays. Rows of the input
  // start at in_at(r) bytes, rows of the output at out_at(c).
  template <int kWidth, class InAt, class OutAt>
  bool Make(const Planes& p, InAt in_at, OutAt out_at) {
    constexpr int64_t most = kVectors * 64;
    constexpr int64_t parts = kWidth / kWord;  // words of an element
    const int64_t words = p.rows * p.cols * parts, bytes = words * kWord;
    if (p.rows > most || p.cols > most || bytes > most) return false;
    for (int64_t c = 0; c < p.cols; ++c) {
      for (int64_t r = 0; r < p.rows; ++r) {
        const int64_t from = in_at(r) / kWord + c * parts, to = out_at(c) / kWord + r * parts;
        if (from + parts > words || to + parts > words) return false;
        for (int64_t i = 0; i < parts; ++i) {
          source[to + i] = static_cast<typename WordOf<kWord>::type>(from + i);
        }
      }
    }
    const bool adjacent = p.count > 1 && p.step.in == bytes && p.step.out == bytes;
    together = adjacent && bytes <= 32 ? (64 / bytes < p.count ? 64 / bytes : p.count) : 1;
    const int64_t all = words * together;
    for (int64_t i = words; i < all; ++i) {
      source[i] = static_cast<typename WordOf<kWord>::type>(source[i - words] + words);
    }
    vectors = static_cast<int>((all + kWords - 1) / kWords);
    for (int64_t i = all; i < vectors * kWords; ++i) source[i] = 0;
    for (int j = 0; j < vectors; ++j) {
      high[j] = 0;
      for (int i = 0; i < kWords; ++i) {
        if (source[j * kWords + i] >= 2 * kWords) high[j] |= Mask{1} << i;
      }
    }
    last = FirstWords(all - (vectors - 1) * kWords);
    single = FirstWords(words - (vectors - 1) * kWords);
    return true;
  }
};

template <int kWord, int kVectors>
JT_INLINE void MoveSmall(const SmallOrder<kWord>& order, typename Permuter<kWord>::Mask last,
                         const char* in, char* out) {
  using P = Permuter<kWord>;
  constexpr int end = kVectors - 1, words = 64 / kWord;
  __m512i x[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < end; ++i) x[i] = _mm512_loadu_si512(in + 64 * i);
  x[end] = P::Load(last, in + 64 * end);
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    const __m512i index = _mm512_load_si512(order.source + i * words);
    __m512i y = kVectors == 1 ? P::Permute(index, x[0]) : P::Permute2(index, x[0], x[end > 0]);
    if constexpr (kVectors == 3) y = P::Blend(order.high[i], y, P::Permute(index, x[2]));
    if constexpr (kVectors == 4) y = P::Blend(order.high[i], y, P::Permute2(index, x[2], x[3]));
    if (i < end) {
      _mm512_storeu_si512(out + 64 * i, y);
    } else {
      P::Store(out + 64 * i, last, y);
    }
  }
}

template <int kWord, int kVectors, class Ask>
JT_INLINE void MoveAllSmall(const Planes& p, const SmallOrder<kWord>& order, Ask ask) {
  for (int64_t k = 0; k < p.starts; ++k) {
    const char* in = p.in + p.start[k].in;
    char* out = p.out + p.start[k].out;
    int64_t i = 0;
    for (; i + order.together <= p.count; i += order.together) {
      ask(in);
      MoveSmall<kWord, kVectors>(order, order.last, in, out);
      in += order.together * p.step.in;
      out += order.together * p.step.out;
    }
    for (; i < p.count; ++i, in += p.step.in, out += p.step.out) {
      ask(in);
      MoveSmall<kWord, kVectors>(order, order.single, in, out);
    }
  }
}

// Moves all of `p` and returns true where its matrices are small enough. `ask(in)` is called before
// each move, to ask for lines that are needed later.
template <int kWidth, class InAt, class OutAt, class Ask>
JT_INLINE bool SmallPlanes(const Planes& p, InAt in_at, OutAt out_at, Ask ask) {
  constexpr int word = kWidth < 8 ? kWidth : 8;
  if constexpr (word == 1) {
    if (!__builtin_cpu_supports("avx512vbmi")) return false;
  }
  SmallOrder<word> order;
  if (!order.template Make<kWidth>(p, in_at, out_at)) return false;
  switch (order.vectors) {
    case 1:
      MoveAllSmall<word, 1>(p, order, ask);
      break;
    case 2:
      MoveAllSmall<word, 2>(p, order, ask);
      break;
    case 3:
      MoveAllSmall<word, 3>(p, order, ask);
      break;
    default:
      MoveAllSmall<word, 4>(p, order, ask);
  }
  return true;
}

#else

template <int kWidth, class InAt, class OutAt, class Ask>
JT_INLINE bool SmallPlanes(const Planes&, InAt, OutAt, Ask) {
  return false;
}

#endif

}  // namespace jax_transpose::cpu::JAX_TRANSPOSE_ISA
