#include "plan/plan.h"

#include <algorithm>
#include <cstring>

namespace jax_transpose {
namespace {

struct KindInfo {
  Kind kind;
  const char* name;
  bool cpu, cuda;
};

// One row a kernel kind: its public name and the platforms that have it.
constexpr KindInfo kKinds[] = {
    {Kind::kNaive, "naive", true, true},
    {Kind::kTiledUnpadded, "tiled_unpadded", false, true},
    {Kind::kTiled, "tiled", false, true},
    {Kind::kVectorized, "vectorized", false, true},
    {Kind::kAsyncCopy, "async_copy", false, true},
    {Kind::kRows, "rows", true, true},
    {Kind::kBlocked, "blocked", true, false},
};

bool Available(const KindInfo& info, Platform platform) {
  return platform == Platform::kCpu ? info.cpu : info.cuda;
}

// Tile sides a kind is compiled for, largest last; the default is `preferred`.
struct TileChoice {
  int sides[4];
  int preferred;
};

TileChoice AllowedTiles(Kind kind, int element_bytes) {
  switch (kind) {
    case Kind::kTiledUnpadded:
    case Kind::kTiled:
      // 64 x 65 16-byte elements would not fit the 48 KiB that need no per-device opt-in.
      if (element_bytes == 16) return {{8, 16, 32, 0}, 32};
      return {{8, 16, 32, 64}, 32};
    case Kind::kVectorized:
      // Eight 16-byte chunks a row at least, so that the swizzle reaches every bank.
      switch (element_bytes) {
        case 1:
          return {{128, 0, 0, 0}, 128};
        case 2:
          return {{64, 128, 0, 0}, 64};
        case 4:
          return {{32, 64, 0, 0}, 64};
        case 8:
          return {{16, 32, 64, 0}, 32};
        default:
          return {{8, 16, 32, 0}, 32};
      }
    case Kind::kAsyncCopy:
      switch (element_bytes) {
        case 1:
          return {{128, 0, 0, 0}, 128};
        case 2:
          return {{64, 0, 0, 0}, 64};
        case 4:
          return {{32, 64, 0, 0}, 64};
        case 8:
          return {{16, 32, 0, 0}, 32};
        default:
          return {{8, 16, 32, 0}, 16};
      }
    default:
      return {{0, 0, 0, 0}, 0};
  }
}

bool RowsAligned(const Permutation& p, const TilePair& pair, int pointer_alignment) {
  if (pointer_alignment < 16 || p.keeps_minor()) return false;
  const Strides s = ComputeStrides(p);
  for (int d = 0; d < p.rank; ++d) {
    if (d != pair.col_dim && s.in[d] * p.element_bytes % 16 != 0) return false;
    if (d != pair.row_dim && s.out[d] * p.element_bytes % 16 != 0) return false;
  }
  return p.extent[pair.col_dim] * p.element_bytes % 16 == 0 &&
         p.extent[pair.row_dim] * p.element_bytes % 16 == 0;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool ResolveTile(const Request& request, Plan* plan, std::string* error) {
  const TileChoice choice = AllowedTiles(plan->kind, plan->permutation.element_bytes);
  plan->tile = choice.preferred;
  if (request.tile == 0) return true;
  for (int side : choice.sides) {
    if (side != 0 && side == request.tile) {
      plan->tile = side;
      return true;
    }
  }
  *error = "tile=" + std::to_string(request.tile) + " is not possible for kernel '" +
           KindName(plan->kind) + "' with " + std::to_string(plan->permutation.element_bytes) +
           "-byte elements; allowed: ";
  if (choice.preferred == 0) {
    *error += "none (this kernel has no tile)";
    return false;
  }
  const char* separator = "";
  for (int side : choice.sides) {
    if (side == 0) continue;
    *error += separator + std::to_string(side);
    separator = ", ";
  }
  return false;
}

void PickKind(Platform platform, Plan* plan) {
  const Permutation& p = plan->permutation;
  if (p.keeps_minor()) {
    plan->kind = Kind::kRows;
    plan->reason = "the minor dimension is kept: runs are copied whole";
    return;
  }
  if (platform == Platform::kCpu) {
    plan->kind = Kind::kBlocked;
    plan->reason = "minor dimensions are exchanged: cache-blocked tiles";
    return;
  }
  const TilePair pair = TiledPair(p);
  const int64_t narrow = std::min(p.extent[pair.row_dim], p.extent[pair.col_dim]) * p.element_bytes;
  if (narrow < 32) {
    plan->kind = Kind::kNaive;
    plan->reason = "one side is shorter than a 32-byte sector: a tile would be mostly empty";
  } else {
    plan->kind = Kind::kVectorized;
    plan->reason = "minor dimensions are exchanged: tiles with 16-byte accesses";
  }
}

void SizeCudaGrid(Plan* plan) {
  const Permutation& p = plan->permutation;
  const int width = p.element_bytes;
  switch (plan->kind) {
    case Kind::kNaive:
      plan->vector_bytes = width;
      plan->threads = 256;
      plan->blocks = CeilDiv(p.elements(), plan->threads);
      return;
    case Kind::kRows:
      plan->vector_bytes = width;
      plan->threads = 256;
      plan->blocks = CeilDiv(p.elements(), plan->threads * kRowsPerThread);
      return;
    default:
      break;
  }
  const TilePair pair = TiledPair(p);
  const int64_t rows = p.extent[pair.row_dim], cols = p.extent[pair.col_dim];
  const int64_t batch = p.elements() / (rows * cols);
  const bool swizzled = plan->kind == Kind::kVectorized || plan->kind == Kind::kAsyncCopy;
  if (swizzled && plan->aligned) {
    plan->vector_bytes = 16;
    plan->threads = SwizzledThreads(width, plan->tile);
  } else {
    plan->vector_bytes = width;
    plan->threads = ScalarThreads(plan->tile);
  }
  if (plan->kind == Kind::kVectorized && !plan->aligned) {
    // The guarded path is the padded scalar tile at its best side.
    plan->tile = width == 16 ? 32 : 64;
    plan->threads = ScalarThreads(plan->tile);
  }
  const int64_t strip = plan->kind == Kind::kAsyncCopy ? kAsyncTilesPerBlock : 1;
  plan->blocks = CeilDiv(CeilDiv(rows, plan->tile), strip) * CeilDiv(cols, plan->tile) * batch;
}

}  // namespace

const char* KindName(Kind kind) {
  if (kind == Kind::kAuto) return "auto";
  if (kind == Kind::kCopy) return "copy";
  for (const KindInfo& info : kKinds) {
    if (info.kind == kind) return info.name;
  }
  return "unknown";
}

bool ParseKind(const char* name, size_t size, Kind* kind) {
  auto is = [&](const char* other) {
    return std::strlen(other) == size && std::memcmp(name, other, size) == 0;
  };
  if (is("auto") || is("native")) {
    *kind = Kind::kAuto;
    return true;
  }
  for (const KindInfo& info : kKinds) {
    if (is(info.name)) {
      *kind = info.kind;
      return true;
    }
  }
  return false;
}

std::vector<std::string> KindNames(Platform platform) {
  std::vector<std::string> names;
  for (const KindInfo& info : kKinds) {
    if (Available(info, platform)) names.emplace_back(info.name);
  }
  return names;
}

TilePair TiledPair(const Permutation& p) {
  // Where the minor dimension is kept, the pair is the next one out and the kept run is a batch
  // dimension: not fast, but right for a kind that was asked for by name.
  const int skip = p.keeps_minor() ? 1 : 0;
  return {p.axes[p.rank - 1 - skip], p.rank - 1 - skip};
}

bool MakePlan(const Request& request, Plan* plan, std::string* error) {
  const int width = request.element_bytes;
  if (width != 1 && width != 2 && width != 4 && width != 8 && width != 16) {
    *error = "element width of " + std::to_string(width) +
             " bytes is not possible; allowed: 1, 2, 4, 8, 16";
    return false;
  }
  if (!Canonicalize(request.dims, request.axes, request.rank, width,
                    std::max(width, request.pointer_alignment), &plan->permutation)) {
    *error = "more than " + std::to_string(kMaxRank) + " dimensions are longer than 1";
    return false;
  }
  Permutation& p = plan->permutation;
  plan->kind = request.kind;
  for (const KindInfo& info : kKinds) {
    if (info.kind == request.kind && !Available(info, request.platform)) {
      *error = std::string("kernel '") + info.name + "' does not exist on this platform; allowed: ";
      const char* separator = "";
      for (const std::string& name : KindNames(request.platform)) {
        *error += separator + name;
        separator = ", ";
      }
      return false;
    }
  }
  if (p.rank <= 1) {
    // A tile is still checked: a bad argument is an error whatever the shape.
    if (!ResolveTile(request, plan, error)) return false;
    plan->kind = Kind::kCopy;
    plan->tile = 0;
    plan->vector_bytes = p.element_bytes;
    plan->blocks = p.elements() == 0 ? 0 : 1;
    plan->reason = p.elements() == 0 ? "no elements: nothing to move"
                                     : "the canonical form keeps the order: one copy";
    return true;
  }
  if (request.kind == Kind::kAuto) {
    PickKind(request.platform, plan);
  } else {
    plan->reason = "asked for by name";
  }
  if (!ResolveTile(request, plan, error)) return false;
  if (request.platform == Platform::kCuda) {
    plan->aligned = RowsAligned(p, TiledPair(p), request.pointer_alignment);
    SizeCudaGrid(plan);
  } else {
    plan->vector_bytes = p.element_bytes;
    plan->blocks = 1;
    if (plan->kind == Kind::kBlocked) {
      plan->tile = CpuTile(p.element_bytes);
      const TilePair pair = TiledPair(p);
      const int64_t rows = p.extent[pair.row_dim], cols = p.extent[pair.col_dim];
      plan->blocks =
          CeilDiv(rows, plan->tile) * CeilDiv(cols, plan->tile) * (p.elements() / (rows * cols));
    }
  }
  return true;
}

bool PreferXla(Platform platform, const Plan& plan, const char** reason) {
  // Bytes of one array below which the fixed cost of a custom call outweighs the faster kernel.
  const int64_t crossover = platform == Platform::kCuda ? kCudaCrossoverBytes : kCpuCrossoverBytes;
  if (plan.permutation.bytes() < crossover) {
    *reason = "smaller than the platform's measured crossover: XLA's transpose has less overhead";
    return true;
  }
  *reason = plan.reason;
  return false;
}

}  // namespace jax_transpose
