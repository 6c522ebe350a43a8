// The in-place CUDA kernels, run on the host thread by thread: every width, path and index type.
//
//   cuda_test [CASES [SEED]]
#include <cstdio>

#include "cuda_on_host.h"
// After the host's CUDA.
#include "cuda/in_place.cuh"
#include "plan/cuda_plan.h"
#include "random_case.h"

namespace jax_transpose::testing {
namespace {

template <int kBytes, class Index>
void Run(const Plan& plan, uint8_t* data) {
  const auto grid = cuda::MakeInPlaceGrid<Index>(plan);
  auto* elements = reinterpret_cast<cuda::Element<kBytes>*>(data);
  if (plan.tile == 0) {
    cuda::Launch(cuda::InPlaceRunsKernel<kBytes, Index>, plan.blocks, plan.threads, elements,
                 elements, grid, uint64_t{0});
  } else if (plan.aligned) {
    cuda::Launch(cuda::InPlaceKernel<kBytes, InPlaceTile(kBytes, true), Index>, plan.blocks,
                 plan.threads, data, data, grid, uint64_t{0});
  } else {
    cuda::Launch(cuda::InPlaceGuardedKernel<kBytes, InPlaceTile(kBytes, false), Index>, plan.blocks,
                 plan.threads, elements, elements, grid, uint64_t{0});
  }
}

template <class Index>
void RunWidth(const Plan& plan, uint8_t* data) {
  switch (plan.permutation.element_bytes) {
    case 1:
      return Run<1, Index>(plan, data);
    case 2:
      return Run<2, Index>(plan, data);
    case 4:
      return Run<4, Index>(plan, data);
    case 8:
      return Run<8, Index>(plan, data);
    case 16:
      return Run<16, Index>(plan, data);
    default:
      return;
  }
}

bool RunCase(const Case& c, Random& random, int64_t* paths) {
  const int64_t width = c.bits / 8;
  // A pointer off a 16-byte boundary takes the guarded path.
  Buffer data(c.bytes(), Between(random, 0, 3) == 0 ? width : 0);
  const std::vector<uint8_t> source = RandomBytes(random, c.bytes());
  std::copy(source.begin(), source.end(), data.data());
  Plan plan;
  std::string error;
  if (!MakePlan(MakeRequest(c, Platform::kCuda, data.data(), data.data()), &plan, &error)) {
    std::printf("no plan for %s: %s\n", c.ToString().c_str(), error.c_str());
    return false;
  }
  if (plan.blocks == 0) return true;
  ++paths[plan.tile == 0 ? 0 : plan.aligned ? 1 : 2];
  Between(random, 0, 1) ? RunWidth<uint32_t>(plan, data.data())
                        : RunWidth<uint64_t>(plan, data.data());
  const std::vector<uint8_t> want = Expected(c, source.data());
  if (std::equal(want.begin(), want.end(), data.data())) return true;
  std::printf("wrong bytes: %s\n", c.ToString().c_str());
  return false;
}

int Main(int64_t cases, uint64_t seed) {
  Random random(seed);
  int64_t wrong = 0, paths[3] = {}, count = 0;
  auto run = [&](const Case& c) {
    wrong += !RunCase(c, random, paths);
    ++count;
  };
  // Sides around a tile and a vector, for every width.
  for (int bits = 8; bits <= 128; bits *= 2) {
    const int64_t tile = InPlaceTile(bits / 8, true), vector = 128 / bits;
    for (int64_t side :
         {tile - 1, tile, tile + vector, 2 * tile, 2 * tile + 1, 3 * tile + vector}) {
      run({{2, side, side}, {0, 2, 1}, bits});
    }
  }
  while (count < cases) {
    Case c = RandomSwap(random, int64_t{1} << 16);
    c.shape[0] = std::min<int64_t>(c.shape[0], 3);  // host threads take their time
    run(c);
  }
  std::printf(
      "cuda in place: %lld cases (%lld runs, %lld aligned tiles, %lld guarded), %lld wrong\n",
      static_cast<long long>(count), static_cast<long long>(paths[0]),
      static_cast<long long>(paths[1]), static_cast<long long>(paths[2]),
      static_cast<long long>(wrong));
  return wrong == 0 && paths[0] && paths[1] && paths[2] ? 0 : 1;
}

}  // namespace
}  // namespace jax_transpose::testing

int main(int argc, char** argv) {
  return jax_transpose::testing::Main(argc > 1 ? std::atoll(argv[1]) : 100,
                                      argc > 2 ? std::atoll(argv[2]) : 1);
}
