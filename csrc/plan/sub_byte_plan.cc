#include "plan/sub_byte_plan.h"

#include <algorithm>

namespace jax_transpose {

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
  const int bits = p.packed_bits;
  const TilePair pair = TiledPair(p);
  const int64_t rows = p.extent[pair.row_dim], cols = p.extent[pair.col_dim];
  int64_t row_step = 0, col_step = 0;
  plan->kind = Kind::kSubByte;
  if (request.platform == Platform::kCpu) {
    plan->aligned = PackedRowsAligned(p, 8);
    if (plan->aligned) row_step = col_step = 512 / bits;
    plan->vector_bytes = plan->aligned ? 4 : 1;
    plan->reason = plan->aligned
                       ? "packed elements: tiles that fit the cache, turned round in registers"
                       : "packed elements whose rows are not on bytes: gathered one by one";
  } else {
    plan->aligned = request.pointer_alignment >= 16 && PackedRowsAligned(p, 128);
    plan->threads = 256;
    plan->vector_bytes = plan->aligned ? 16 : 4;
    if (plan->aligned) {
      row_step = kSubByteRows;
      col_step = SubByteCols(bits);
      plan->reason = "packed elements: tiles of 128-byte rows, turned round in registers";
    } else if (request.pointer_alignment >= 4 && !p.keeps_minor() &&
               std::min(rows, cols) * bits >= 256) {
      row_step = SubByteShiftedRows(bits);
      col_step = SubByteShiftedCols(bits);
      plan->reason =
          "packed elements whose rows are not on 16-byte boundaries: tiles of shifted words";
    } else {
      plan->reason = "packed elements in short or kept runs: each thread gathers an output word";
    }
  }
  plan->tile = static_cast<int>(row_step);
  if (row_step == 0) {
    plan->blocks =
        request.platform == Platform::kCpu ? 1 : CeilDiv(CeilDiv(p.bytes(), 4), plan->threads);
    return;
  }
  plan->row_tiles = CeilDiv(rows, row_step);
  plan->col_tiles = CeilDiv(cols, col_step);
  plan->blocks = plan->row_tiles * plan->col_tiles * (p.elements() / (rows * cols));
}

}  // namespace jax_transpose
