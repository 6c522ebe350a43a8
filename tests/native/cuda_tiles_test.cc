// CUDA kernels that move tiles between two arrays, run on the host thread by thread: rows of every
// alignment, matrices that end within a tile, batches, packed elements.
//
//   cuda_tiles_test [CASES [SEED]]
#include <cstdio>

#include "cuda_on_host.h"
// After the host's CUDA.
#include "cuda/async_copy.cuh"
#include "cuda/shifted.cuh"
#include "cuda/sub_byte_grid.h"
#include "cuda/tile_grid.h"
#include "plan/cuda_plan.h"
#include "random_case.h"

namespace jax_transpose::testing {
namespace {

template <int kBytes, class Index>
void Run(const Plan& plan, const uint8_t* in, uint8_t* out) {
  const auto grid = cuda::MakeTileGrid<Index>(plan);
  if constexpr (kBytes <= 8) {
    if (plan.kind == Kind::kShifted) {
      cuda::Launch(cuda::ShiftedKernel<kBytes, Index>, plan.blocks, plan.threads, in, out, grid,
                   uint64_t{0});
      return;
    }
  }
  constexpr int kTile = kBytes == 1 ? 128 : 128 / kBytes;
  cuda::Launch(cuda::AsyncCopyKernel<kBytes, kTile, AsyncCols(kBytes, kTile), Index>, plan.blocks,
               plan.threads, in, out, grid, uint64_t{0});
}

template <int kBits, class Index>
void RunPacked(const Plan& plan, const uint8_t* in, uint8_t* out) {
  if (plan.tile == 0) {
    cuda::Launch(cuda::SubByteGatherKernel<kBits, Index>, plan.blocks, plan.threads, in, out,
                 cuda::MakeSubByteGrid<Index>(plan), uint64_t{0});
  } else if (plan.aligned) {
    cuda::Launch(cuda::SubByteKernel<kBits, Index>, plan.blocks, plan.threads, in, out,
                 cuda::MakeTileGrid<Index>(plan), uint64_t{0});
  } else {
    const cuda::ShiftedGrid<Index> grid = {cuda::MakeTileGrid<Index>(plan),
                                           cuda::MakeSubByteGrid<Index>(plan)};
    cuda::Launch(cuda::SubByteShiftedKernel<kBits, Index>, plan.blocks, plan.threads,
                 reinterpret_cast<const uint32_t*>(in), reinterpret_cast<uint32_t*>(out), grid,
                 uint64_t{0});
  }
}

template <class Index>
void RunWidth(const Plan& plan, const uint8_t* in, uint8_t* out) {
  if (plan.kind == Kind::kSubByte) {
    return plan.permutation.packed_bits == 4 ? RunPacked<4, Index>(plan, in, out)
                                             : RunPacked<2, Index>(plan, in, out);
  }
  switch (plan.permutation.element_bytes) {
    case 1:
      return Run<1, Index>(plan, in, out);
    case 2:
      return Run<2, Index>(plan, in, out);
    case 4:
      return Run<4, Index>(plan, in, out);
    case 8:
      return Run<8, Index>(plan, in, out);
    case 16:
      return Run<16, Index>(plan, in, out);
    default:
      return;
  }
}

class Tester {
 public:
  explicit Tester(uint64_t seed) : random_(seed) {}

  // `shift`: bytes that the arrays lie off a 64-byte boundary. `matrices_first`: the order of the
  // blocks that the plan takes for large arrays.
  void Check(const Case& c, Kind kind, int64_t shift, bool matrices_first = false) {
    Buffer in(c.bytes(), shift), out(c.bytes(), shift);
    const std::vector<uint8_t> source = RandomBytes(random_, c.bytes());
    std::copy(source.begin(), source.end(), in.data());
    std::fill(out.data(), out.data() + c.bytes(), uint8_t{0xA5});
    Request request = MakeRequest(c, Platform::kCuda, in.data(), out.data());
    request.kind = kind == Kind::kSubByte ? Kind::kAuto : kind;
    if (kind == Kind::kAsyncCopy) request.tile = c.bits == 8 ? 128 : 1024 / c.bits;
    Plan plan;
    std::string error;
    if (!MakePlan(request, &plan, &error) || plan.kind != kind) {
      std::printf("no plan for %s: %s\n", c.ToString().c_str(), error.c_str());
      ++wrong_;
      return;
    }
    plan.matrices_first = matrices_first;
    Between(random_, 0, 1) ? RunWidth<uint32_t>(plan, in.data(), out.data())
                           : RunWidth<uint64_t>(plan, in.data(), out.data());
    ++count_;
    overlapping_ += plan.row_overlap != 0;
    if (kind == Kind::kSubByte) ++packed_[plan.tile == 0 ? 0 : plan.aligned ? 1 : 2];
    const std::vector<uint8_t> want = Expected(c, source.data());
    if (std::equal(want.begin(), want.end(), out.data())) return;
    std::printf("wrong bytes: %s, %s\n", c.ToString().c_str(), KindName(kind));
    ++wrong_;
  }

  void CheckRandom() {
    const int bits = 8 << Between(random_, 0, 3), per_vector = 128 / bits;
    // One side in three is whole vectors, so that rows are aligned on either side alone, too.
    auto side = [&] {
      const int64_t any = Between(random_, 2, 300);
      return Between(random_, 0, 2) ? any : (any + per_vector - 1) / per_vector * per_vector;
    };
    Case c{{Between(random_, 1, 2), side(), side()}, {0, 2, 1}, bits};
    if (Between(random_, 0, 3) == 0) c = {{side() / 8 + 2, 2, side()}, {2, 1, 0}, bits};
    const int64_t shift = Between(random_, 0, 2) ? 0 : Between(random_, 0, 3) * bits / 8;
    Check(c, Kind::kShifted, shift);
  }

  int Report(int64_t cases) {
    while (count_ < cases) CheckRandom();
    std::printf(
        "cuda tiles: %lld cases (%lld with overlapping tiles; packed: %lld gathered, %lld aligned, "
        "%lld shifted), %lld wrong\n",
        static_cast<long long>(count_), static_cast<long long>(overlapping_),
        static_cast<long long>(packed_[0]), static_cast<long long>(packed_[1]),
        static_cast<long long>(packed_[2]), static_cast<long long>(wrong_));
    return wrong_ == 0 && overlapping_ > 0 && overlapping_ < count_ && packed_[0] && packed_[1] &&
                   packed_[2]
               ? 0
               : 1;
  }

 private:
  Random random_;
  int64_t count_ = 0, overlapping_ = 0, wrong_ = 0;
  int64_t packed_[3] = {};  // cases of packed elements, by kernel
};

int Main(int64_t cases, uint64_t seed) {
  Tester tester(seed);
  for (int bits = 8; bits <= 64; bits *= 2) {
    const int64_t vector = 128 / bits, window = kShiftedWindow * 8 / bits;
    // Both sides, the input's rows alone, the output's rows alone, neither on 16-byte boundaries.
    tester.Check({{2 * kShiftedRows, 2 * window}, {1, 0}, bits}, Kind::kShifted, 0);
    tester.Check({{kShiftedRows + 1, window}, {1, 0}, bits}, Kind::kShifted, 0);
    tester.Check({{2 * kShiftedRows, window + 1}, {1, 0}, bits}, Kind::kShifted, 0);
    tester.Check({{2 * kShiftedRows + 3, window + vector + 1}, {1, 0}, bits}, Kind::kShifted, 0);
    tester.Check({{2, 131, 67}, {0, 2, 1}, bits}, Kind::kShifted, bits / 8);
  }
  for (int bits = 8; bits <= 128; bits *= 2) {
    const int64_t vector = 128 / bits, tile = bits == 8 ? 128 : 1024 / bits;
    tester.Check({{2, tile + vector, 2 * tile + vector}, {0, 2, 1}, bits}, Kind::kAsyncCopy, 0);
  }
  for (int bits : {2, 4}) {
    // Arrays that end within a word, by every number of bytes, and on one.
    for (int64_t cols = 130; cols < 138; ++cols) {
      tester.Check({{129, cols}, {1, 0}, bits}, Kind::kSubByte, 0);
    }
    tester.Check({{131, 3, 133}, {2, 0, 1}, bits}, Kind::kSubByte, 4);
    tester.Check({{3, 259, 261}, {0, 2, 1}, bits}, Kind::kSubByte, 8);
    tester.Check({{kSubByteRows + 128, 2 * SubByteCols(bits) - 128}, {1, 0}, bits}, Kind::kSubByte,
                 0);
    tester.Check({{7, 5, 11}, {2, 0, 1}, bits}, Kind::kSubByte, 1);
  }
  // As many matrices as neither side has tiles, by a permutation that is not its own inverse.
  for (const bool first : {false, true}) {
    tester.Check({{3, 2, 40, 5 * 16}, {3, 1, 0, 2}, 64}, Kind::kAsyncCopy, 0, first);
    tester.Check({{4, 24, 5 * 8}, {0, 2, 1}, 128}, Kind::kAsyncCopy, 0, first);
  }
  return tester.Report(cases);
}

}  // namespace
}  // namespace jax_transpose::testing

int main(int argc, char** argv) {
  return jax_transpose::testing::Main(argc > 1 ? std::atoll(argv[1]) : 60,
                                      argc > 2 ? std::atoll(argv[2]) : 1);
}
