#include "cpu/in_place.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "cpu/block_walk.h"
#include "cpu/dispatch.h"

namespace jax_transpose::cpu {
namespace {

SwapKernel PickSwap(const Plan& plan) {
  if (plan.permutation.keeps_minor()) return Kernels().swap_runs;
  int log = 0;
  while (1 << log < plan.permutation.element_bytes) ++log;
  return Kernels().swap_tiles[log];
}

// Slices go through a buffer by the kernels that have two.
void RunStaged(const Plan& plan, const Swap& swap, const CpuSwap& walk, char* data, int64_t first,
               int64_t last) {
  Plan part;
  part.kind = Kind::kBlocked;
  part.permutation = plan.permutation;
  Permutation& p = part.permutation;
  const int64_t slice = p.bytes() / swap.batch;
  std::unique_ptr<char[]> buffer(new char[walk.slices * slice]);
  for (int64_t item = first; item < last; ++item) {
    const int64_t from = item * walk.slices;
    const int64_t count = std::min(walk.slices, swap.batch - from);
    if (swap.batch > 1) p.extent[0] = count;
    const CpuBlocks blocks = MakeCpuBlocks(p, false, INT64_MAX);
    char* at = data + from * slice;
    RunBlocks(blocks, part, Kernels(), at, buffer.get(), 0, blocks.blocks);
    std::memcpy(at, buffer.get(), count * slice);
  }
}

}  // namespace

void RunSwap(const Plan& plan, const Swap& swap, const CpuSwap& walk, char* data, int64_t first,
             int64_t last) {
  if (walk.staged) return RunStaged(plan, swap, walk, data, first, last);
  const int64_t width = plan.permutation.element_bytes;
  const int64_t per_side = CeilDiv(swap.side, walk.block), pairs = PairCount(per_side);
  const SwapKernel kernel = PickSwap(plan);
  BlockPair pair;
  pair.run = swap.run * width;
  pair.pitch = swap.pitch() * width;
  for (int64_t item = first; item < last; ++item) {
    const int64_t matrix = item / pairs, k = item % pairs;
    char* base = data + matrix / swap.middle * pair.pitch * swap.side +
                 matrix % swap.middle * swap.side * pair.run;
    int64_t i, j;
    PairOf(k / (per_side + 1), k % (per_side + 1), per_side, &i, &j);
    i *= walk.block;
    j *= walk.block;
    pair.a = base + i * pair.pitch + j * pair.run;
    pair.b = base + j * pair.pitch + i * pair.run;
    pair.rows = std::min(walk.block, swap.side - i);
    pair.cols = std::min(walk.block, swap.side - j);
    kernel(pair);
  }
}

}  // namespace jax_transpose::cpu
