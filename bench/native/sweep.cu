// Times and checks plans without JAX: the edit-compile-measure loop of the CUDA kernels.
//
// Reads one case a line from standard input: name width kernel tile rank dims... axes...
// and prints: name width kernel tile | kind tile blocks | GB/s, ratio to cudaMemcpy, wrong
// elements. The kernel `in_place` works within the output's buffer. Times are medians of CUDA
// events; operands are random bytes; outputs are poisoned before the checked run, and the check
// recomputes every element's address by itself. Every case has an input of exactly its size, and an
// output between guards, which are checked as well.
//
//   sweep [--exact] [--shift ELEMENTS]
//
// --exact leaves the guards out, so that compute-sanitizer's memcheck sees the first byte too many;
// --shift starts both arrays so many elements after a 256-byte boundary. What is read before an
// array then lies in its own allocation, where memcheck does not see it.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "cuda/launch.h"

namespace {

using jax_transpose::Plan;
using jax_transpose::Request;

void Check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

__global__ void Fill(uint8_t* data, size_t bytes) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i * 8 < bytes;
       i += size_t{gridDim.x} * blockDim.x) {
    uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    for (size_t b = 0; b < 8 && i * 8 + b < bytes; ++b) {
      data[i * 8 + b] = static_cast<uint8_t>(z >> (8 * b));
    }
  }
}

struct Shape {
  int rank, bits;
  int64_t extent[64];     // of the output
  int64_t in_stride[64];  // of the output's dimensions in the input
};

__global__ void CountWrong(const uint8_t* in, const uint8_t* out, Shape s, size_t elements,
                           unsigned long long* wrong) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < elements;
       i += size_t{gridDim.x} * blockDim.x) {
    size_t rest = i, source = 0;
    for (int d = s.rank - 1; d >= 0; --d) {
      source += rest % s.extent[d] * s.in_stride[d];
      rest /= s.extent[d];
    }
    bool same = true;
    if (s.bits < 8) {
      const int a = in[source * s.bits / 8] >> (source * s.bits % 8);
      const int b = out[i * s.bits / 8] >> (i * s.bits % 8);
      same = (a ^ b) % (1 << s.bits) == 0;
    }
    const int width = s.bits / 8;
    for (int b = 0; b < width; ++b) same = same && in[source * width + b] == out[i * width + b];
    if (!same) atomicAdd(wrong, 1ull);
  }
}

// Device memory of exactly `bytes` from `data()` on, and `guard` bytes on either side.
class Array {
 public:
  Array(size_t bytes, size_t shift, size_t guard) : bytes_(bytes), guard_(guard) {
    Check(cudaMalloc(&memory_, shift + bytes + 2 * guard), "allocate");
    data_ = memory_ + guard + shift;
    if (guard == 0) return;
    Check(cudaMemset(memory_, kGuard, guard + shift), "guard");
    Check(cudaMemset(data_ + bytes, kGuard, guard), "guard");
  }
  ~Array() { cudaFree(memory_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  uint8_t* data() const { return data_; }
  bool guards_are_whole() const {
    return Whole(memory_, static_cast<size_t>(data_ - memory_)) && Whole(data_ + bytes_, guard_);
  }

 private:
  static constexpr int kGuard = 0x5A;

  bool Whole(const uint8_t* from, size_t count) const {
    if (guard_ == 0) return true;
    std::vector<uint8_t> bytes(count);
    Check(cudaMemcpy(bytes.data(), from, count, cudaMemcpyDeviceToHost), "read guard");
    return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == kGuard; });
  }

  size_t bytes_, guard_;
  uint8_t *memory_ = nullptr, *data_ = nullptr;
};

template <class Work>
float MedianMs(int repeat, Work work) {
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  work();
  work();
  std::vector<float> times(repeat);
  for (float& time : times) {
    Check(cudaEventRecord(begin), "record");
    work();
    Check(cudaEventRecord(end), "record");
    Check(cudaEventSynchronize(end), "kernel");
    Check(cudaEventElapsedTime(&time, begin, end), "elapsed");
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[repeat / 2];
}

}  // namespace

int main(int argc, char** argv) {
  size_t guard = 4096, shift_elements = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--exact") == 0) {
      guard = 0;
    } else if (std::strcmp(argv[i], "--shift") == 0 && i + 1 < argc) {
      shift_elements = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::fprintf(stderr, "usage: sweep [--exact] [--shift ELEMENTS] < CASES\n");
      return 2;
    }
  }
  std::string line;
  size_t copied = 0;
  float copy_ms = 0;
  unsigned long long* wrong;
  Check(cudaMallocManaged(&wrong, sizeof(*wrong)), "allocate");
  bool failed = false;
  while (std::getline(std::cin, line)) {
    std::istringstream text(line);
    std::string name, kernel;
    double width;  // bytes; 0.5 and 0.25 for packed elements
    int tile, rank;
    if (!(text >> name >> width >> kernel >> tile >> rank)) continue;
    std::vector<int64_t> dims(rank), axes(rank);
    for (int64_t& d : dims) text >> d;
    for (int64_t& a : axes) text >> a;
    int64_t elements = 1;
    for (int64_t d : dims) elements *= d;
    const int bits = static_cast<int>(width * 8);
    const size_t bytes = (elements * bits + 7) / 8;
    if (bytes == 0) continue;
    const size_t shift = shift_elements * std::max(1, bits / 8);

    Request request;
    request.platform = jax_transpose::Platform::kCuda;
    request.dims = dims.data();
    request.axes = axes.data();
    request.rank = rank;
    request.element_bits = bits;
    request.tile = tile;
    Plan plan;
    std::string error;
    request.in_place = kernel == "in_place";
    request.pointer_alignment = static_cast<int>((shift | 16) & (~(shift | 16) + 1));
    if (!(request.in_place || ParseKind(kernel.data(), kernel.size(), &request.kind)) ||
        !MakePlan(request, &plan, &error)) {
      std::printf("%-20s %4g %-14s %3d | %s\n", name.c_str(), width, kernel.c_str(), tile,
                  error.c_str());
      continue;
    }
    const Array operand(bytes, shift, 0), result(bytes, shift, guard);
    uint8_t *in = operand.data(), *out = result.data();
    Fill<<<1024, 256>>>(in, bytes);
    if (copied != bytes) {
      copy_ms = MedianMs(9, [&] { cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice); });
      copied = bytes;
    }
    Check(cudaMemset(out, 0xA5, bytes), "poison");
    const uint8_t* source = request.in_place ? out : in;
    auto launch = [&] { Check(jax_transpose::cuda::Launch(plan, source, out, nullptr), "launch"); };
    const float ms = MedianMs(9, launch);
    if (request.in_place) {
      Check(cudaMemcpy(out, in, bytes, cudaMemcpyDeviceToDevice), "copy");
      launch();
    }
    Shape shape;
    shape.rank = rank;
    shape.bits = bits;
    for (int i = 0; i < rank; ++i) {
      shape.extent[i] = dims[axes[i]];
      shape.in_stride[i] = 1;
      for (int d = axes[i] + 1; d < rank; ++d) shape.in_stride[i] *= dims[d];
    }
    *wrong = 0;
    CountWrong<<<2048, 256>>>(in, out, shape, elements, wrong);
    Check(cudaDeviceSynchronize(), "check");
    const bool whole = result.guards_are_whole();
    failed = failed || *wrong != 0 || !whole;
    std::printf("%-20s %4g %-14s %3d | %-12s %3d %8lld | %6.0f GB/s %.3f wrong=%llu%s\n",
                name.c_str(), width, kernel.c_str(), tile, KindName(plan.kind), plan.tile,
                static_cast<long long>(plan.blocks), 2e-6 * bytes / ms, copy_ms / ms, *wrong,
                whole ? "" : " WRITES OUTSIDE");
    std::fflush(stdout);
  }
  return failed;
}
