#include "cuda/launch.h"

#include <atomic>

namespace jax_transpose::cuda {

template <int kBytes>
cudaError_t LaunchWidth(const Plan& plan, const void* in, void* out, cudaStream_t stream);
cudaError_t LaunchSubByte(const Plan& plan, const void* in, void* out, cudaStream_t stream);

namespace {
std::atomic<bool> force_failure{false};
}

void ForceLaunchFailure(bool force) { force_failure.store(force, std::memory_order_relaxed); }
bool LaunchFailureForced() { return force_failure.load(std::memory_order_relaxed); }

cudaError_t Launch(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  if (plan.blocks == 0) return cudaSuccess;
  if (plan.kind == Kind::kCopy) {
    return cudaMemcpyAsync(out, in, plan.permutation.bytes(), cudaMemcpyDeviceToDevice, stream);
  }
  if (plan.kind == Kind::kSubByte) return LaunchSubByte(plan, in, out, stream);
  switch (plan.permutation.element_bytes) {
    case 1:
      return LaunchWidth<1>(plan, in, out, stream);
    case 2:
      return LaunchWidth<2>(plan, in, out, stream);
    case 4:
      return LaunchWidth<4>(plan, in, out, stream);
    case 8:
      return LaunchWidth<8>(plan, in, out, stream);
    case 16:
      return LaunchWidth<16>(plan, in, out, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace jax_transpose::cuda
