#include "cuda/measure.h"

#include <algorithm>
#include <limits>
#include <random>

#include "cuda/launch.h"

namespace jax_transpose::cuda {
namespace {

constexpr int kWarmUps = 2;
constexpr int kRepeats = 7;

// Buffers, stream and events of one measurement, released whatever happens.
struct Bench {
  void *in = nullptr, *out = nullptr, *scratch = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;

  ~Bench() {
    if (begin != nullptr) cudaEventDestroy(begin);
    if (end != nullptr) cudaEventDestroy(end);
    if (stream != nullptr) cudaStreamDestroy(stream);
    cudaFree(in);
    cudaFree(out);
    cudaFree(scratch);
  }
};

// An error that is returned must not stay behind as the runtime's last one, for others to find.
cudaError_t Taken(cudaError_t code) {
  if (code != cudaSuccess) cudaGetLastError();
  return code;
}

#define JT_RETURN_IF_ERROR(call)          \
  do {                                    \
    const cudaError_t code = Taken(call); \
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

// Twice the L2: what is written there last leaves no line of the buffers in it.
cudaError_t ScratchBytes(size_t* bytes) {
  int device = 0, cache = 0;
  JT_RETURN_IF_ERROR(cudaGetDevice(&device));
  JT_RETURN_IF_ERROR(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device));
  *bytes = std::max<size_t>(2 * static_cast<size_t>(cache), size_t{1} << 20);
  return cudaSuccess;
}

// One run; infinity where the plan does not launch.
cudaError_t TimeOnce(const Plan& plan, const Bench& bench, size_t scratch_bytes, float* ms) {
  JT_RETURN_IF_ERROR(cudaMemsetAsync(bench.scratch, 0, scratch_bytes, bench.stream));
  JT_RETURN_IF_ERROR(cudaEventRecord(bench.begin, bench.stream));
  const cudaError_t launched = Taken(Launch(plan, bench.in, bench.out, bench.stream));
  JT_RETURN_IF_ERROR(cudaEventRecord(bench.end, bench.stream));
  JT_RETURN_IF_ERROR(cudaEventSynchronize(bench.end));
  if (launched == cudaSuccess) return Taken(cudaEventElapsedTime(ms, bench.begin, bench.end));
  *ms = std::numeric_limits<float>::infinity();
  return cudaSuccess;
}

}  // namespace

cudaError_t MeasurePlans(const std::vector<Plan>& plans, std::vector<float>* microseconds) {
  microseconds->clear();
  if (plans.empty()) return cudaSuccess;
  const size_t bytes = static_cast<size_t>(plans[0].permutation.bytes());
  size_t scratch_bytes = 0;
  Bench bench;
  JT_RETURN_IF_ERROR(ScratchBytes(&scratch_bytes));
  JT_RETURN_IF_ERROR(cudaMalloc(&bench.in, bytes));
  JT_RETURN_IF_ERROR(cudaMalloc(&bench.out, bytes));
  JT_RETURN_IF_ERROR(cudaMalloc(&bench.scratch, scratch_bytes));
  JT_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking));
  JT_RETURN_IF_ERROR(cudaEventCreate(&bench.begin));
  JT_RETURN_IF_ERROR(cudaEventCreate(&bench.end));
  JT_RETURN_IF_ERROR(FillRandom(bench.in, bytes));
  JT_RETURN_IF_ERROR(cudaDeviceSynchronize());
  std::vector<std::vector<float>> times(plans.size());
  for (int i = -kWarmUps; i < kRepeats; ++i) {
    for (size_t k = 0; k < plans.size(); ++k) {
      float ms = 0;
      JT_RETURN_IF_ERROR(TimeOnce(plans[k], bench, scratch_bytes, &ms));
      if (i >= 0) times[k].push_back(ms);
    }
  }
  for (std::vector<float>& of_plan : times) {
    std::nth_element(of_plan.begin(), of_plan.begin() + kRepeats / 2, of_plan.end());
    microseconds->push_back(of_plan[kRepeats / 2] * 1e3f);
  }
  return cudaSuccess;
}

}  // namespace jax_transpose::cuda
