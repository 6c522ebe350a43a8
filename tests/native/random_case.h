// Random transposes, and the bytes that they must give.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "plan/plan.h"

#if defined(__SANITIZE_ADDRESS__)
#define JAX_TRANSPOSE_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define JAX_TRANSPOSE_ASAN
#endif
#endif
#if defined(JAX_TRANSPOSE_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace jax_transpose::testing {

struct Case {
  std::vector<int64_t> shape, axes;
  int bits = 8;  // of an element

  int64_t elements() const {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
  }
  int64_t bytes() const { return (elements() * bits + 7) / 8; }

  std::string ToString() const {
    std::string text = std::to_string(bits) + " bits (";
    for (int64_t extent : shape) text += std::to_string(extent) + " ";
    text += ") by (";
    for (int64_t axis : axes) text += std::to_string(axis) + " ";
    return text + ")";
  }
};

using Random = std::mt19937_64;

inline int64_t Between(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

inline std::vector<uint8_t> RandomBytes(Random& random, int64_t count) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// Of any rank and width, at most `max_bytes` large.
inline Case RandomCase(Random& random, int64_t max_bytes) {
  constexpr int kBits[] = {2, 4, 8, 16, 32, 64, 128};
  Case c;
  c.bits = kBits[Between(random, 0, 6)];
  const int rank = static_cast<int>(Between(random, 2, 6));
  const double scale = std::uniform_real_distribution<>(1, 17.0 / rank)(random);
  for (int i = 0; i < rank; ++i) {
    c.shape.push_back(
        static_cast<int64_t>(std::exp2(std::uniform_real_distribution<>(0, 2 * scale)(random))));
    c.axes.push_back(i);
  }
  std::shuffle(c.axes.begin(), c.axes.end(), random);
  while (c.bytes() > max_bytes) *std::max_element(c.shape.begin(), c.shape.end()) /= 2;
  return c;
}

// Two axes of equal length change places.
inline Case RandomSwap(Random& random, int64_t max_bytes) {
  Case c;
  c.bits = 8 << Between(random, 0, 4);
  auto few = [&] { return Between(random, 0, 2) == 0 ? Between(random, 2, 7) : 1; };
  const int64_t side = static_cast<int64_t>(
      std::exp2(std::uniform_real_distribution<>(1, Between(random, 2, 9))(random)));
  c.shape = {few(), side, few(), side, few()};
  if (Between(random, 0, 5) == 0) c.shape[0] = Between(random, 1, 3000);
  c.axes = {0, 3, 2, 1, 4};
  while (c.bytes() > max_bytes && c.shape[0] > 1) c.shape[0] /= 2;
  while (c.bytes() > max_bytes) c.shape[1] = c.shape[3] = c.shape[1] / 2;
  return c;
}

// One element at a time, bit by bit where they are packed; unused bits of the last byte are zero.
inline std::vector<uint8_t> Expected(const Case& c, const uint8_t* in) {
  const int rank = static_cast<int>(c.shape.size());
  std::vector<int64_t> stride(rank, 1), position(rank, 0);
  for (int i = rank - 2; i >= 0; --i) stride[i] = stride[i + 1] * c.shape[i + 1];
  std::vector<uint8_t> out(c.bytes(), 0);
  const int64_t count = c.elements();
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (c.bits >= 8) {
      std::memcpy(&out[i * c.bits / 8], in + at * c.bits / 8, c.bits / 8);
    } else {
      const int per_byte = 8 / c.bits;
      const unsigned value = in[at / per_byte] >> (at % per_byte * c.bits) & ((1u << c.bits) - 1);
      out[i / per_byte] |= static_cast<uint8_t>(value << (i % per_byte * c.bits));
    }
    for (int d = rank - 1; d >= 0; --d) {
      at += stride[c.axes[d]];
      if (++position[d] < c.shape[c.axes[d]]) break;
      at -= stride[c.axes[d]] * c.shape[c.axes[d]];
      position[d] = 0;
    }
  }
  return out;
}

// Bytes on the heap, `shift` off a multiple of 64. The allocation ends with the last one, so that
// an address sanitizer sees the first byte too many. What lies before is forbidden to it as well,
// as far as it can tell: in groups of eight bytes.
class Buffer {
 public:
  Buffer(int64_t bytes, int64_t shift) {
    if (posix_memalign(&memory_, 64, static_cast<size_t>(bytes + shift)) != 0)
      throw std::bad_alloc();
    data_ = static_cast<uint8_t*>(memory_) + shift;
    Forbid(shift / 8 * 8);
  }
  ~Buffer() { std::free(memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  uint8_t* data() { return data_; }

 private:
  void Forbid([[maybe_unused]] int64_t bytes) {
#if defined(JAX_TRANSPOSE_ASAN)
    __asan_poison_memory_region(memory_, static_cast<size_t>(bytes));
#endif
  }

  void* memory_;
  uint8_t* data_;
};

inline Request MakeRequest(const Case& c, Platform platform, const void* in, const void* out) {
  Request request;
  request.platform = platform;
  request.dims = c.shape.data();
  request.axes = c.axes.data();
  request.rank = static_cast<int64_t>(c.shape.size());
  request.element_bits = c.bits;
  const auto bits = reinterpret_cast<uintptr_t>(in) | reinterpret_cast<uintptr_t>(out) | 16;
  request.pointer_alignment = static_cast<int>(bits & (~bits + 1));
  request.in_place = in == out;
  return request;
}

}  // namespace jax_transpose::testing
