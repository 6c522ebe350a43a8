// The kernels of packed elements and their launch.
#include "cuda/launch.cuh"
#include "cuda/sub_byte_grid.h"

namespace jax_transpose::cuda {
namespace {

template <int kBits, class Index>
cudaError_t LaunchSubByteBits(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  if (plan.aligned) {
    return LaunchKernel(SubByteKernel<kBits, Index>, plan, in, out, MakeTileGrid<Index>(plan),
                        stream);
  }
  if (plan.tile != 0) {
    const ShiftedGrid<Index> grid = {MakeTileGrid<Index>(plan), MakeSubByteGrid<Index>(plan)};
    return LaunchKernel(SubByteShiftedKernel<kBits, Index>, plan, in, out, grid, stream);
  }
  return LaunchKernel(SubByteGatherKernel<kBits, Index>, plan, in, out,
                      MakeSubByteGrid<Index>(plan), stream);
}

template <int kBits>
cudaError_t LaunchBits(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  // Indices also count the elements of a partial last block.
  constexpr int64_t kSlack = int64_t{1} << 20;
  if (plan.permutation.elements() < (int64_t{1} << 31) - kSlack) {
    return LaunchSubByteBits<kBits, uint32_t>(plan, in, out, stream);
  }
  return LaunchSubByteBits<kBits, uint64_t>(plan, in, out, stream);
}

}  // namespace

cudaError_t LaunchSubByte(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  switch (plan.permutation.packed_bits) {
    case 4:
      return LaunchBits<4>(plan, in, out, stream);
    case 2:
      return LaunchBits<2>(plan, in, out, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace jax_transpose::cuda
