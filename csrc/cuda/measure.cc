#include "cuda/measure.h"

#include <algorithm>
#include <random>

#include "cuda/launch.h"

namespace jax_transpose::cuda {
namespace {

constexpr int kWarmUps = 2;
constexpr int kRepeats = 7;

// Buffers, stream and events of one measurement, released whatever happens.
struct Bench {
  void *in = nullptr, *out = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;

  ~Bench() {
    if (begin != nullptr) cudaEventDestroy(begin);
    if (end != nullptr) cudaEventDestroy(end);
    if (stream != nullptr) cudaStreamDestroy(stream);
    cudaFree(in);
    cudaFree(out);
  }
};

#define JT_RETURN_IF_ERROR(call)          \
  do {                                    \
    const cudaError_t code = (call);      \
    if (code != cudaSuccess) return code; \
  } while (false)

// Random bytes: constant data can run faster than real data does.
cudaError_t FillRandom(void* buffer, size_t bytes) {
  std::vector<uint32_t> block((size_t{1} << 20) / sizeof(uint32_t));
  std::minstd_rand random;
  for (uint32_t& word : block) word = static_cast<uint32_t>(random()) * 2654435761u;
  for (size_t done = 0; done < bytes; done += block.size() * sizeof(uint32_t)) {
    const size_t size = std::min(bytes - done, block.size() * sizeof(uint32_t));
    JT_RETURN_IF_ERROR(
        cudaMemcpy(static_cast<char*>(buffer) + done, block.data(), size, cudaMemcpyHostToDevice));
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t MeasurePlans(const std::vector<Plan>& plans, std::vector<float>* microseconds) {
  microseconds->clear();
  if (plans.empty()) return cudaSuccess;
  const size_t bytes = static_cast<size_t>(plans[0].permutation.bytes());
  Bench bench;
  JT_RETURN_IF_ERROR(cudaMalloc(&bench.in, bytes));
  JT_RETURN_IF_ERROR(cudaMalloc(&bench.out, bytes));
  JT_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking));
  JT_RETURN_IF_ERROR(cudaEventCreate(&bench.begin));
  JT_RETURN_IF_ERROR(cudaEventCreate(&bench.end));
  JT_RETURN_IF_ERROR(FillRandom(bench.in, bytes));
  std::vector<float> medians;
  for (const Plan& plan : plans) {
    std::vector<float> times(kRepeats);
    for (int i = -kWarmUps; i < kRepeats; ++i) {
      JT_RETURN_IF_ERROR(cudaEventRecord(bench.begin, bench.stream));
      JT_RETURN_IF_ERROR(Launch(plan, bench.in, bench.out, bench.stream));
      JT_RETURN_IF_ERROR(cudaEventRecord(bench.end, bench.stream));
      JT_RETURN_IF_ERROR(cudaEventSynchronize(bench.end));
      if (i >= 0) {
        JT_RETURN_IF_ERROR(cudaEventElapsedTime(&times[i], bench.begin, bench.end));
      }
    }
    std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
    medians.push_back(times[kRepeats / 2] * 1e3f);
  }
  *microseconds = medians;
  return cudaSuccess;
}

}  // namespace jax_transpose::cuda
