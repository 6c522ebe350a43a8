#include "plan/block_order.h"

#include <algorithm>

namespace jax_transpose {
namespace {

// Blocks that a large device runs at once (132 multiprocessors of 228 KiB, tiles of 16 KiB), the
// bytes that one translation covers, and the share of pages below which the change pays: fitted on
// an H200 to 200 permutations (docs/tuning.md).
constexpr double kBytesInFlight = 1056 * 16384.0;
constexpr double kPageBytes = 2 << 20;
constexpr double kWorthwhile = 0.65;

struct Window {
  double coverage[kMaxRank];  // elements of each dimension that the blocks in flight touch

  double Pages(const Permutation& p, const int64_t* stride) const {
    double pages = 1;
    for (int d = 0; d < p.rank; ++d) {
      const double share = static_cast<double>(stride[d]) * p.element_bytes / kPageBytes;
      pages *= std::max(1.0, coverage[d] * std::min(1.0, share));
    }
    return pages;
  }
};

}  // namespace

bool PreferMatricesFirst(const Plan& plan, int tile_rows, int tile_cols) {
  const Permutation& p = plan.permutation;
  const TilePair pair = TiledPair(p);
  // A row that few tiles cut is better read whole.
  if (p.extent[pair.col_dim] < 2 * tile_cols) return false;
  const Strides s = ComputeStrides(p);
  double pages[2];
  for (bool matrices_first : {false, true}) {
    Window window;
    double left = kBytesInFlight / (static_cast<double>(tile_rows) * tile_cols * p.element_bytes);
    auto visit = [&](int d, int tile, int64_t tiles) {
      const double taken = std::min(static_cast<double>(tiles), left);
      window.coverage[d] = std::min(static_cast<double>(p.extent[d]), tile * taken);
      left = std::max(1.0, left / static_cast<double>(tiles));
    };
    auto visit_tiles = [&] {
      visit(pair.row_dim, tile_rows, plan.row_tiles);
      visit(pair.col_dim, tile_cols, plan.col_tiles);
    };
    if (!matrices_first) visit_tiles();
    for (int i = p.rank - 1; i >= 0; --i) {
      const int d = p.axes[i];
      if (d != pair.row_dim && d != pair.col_dim) visit(d, 1, p.extent[d]);
    }
    if (matrices_first) visit_tiles();
    pages[matrices_first] = window.Pages(p, s.in) + window.Pages(p, s.out);
  }
  return pages[1] < kWorthwhile * pages[0];
}

}  // namespace jax_transpose
