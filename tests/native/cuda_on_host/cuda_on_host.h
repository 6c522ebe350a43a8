// Enough of CUDA for a host compiler to run a kernel unchanged: a host thread for each thread of a
// block, one block after the other. A thread sanitizer then finds a missing __syncthreads(), an
// address sanitizer an access outside an array.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/portable.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

namespace jax_transpose::cuda {

struct Dimensions {
  unsigned x = 0;
};
inline thread_local Dimensions threadIdx;
inline Dimensions blockIdx, blockDim;

class Barrier {
 public:
  void Expect(int threads) { threads_ = threads; }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t round = round_;
    if (++waiting_ == threads_) {
      waiting_ = 0;
      ++round_;
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return round_ != round; });
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  int threads_ = 0, waiting_ = 0;
  uint64_t round_ = 0;
};
inline Barrier barrier;
inline void __syncthreads() { barrier.Wait(); }

// The lanes of a warp exchange a word through memory.
struct Warp {
  Barrier barrier;
  uint32_t word[32];

  template <class T>
  T Exchange(T value, unsigned from) {
    word[threadIdx.x % 32] = static_cast<uint32_t>(value);
    barrier.Wait();
    const auto result = static_cast<T>(word[from % 32]);
    barrier.Wait();
    return result;
  }
};
inline Warp warps[32];

template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return warps[threadIdx.x / 32].Exchange(value, lane);
}
template <class T>
T __shfl_up_sync(unsigned, T value, unsigned delta) {
  const unsigned lane = threadIdx.x % 32;
  return warps[threadIdx.x / 32].Exchange(value, lane < delta ? lane : lane - delta);
}

template <class T>
T __shfl_down_sync(unsigned, T value, unsigned delta) {
  const unsigned lane = threadIdx.x % 32;
  return warps[threadIdx.x / 32].Exchange(value, lane + delta > 31 ? lane : lane + delta);
}
template <class T>
T __ldg(const T* from) {
  return *from;
}

inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t bits) {
  return FunnelShiftRight(low, high, bits);
}
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t bits) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  return static_cast<uint32_t>(both << (bits & 31) >> 32);
}

using std::max;
using std::min;

inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  return BytePermute(a, b, selector);
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return MultiplyHigh(a, b); }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

inline void __pipeline_memcpy_async(void* shared, const void* global, size_t bytes) {
  std::memcpy(shared, global, bytes);
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(int) {}

// kernel<<<blocks, threads>>>(arguments...)
template <class... Parameters, class... Arguments>
void Launch(void (*kernel)(Parameters...), int64_t blocks, int threads, Arguments... arguments) {
  blockDim.x = static_cast<unsigned>(threads);
  barrier.Expect(threads);
  for (Warp& warp : warps) warp.barrier.Expect(32);
  std::vector<std::thread> block;
  for (int t = 0; t < threads; ++t) {
    block.emplace_back([=] {
      threadIdx.x = static_cast<unsigned>(t);
      for (int64_t b = 0; b < blocks; ++b) {
        if (t == 0) blockIdx.x = static_cast<unsigned>(b);
        barrier.Wait();
        kernel(arguments...);
        barrier.Wait();
      }
    });
  }
  for (std::thread& thread : block) thread.join();
}

}  // namespace jax_transpose::cuda
