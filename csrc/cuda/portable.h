// What the packed kernels take from the device, so that a host compiler can run the same code: the
// tests move arrays through the kernels' own index arithmetic without a GPU.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define JAX_TRANSPOSE_PORTABLE __device__ __forceinline__
#else
#define JAX_TRANSPOSE_PORTABLE inline
#endif

namespace jax_transpose::cuda {

#if !defined(__CUDACC__)
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
#endif

template <int kBytes>
struct ElementOf;
template <>
struct ElementOf<1> {
  using type = uint8_t;
};
template <>
struct ElementOf<2> {
  using type = uint16_t;
};
template <>
struct ElementOf<4> {
  using type = uint32_t;
};
template <>
struct ElementOf<8> {
  using type = uint2;
};
template <>
struct ElementOf<16> {
  using type = uint4;
};
template <int kBytes>
using Element = typename ElementOf<kBytes>::type;

JAX_TRANSPOSE_PORTABLE uint32_t MultiplyHigh(uint32_t a, uint32_t b) {
#if defined(__CUDACC__)
  return __umulhi(a, b);
#else
  return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
#endif
}

JAX_TRANSPOSE_PORTABLE uint32_t BytePermute(uint32_t a, uint32_t b, uint32_t selector) {
#if defined(__CUDACC__)
  return __byte_perm(a, b, selector);
#else
  const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<uint32_t>(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
  }
  return result;
#endif
}

JAX_TRANSPOSE_PORTABLE uint32_t FunnelShiftRight(uint32_t low, uint32_t high, uint32_t bits) {
#if defined(__CUDACC__)
  return __funnelshift_r(low, high, bits);
#else
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (bits & 31));
#endif
}

template <class T>
JAX_TRANSPOSE_PORTABLE T LoadGlobal(const uint8_t* from) {
#if defined(__CUDACC__)
  return __ldg(reinterpret_cast<const T*>(from));
#else
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
#endif
}

template <class T>
JAX_TRANSPOSE_PORTABLE T Load(const uint8_t* from) {
#if defined(__CUDACC__)
  return *reinterpret_cast<const T*>(from);
#else
  return LoadGlobal<T>(from);
#endif
}

template <class T>
JAX_TRANSPOSE_PORTABLE void Store(uint8_t* to, T value) {
#if defined(__CUDACC__)
  *reinterpret_cast<T*>(to) = value;
#else
  std::memcpy(to, &value, sizeof(value));
#endif
}

// Copies 16 bytes from global to shared memory, past the L1 cache, while the thread goes on.
JAX_TRANSPOSE_PORTABLE void CopyAsync(void* shared, const uint8_t* global) {
#if defined(__CUDACC__)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
#else
  std::memcpy(shared, global, 16);
#endif
}

// The same of the first `bytes` of them; the rest becomes zero.
JAX_TRANSPOSE_PORTABLE void CopyAsync(void* shared, const uint8_t* global, int bytes) {
#if defined(__CUDACC__)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(global), "r"(bytes)
               : "memory");
#else
  std::memset(shared, 0, 16);
  std::memcpy(shared, global, bytes);
#endif
}

JAX_TRANSPOSE_PORTABLE void WaitForCopies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace jax_transpose::cuda
