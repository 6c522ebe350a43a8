// 16-byte vectors of elements, and the sub-transposes of packed bytes and halves in registers.
#pragma once

#include "cuda/portable.h"

namespace jax_transpose::cuda {

template <int kBytes>
JAX_TRANSPOSE_PORTABLE uint4 PackVector(const Element<kBytes>* e) {
  if constexpr (kBytes == 16) {
    return e[0];
  } else if constexpr (kBytes == 8) {
    return uint4{e[0].x, e[0].y, e[1].x, e[1].y};
  } else if constexpr (kBytes == 4) {
    return uint4{e[0], e[1], e[2], e[3]};
  } else if constexpr (kBytes == 2) {
    return uint4{BytePermute(e[0], e[1], 0x5410), BytePermute(e[2], e[3], 0x5410),
                 BytePermute(e[4], e[5], 0x5410), BytePermute(e[6], e[7], 0x5410)};
  } else {
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      word[i] = BytePermute(BytePermute(e[4 * i], e[4 * i + 1], 0x0040),
                            BytePermute(e[4 * i + 2], e[4 * i + 3], 0x0040), 0x5410);
    }
    return uint4{word[0], word[1], word[2], word[3]};
  }
}

// Element `i` of a vector; `i` is a constant once loops are unrolled.
template <int kBytes>
JAX_TRANSPOSE_PORTABLE Element<kBytes> VectorElement(const uint4& v, int i) {
  if constexpr (kBytes == 16) {
    return v;
  } else if constexpr (kBytes == 8) {
    return i == 0 ? uint2{v.x, v.y} : uint2{v.z, v.w};
  } else {
    const int word = i * kBytes / 4;
    const uint32_t bits = word == 0 ? v.x : word == 1 ? v.y : word == 2 ? v.z : v.w;
    return static_cast<Element<kBytes>>(bits >> (8 * (i * kBytes % 4)));
  }
}

template <int kBytes>
JAX_TRANSPOSE_PORTABLE void StoreElements(uint8_t* to, const uint4& v, int begin, int end) {
#pragma unroll
  for (int i = 0; i < 16 / kBytes; ++i) {
    if (i >= begin && i < end) Store(to + i * kBytes, VectorElement<kBytes>(v, i));
  }
}

// The elements `begin` to `end` of a vector whose others may not be read.
template <int kBytes>
JAX_TRANSPOSE_PORTABLE uint4 LoadElements(const uint8_t* from, int begin, int end) {
  Element<kBytes> e[16 / kBytes];
#pragma unroll
  for (int i = 0; i < 16 / kBytes; ++i) {
    e[i] = Element<kBytes>{};
    if (i >= begin && i < end) e[i] = LoadGlobal<Element<kBytes>>(from + i * kBytes);
  }
  return PackVector<kBytes>(e);
}

// Words of 4 / kBytes columns down 16 / kBytes rows become one vector a column.
template <int kBytes>
JAX_TRANSPOSE_PORTABLE void SplitWords(const uint32_t (&word)[16 / kBytes],
                                       uint4 (&column)[4 / kBytes]) {
  if constexpr (kBytes == 2) {
    column[0] = uint4{BytePermute(word[0], word[1], 0x5410), BytePermute(word[2], word[3], 0x5410),
                      BytePermute(word[4], word[5], 0x5410), BytePermute(word[6], word[7], 0x5410)};
    column[1] = uint4{BytePermute(word[0], word[1], 0x7632), BytePermute(word[2], word[3], 0x7632),
                      BytePermute(word[4], word[5], 0x7632), BytePermute(word[6], word[7], 0x7632)};
  } else {
    uint32_t part[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t low01 = BytePermute(word[4 * i], word[4 * i + 1], 0x5140);
      const uint32_t high01 = BytePermute(word[4 * i], word[4 * i + 1], 0x7362);
      const uint32_t low23 = BytePermute(word[4 * i + 2], word[4 * i + 3], 0x5140);
      const uint32_t high23 = BytePermute(word[4 * i + 2], word[4 * i + 3], 0x7362);
      part[0][i] = BytePermute(low01, low23, 0x5410);
      part[1][i] = BytePermute(low01, low23, 0x7632);
      part[2][i] = BytePermute(high01, high23, 0x5410);
      part[3][i] = BytePermute(high01, high23, 0x7632);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) column[c] = uint4{part[c][0], part[c][1], part[c][2], part[c][3]};
  }
}

// 16 pixels of 3 interleaved bytes become one vector a channel.
JAX_TRANSPOSE_PORTABLE void TakeApart3(const uint32_t (&word)[12], uint4 (&channel)[3]) {
  uint32_t part[3][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t a = word[3 * i], b = word[3 * i + 1], c = word[3 * i + 2];
    part[0][i] = BytePermute(BytePermute(a, b, 0x0630), c, 0x5210);
    part[1][i] = BytePermute(BytePermute(a, b, 0x0741), c, 0x6210);
    part[2][i] = BytePermute(BytePermute(a, b, 0x0052), c, 0x7410);
  }
#pragma unroll
  for (int c = 0; c < 3; ++c) channel[c] = uint4{part[c][0], part[c][1], part[c][2], part[c][3]};
}

// Vector `phase` (0 to 2) of three that interleave 16 pixels: 16 bytes, which begin within pixel
// 5 * phase at channel `phase`. `row` points at the word of that pixel in the first of three rows.
JAX_TRANSPOSE_PORTABLE uint4 Interleave3(const uint8_t* row, uint32_t row_stride, uint32_t phase) {
  uint32_t low[3], high[3];
#pragma unroll
  for (uint32_t c = 0; c < 3; ++c) {
    const uint32_t first = Load<uint32_t>(row + c * row_stride);
    const uint32_t second = Load<uint32_t>(row + c * row_stride + 4);
    const uint32_t bits = 8 * (phase + (c < phase ? 1 : 0));
    low[c] = FunnelShiftRight(first, second, bits);
    high[c] = second >> bits;
  }
  const uint32_t l0 = phase == 0 ? low[0] : phase == 1 ? low[1] : low[2];
  const uint32_t l1 = phase == 0 ? low[1] : phase == 1 ? low[2] : low[0];
  const uint32_t l2 = phase == 0 ? low[2] : phase == 1 ? low[0] : low[1];
  const uint32_t h0 = phase == 0 ? high[0] : phase == 1 ? high[1] : high[2];
  const uint32_t h1 = phase == 0 ? high[1] : phase == 1 ? high[2] : high[0];
  const uint32_t h2 = phase == 0 ? high[2] : phase == 1 ? high[0] : high[1];
  return uint4{BytePermute(BytePermute(l0, l1, 0x1040), l2, 0x3410),
               BytePermute(BytePermute(l1, l0, 0x2601), l2, 0x3250),
               BytePermute(BytePermute(l0, l1, 0x0730), l2, 0x7216),
               BytePermute(BytePermute(h0, h1, 0x1040), h2, 0x3410)};
}

}  // namespace jax_transpose::cuda
