// Where the blocks of huge packed grids begin, against plain division. No array is needed.
//
//   cuda_grid_test [CASES [SEED]]
#include <cstdio>

#include "cuda/packed_index.h"
#include "random_case.h"

namespace jax_transpose::testing {
namespace {

Permutation RandomPermutation(Random& random) {
  Permutation p;
  p.element_bytes = 1 << Between(random, 0, 4);
  p.rank = static_cast<int>(Between(random, 2, 12));
  const double bits = std::uniform_real_distribution<>(20, 34)(random);
  for (int i = 0; i < p.rank; ++i) {
    const double share = std::uniform_real_distribution<>(0.5, 1.5)(random) * bits / p.rank;
    p.extent[i] = std::max<int64_t>(2, std::llround(std::exp2(share)));
    p.axes[i] = i;
  }
  std::shuffle(p.axes, p.axes + p.rank, random);
  return p;
}

bool RunBlock(const PackedLaunch& launch, int64_t block) {
  const auto base = uintptr_t{1} << 44;
  const auto* in = reinterpret_cast<const uint8_t*>(base);
  auto* out = reinterpret_cast<uint8_t*>(base);
  const cuda::PackedBlock found =
      cuda::LocateBlock(launch.grid, in, out, static_cast<uint32_t>(block));
  int64_t rest = block, from = 0, to = 0;
  for (int i = 0; i < launch.grid.grid_digits; ++i) {
    const GridDigit& digit = launch.grid.grid[i];
    from += rest % digit.extent * digit.in;
    to += rest % digit.extent * digit.out;
    rest /= digit.extent;
  }
  const bool right = rest == 0 && reinterpret_cast<uintptr_t>(found.in) == base + from &&
                     reinterpret_cast<uintptr_t>(found.out) == base + to;
  if (!right) std::printf("wrong place: block %lld\n", static_cast<long long>(block));
  return right;
}

int Main(int64_t cases, uint64_t seed) {
  Random random(seed);
  int64_t wrong = 0, grids = 0, most = 0;
  for (int64_t i = 0; i < cases; ++i) {
    const Permutation p = RandomPermutation(random);
    PackedLaunch launch;
    if (p.elements() > int64_t{1} << 40 || !MakePacked(p, 16, &launch)) continue;
    ++grids;
    most = std::max(most, launch.blocks);
    wrong += !RunBlock(launch, 0) + !RunBlock(launch, launch.blocks - 1);
    // Quotients are most easily wrong around multiples of a divisor.
    int64_t divisor = 1;
    for (int d = 0; d < launch.grid.grid_digits; ++d) {
      divisor *= launch.grid.grid[d].extent;
      for (int k = 0; k < 20; ++k) {
        const int64_t multiple = Between(random, 1, launch.blocks / divisor) * divisor;
        wrong += !RunBlock(launch, multiple - 1);
        if (multiple < launch.blocks) wrong += !RunBlock(launch, multiple);
      }
    }
  }
  std::printf("cuda grids: %lld of up to %lld blocks, %lld wrong\n", static_cast<long long>(grids),
              static_cast<long long>(most), static_cast<long long>(wrong));
  return wrong == 0 && 2 * grids > cases && most > int64_t{1} << 21 ? 0 : 1;
}

}  // namespace
}  // namespace jax_transpose::testing

int main(int argc, char** argv) {
  return jax_transpose::testing::Main(argc > 1 ? std::atoll(argv[1]) : 1000,
                                      argc > 2 ? std::atoll(argv[2]) : 1);
}
