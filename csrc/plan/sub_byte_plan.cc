#include "plan/sub_byte_plan.h"

namespace jax_transpose {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

bool PackedRowsAligned(const Permutation& p, int bits) {
  if (p.rank < 2 || p.keeps_minor()) return false;
  const TilePair pair = TiledPair(p);
  const Strides s = ComputeStrides(p);
  // An extent needs no test of its own: it is the stride of the dimension above it.
  for (int d = 0; d < p.rank; ++d) {
    if (d != pair.col_dim && s.in[d] * p.packed_bits % bits != 0) return false;
    if (d != pair.row_dim && s.out[d] * p.packed_bits % bits != 0) return false;
  }
  return true;
}

void PlanSubByte(const Request& request, Plan* plan) {
  const Permutation& p = plan->permutation;
  plan->kind = Kind::kSubByte;
  const bool cuda = request.platform == Platform::kCuda;
  plan->aligned =
      PackedRowsAligned(p, cuda ? 128 : 8) && (!cuda || request.pointer_alignment >= 16);
  if (!plan->aligned) {
    plan->reason = cuda ? "packed elements whose rows are not on 16-byte boundaries: each thread "
                          "gathers a word of the output"
                        : "packed elements whose rows are not on bytes: gathered one by one";
    plan->vector_bytes = cuda ? 4 : 1;
    plan->threads = cuda ? 256 : 0;
    plan->blocks = cuda ? CeilDiv(CeilDiv(p.bytes(), 4), 256) : 1;
    return;
  }
  plan->reason = "packed elements: tiles of 128-byte rows, turned round in registers";
  const TilePair pair = TiledPair(p);
  const int64_t rows = p.extent[pair.row_dim], cols = p.extent[pair.col_dim];
  const int64_t row_step = cuda ? kSubByteRows : 512 / p.packed_bits;
  const int64_t col_step = cuda ? SubByteCols(p.packed_bits) : 512 / p.packed_bits;
  if (!cuda) plan->reason = "packed elements: tiles that fit the cache, turned round in registers";
  plan->tile = static_cast<int>(row_step);
  plan->vector_bytes = cuda ? 16 : 4;
  plan->threads = cuda ? 256 : 0;
  plan->row_tiles = CeilDiv(rows, row_step);
  plan->col_tiles = CeilDiv(cols, col_step);
  plan->blocks = plan->row_tiles * plan->col_tiles * (p.elements() / (rows * cols));
}

}  // namespace jax_transpose
