// Plans against plain arithmetic, for arrays that no machine holds and pointers of any alignment.
//
//   plan_test [CASES [SEED]]
#include <array>
#include <cstdio>

#include "plan/cpu_blocks.h"
#include "plan/packed_plan.h"
#include "plan/tile_set.h"
#include "random_case.h"

namespace jax_transpose::testing {
namespace {

int64_t wrong = 0;

std::string Describe(const Permutation& p) {
  std::string text = std::to_string(p.element_bytes) + " bytes (";
  for (int i = 0; i < p.rank; ++i) text += std::to_string(p.extent[i]) + " ";
  text += ") by (";
  for (int i = 0; i < p.rank; ++i) text += std::to_string(p.axes[i]) + " ";
  return text + ")";
}

void Expect(bool right, const char* what, const Permutation& p) {
  if (right) return;
  std::printf("wrong: %s, %s\n", what, Describe(p).c_str());
  ++wrong;
}

// Of about 2^low to 2^high elements, less than 2^56, and of rank 2 to 6; extents differ.
Permutation RandomPermutation(Random& random, double low, double high) {
  Permutation p;
  p.element_bytes = 1 << Between(random, 0, 4);
  p.rank = static_cast<int>(Between(random, 2, 6));
  const double bits = std::uniform_real_distribution<>(low, high)(random);
  double total = 0;
  for (int i = 0; i < p.rank; ++i) {
    const double share = std::uniform_real_distribution<>(0.1, 1.9)(random) * bits / p.rank;
    p.extent[i] = std::max<int64_t>(2, std::llround(std::exp2(share)));
    p.axes[i] = i;
    total += std::log2(p.extent[i]);
  }
  if (total >= 56) return RandomPermutation(random, low, high);
  std::shuffle(p.axes, p.axes + p.rank, random);
  return p;
}

// Elements between neighbors along dimension `d`, in the input or, by `axes`, in the output.
int64_t InStride(const Permutation& p, int d) {
  int64_t stride = 1;
  for (int i = d + 1; i < p.rank; ++i) stride *= p.extent[i];
  return stride;
}
int64_t OutStride(const Permutation& p, int d) {
  int64_t stride = 1;
  for (int i = p.rank - 1; p.axes[i] != d; --i) stride *= p.extent[p.axes[i]];
  return stride;
}

// Blocks of the CPU cover the array, and step over it by its strides in bytes.
void CheckCpuBlocks(Random& random, int64_t cases) {
  int64_t beyond_int32 = 0;
  for (int64_t i = 0; i < cases; ++i) {
    const Permutation p = RandomPermutation(random, 2, 50);
    const CpuBlocks b = MakeCpuBlocks(p, Between(random, 0, 1) == 1, Between(random, 0, 1) << 21);
    const int kept = p.axes[p.rank - 1] == p.rank - 1 ? 1 : 0;
    Expect(b.rank == p.rank - kept, "rank of the walk", p);
    Expect(b.element == (kept ? p.extent[p.rank - 1] : 1) * p.element_bytes, "element", p);
    int64_t blocks = 1;
    for (int d = 0; d < b.rank; ++d) {
      const int64_t in = InStride(p, d) * p.element_bytes, out = OutStride(p, d) * p.element_bytes;
      Expect(b.dim[d].in == in && b.dim[d].out == out, "strides", p);
      Expect(b.dim[d].extent == p.extent[d], "extent", p);
      Expect(b.order_out[d] == p.axes[d], "order of the output", p);
      Expect(1 <= b.dim[d].block && b.dim[d].block <= p.extent[d], "block", p);
      blocks *= (p.extent[d] + b.dim[d].block - 1) / b.dim[d].block;
      beyond_int32 += std::max(in, out) >> 31 != 0;
    }
    Expect(b.blocks == blocks, "number of blocks", p);
  }
  if (beyond_int32 < cases / 4) std::printf("wrong: few strides beyond 32 bits\n"), ++wrong;
}

// Every row of both arrays, one by one: does it start on a 16-byte boundary?
bool AllRowsOn16Bytes(const Permutation& p) {
  const int col = p.rank - 1, row = p.axes[p.rank - 1];
  for (int side = 0; side < 2; ++side) {
    const int along = side == 0 ? col : row;
    int64_t position[kMaxRank] = {};
    for (int d = 0; d >= 0;) {
      int64_t at = 0;
      for (int i = 0; i < p.rank; ++i)
        at += position[i] * (side == 0 ? InStride(p, i) : OutStride(p, i));
      if (at * p.element_bytes % 16 != 0) return false;
      for (d = p.rank - 1; d >= 0; --d) {
        if (d == along) continue;
        if (++position[d] < p.extent[d]) break;
        position[d] = 0;
      }
    }
  }
  return true;
}

// CUDA kernels of 16-byte accesses need such rows, and pointers to match.
void CheckAlignment(Random& random, int64_t cases) {
  int64_t aligned = 0, in_only = 0, out_only = 0;
  for (int64_t i = 0; i < cases; ++i) {
    Case c;
    c.bits = 8 << Between(random, 0, 4);
    const int rank = static_cast<int>(Between(random, 2, 4));
    for (int d = 0; d < rank; ++d) {
      // Whole vectors half the time, so that each side is aligned alone, both and neither.
      const int64_t vector = std::max(1, 128 / c.bits);
      c.shape.push_back(Between(random, 0, 1) ? vector * Between(random, 1, 2)
                                              : Between(random, 2, 2 * vector + 3));
      c.axes.push_back(d);
    }
    std::shuffle(c.axes.begin(), c.axes.end(), random);
    Request request = MakeRequest(c, Platform::kCuda, nullptr, nullptr);
    request.in_place = false;
    request.pointer_alignment = std::max(c.bits / 8, 1 << Between(random, 0, 4));
    request.kind = Between(random, 0, 1) ? Kind::kVectorized : Kind::kAsyncCopy;
    Plan plan;
    std::string error;
    if (!MakePlan(request, &plan, &error)) {
      std::printf("no plan for %s: %s\n", c.ToString().c_str(), error.c_str());
      ++wrong;
      continue;
    }
    const Permutation& p = plan.permutation;
    if (plan.kind == Kind::kCopy || p.axes[p.rank - 1] == p.rank - 1) continue;
    const bool rows = AllRowsOn16Bytes(p);
    const bool want = rows && request.pointer_alignment >= 16;
    Expect(plan.aligned == want, "alignment of rows", p);
    Expect(plan.vector_bytes == (want ? 16 : p.element_bytes), "bytes of an access", p);
    const bool in = InStride(p, p.rank - 2) * p.element_bytes % 16 == 0;
    const bool out = OutStride(p, p.axes[p.rank - 2]) * p.element_bytes % 16 == 0;
    aligned += want;
    in_only += in && !out;
    out_only += out && !in;
  }
  if (std::min({aligned, in_only, out_only}) < cases / 50)
    std::printf("wrong: a kind of alignment is missing\n"), ++wrong;
}

// Offsets within a tile of a set of dimensions are 32-bit, whatever the array's strides.
void CheckSpans(Random& random, int64_t cases) {
  int64_t found = 0, long_strides = 0;
  auto check = [&](const Permutation& p) {
    Strides s;
    for (int d = 0; d < p.rank; ++d) s.in[d] = InStride(p, d), s.out[d] = OutStride(p, d);
    for (const bool keep : {false, true}) {
      TileSet set;
      const TileSetOptions options{24 << 10, 1.5, keep, 16};
      if ((keep && p.axes[p.rank - 1] != p.rank - 1) || !ChooseTileSet(p, s, options, &set))
        continue;
      ++found;
      int64_t in = 0, out = 0, blocks = 1;
      for (int d = 0; d < p.rank; ++d) {
        in += (set.extent[d] - 1) * s.in[d];
        out += (set.extent[d] - 1) * s.out[d];
        blocks *= (p.extent[d] + set.extent[d] - 1) / set.extent[d];
        long_strides += std::max(s.in[d], s.out[d]) >> 32 != 0;
      }
      Expect(in >> 32 == 0 && out >> 32 == 0, "a tile spans more than 2^32 elements", p);
      Expect(set.blocks == blocks && blocks < int64_t{1} << 31, "blocks of a tile set", p);
    }
  };
  // The outermost dimensions are short: a tile would like to have them whole.
  for (const int64_t middle : {int64_t{1} << 30, (int64_t{1} << 31) + 7, int64_t{1} << 33}) {
    for (const int64_t outer : {2, 3, 5, 12}) {
      Permutation p;
      p.rank = 3;
      p.element_bytes = 1;
      p.extent[0] = outer, p.extent[1] = middle, p.extent[2] = 3;
      for (const auto& axes : {std::array{2, 1, 0}, {1, 2, 0}, {2, 0, 1}, {1, 0, 2}}) {
        std::copy(axes.begin(), axes.end(), p.axes);
        check(p);
      }
    }
  }
  for (int64_t i = 0; i < cases; ++i) check(RandomPermutation(random, 20, 40));
  if (found < cases / 2 || long_strides < cases / 10)
    std::printf("wrong: too few tiles or long strides\n"), ++wrong;
}

// Whether every run of a side's tiles starts on a multiple of `bytes`, one by one.
bool RunsStartOn(int64_t bytes, const Permutation& p, const TileSet& set, int side) {
  int64_t position[kMaxRank] = {};
  for (int d = 0; d >= 0;) {
    bool starts = true;
    int64_t at = 0;
    for (int i = 0; i < p.rank; ++i) {
      at += position[i] * (side == 0 ? InStride(p, i) : OutStride(p, i));
      if (set.in_run[side] >> i & 1) starts = starts && position[i] % set.extent[i] == 0;
    }
    if (starts && at * p.element_bytes % bytes != 0) return false;
    for (d = p.rank - 1; d >= 0; --d) {
      if (++position[d] < p.extent[d]) break;
      position[d] = 0;
    }
  }
  return true;
}

// A GPU faults at a vector off its boundary, which the host does not.
void CheckVectors(Random& random, int64_t cases) {
  int64_t vectors = 0, none = 0;
  for (int64_t i = 0; i < cases; ++i) {
    const Permutation p = RandomPermutation(random, 2, 12);
    if (p.elements() > 1 << 14) continue;
    Strides s;
    for (int d = 0; d < p.rank; ++d) s.in[d] = InStride(p, d), s.out[d] = OutStride(p, d);
    const int pointer = std::max(p.element_bytes, 1 << Between(random, 0, 4));
    TileSet set;
    if (ChooseTileSet(p, s, {24 << 10, 1.5, false, pointer}, &set)) {
      for (int side = 0; side < 2; ++side) {
        const int64_t boundary = std::min(set.alignment[side], 128);
        Expect(pointer >= 16 || boundary <= pointer, "more alignment than the pointers have", p);
        Expect(RunsStartOn(boundary, p, set, side), "runs off their alignment", p);
        ++(set.vectors(side, p.element_bytes) ? vectors : none);
      }
    }
    PackedLaunch launch;
    if (MakePacked(p, pointer, &launch) && pointer < 16) {
      Expect(p.element_bytes == 16 || !(launch.in_vectors || launch.out_vectors || launch.async),
             "vectors at pointers off their boundary", p);
    }
  }
  if (std::min(vectors, none) < cases / 20) std::printf("wrong: too few vectors\n"), ++wrong;
}

int Main(int64_t cases, uint64_t seed) {
  Random random(seed);
  CheckCpuBlocks(random, 10 * cases);
  CheckAlignment(random, 10 * cases);
  CheckSpans(random, cases);
  CheckVectors(random, cases);
  std::printf("plans: %lld cases, %lld wrong\n", static_cast<long long>(22 * cases),
              static_cast<long long>(wrong));
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace jax_transpose::testing

int main(int argc, char** argv) {
  return jax_transpose::testing::Main(argc > 1 ? std::atoll(argv[1]) : 1000,
                                      argc > 2 ? std::atoll(argv[2]) : 1);
}
