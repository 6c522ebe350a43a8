#include "plan/plan.h"

#include <algorithm>
#include <cstring>

#include "plan/cpu_blocks.h"
#include "plan/cuda_plan.h"
#include "plan/in_place.h"
#include "plan/sub_byte_plan.h"

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
    {Kind::kShifted, "shifted", false, true},
    {Kind::kPacked, "packed", false, true},
    {Kind::kRows, "rows", true, true},
    {Kind::kBlocked, "blocked", true, false},
    {Kind::kInterleave, "interleave", true, false},
    {Kind::kTiny, "tiny", true, false},
};

bool Available(const KindInfo& info, Platform platform) {
  return platform == Platform::kCpu ? info.cpu : info.cuda;
}

std::string PlatformName(Platform platform) { return platform == Platform::kCpu ? "cpu" : "cuda"; }

std::string Listed(const int* first, const int* last) {
  std::string text;
  for (; first != last; ++first) {
    if (*first != 0) text += (text.empty() ? "" : ", ") + std::to_string(*first);
  }
  return text;
}

bool Has(const TileChoice& choice, int64_t side) {
  return side != 0 &&
         std::find(choice.sides, std::end(choice.sides), side) != std::end(choice.sides);
}

// The element that the plan has where both buffers start on 16-byte boundaries, as at trace time.
int AlignedElementBytes(const Request& request) {
  Permutation p;
  Canonicalize(request.dims, request.axes, request.rank, static_cast<int>(request.element_bits / 8),
               0, 16, &p);
  return p.element_bytes;
}

bool ResolveTile(const Request& request, Plan* plan, std::string* error) {
  const TileChoice choice = CudaTiles(plan->kind, plan->permutation.element_bytes);
  if (plan->tile == 0) plan->tile = choice.preferred;
  if (request.tile == 0) return true;
  if (Has(choice, request.tile)) {
    plan->tile = static_cast<int>(request.tile);
    return true;
  }
  if (request.kind == Kind::kAuto) {
    if (std::find(std::begin(kTileSides), std::end(kTileSides), request.tile) !=
        std::end(kTileSides)) {
      return true;
    }
    *error = "tile=" + std::to_string(request.tile) + " is no tile of any kernel; allowed: " +
             Listed(std::begin(kTileSides), std::end(kTileSides));
    return false;
  }
  const int width = AlignedElementBytes(request);
  const TileChoice wanted = CudaTiles(plan->kind, width);
  // A buffer off a 16-byte boundary narrows the elements after the tile was checked at trace time.
  if (request.pointer_alignment < 16 && Has(wanted, request.tile)) return true;
  *error = "tile=" + std::to_string(request.tile) + " is not possible for kernel '" +
           KindName(plan->kind) + "' with " + std::to_string(width) + "-byte elements; allowed: " +
           (wanted.preferred == 0 ? "none (this kernel has no tile)"
                                  : Listed(wanted.sides, std::end(wanted.sides)));
  return false;
}

void PickCpuKind(Plan* plan) {
  const Permutation& p = plan->permutation;
  if (p.keeps_minor()) {
    plan->kind = Kind::kRows;
    plan->reason = "the minor dimension is kept: runs are copied whole";
    return;
  }
  const TilePair pair = TiledPair(p);
  const int64_t rows = p.extent[pair.row_dim], cols = p.extent[pair.col_dim];
  const int64_t tile = CpuTile(p.element_bytes);
  if (CpuInterleaves(p)) {
    plan->kind = Kind::kInterleave;
    plan->reason = "a side of a few adjacent elements: streams are interleaved or taken apart";
  } else if (p.rank > 2 && rows <= tile && cols <= tile) {
    plan->kind = Kind::kTiny;
    plan->reason = "a batch of small matrices: each fits a tile";
  } else {
    plan->kind = Kind::kBlocked;
    plan->reason = "minor dimensions are exchanged: cache-blocked tiles";
  }
}

}  // namespace

const char* KindName(Kind kind) {
  if (kind == Kind::kAuto) return "auto";
  if (kind == Kind::kCopy) return "copy";
  if (kind == Kind::kSubByte) return "sub_byte";
  if (kind == Kind::kInPlace) return "in_place";
  for (const KindInfo& info : kKinds) {
    if (info.kind == kind) return info.name;
  }
  return "unknown";
}

bool ParseKind(const char* name, size_t size, Kind* kind) {
  auto is = [&](const char* other) {
    return std::strlen(other) == size && std::memcmp(name, other, size) == 0;
  };
  if (is("auto") || is("native") || is("autotune")) {
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

bool CheckRequest(const Request& request, std::string* error) {
  const int64_t bits = request.element_bits;
  if (bits != 2 && bits != 4 && bits != 8 && bits != 16 && bits != 32 && bits != 64 &&
      bits != 128) {
    *error = "element width of " + std::to_string(bits) +
             " bits is not possible; allowed: 2, 4, 8, 16, 32, 64, 128";
    return false;
  }
  if (!CheckSize(request.dims, request.rank, bits, error)) return false;
  const int width = static_cast<int>(bits / 8), packed = bits < 8 ? static_cast<int>(bits) : 0;
  Permutation p;
  if (!Canonicalize(request.dims, request.axes, request.rank, width, packed, 16, &p)) {
    *error = "shape " + ShapeText(request.dims, request.rank) + " has more than " +
             std::to_string(kMaxRank) + " dimensions longer than 1 that do not move together";
    return false;
  }
  return true;
}

bool MakePlan(const Request& request, Plan* plan, std::string* error) {
  if (!CheckRequest(request, error)) return false;
  const int width = static_cast<int>(request.element_bits / 8);
  const int bits = width == 0 ? static_cast<int>(request.element_bits) : 0;
  if (bits != 0 && request.kind != Kind::kAuto) {
    *error = std::string("kernel '") + KindName(request.kind) + "' does not move elements of " +
             std::to_string(bits) + " bits; allowed: 'auto', 'native'";
    return false;
  }
  for (const KindInfo& info : kKinds) {
    if (info.kind == request.kind && !Available(info, request.platform)) {
      *error = std::string("kernel '") + info.name + "' does not exist on platform '" +
               PlatformName(request.platform) + "'; allowed: ";
      const char* separator = "";
      for (const std::string& name : KindNames(request.platform)) {
        *error += separator + name;
        separator = ", ";
      }
      return false;
    }
  }
  Canonicalize(request.dims, request.axes, request.rank, width, bits,
               std::max(width, request.pointer_alignment), &plan->permutation);
  plan->sub_byte_bits = bits;
  Permutation& p = plan->permutation;
  if (request.in_place && p.rank > 1) return PlanInPlace(request, plan, error);
  if (p.packed_bits != 0) {
    if (!ResolveTile(request, plan, error)) return false;
    PlanSubByte(request, plan);
    return true;
  }
  plan->kind = request.kind;
  if (p.rank <= 1) {
    // A tile is still checked: a bad argument is an error whatever the shape.
    if (!ResolveTile(request, plan, error)) return false;
    plan->kind = Kind::kCopy;
    plan->tile = 0;
    plan->vector_bytes = p.element_bytes;
    const bool moves = p.elements() != 0 && !request.in_place;
    plan->blocks = moves ? 1 : 0;
    plan->reason = p.elements() == 0 ? "no elements: nothing to move"
                   : moves           ? "the canonical form keeps the order: one copy"
                                     : "the canonical form keeps the order: nothing to move";
    return true;
  }
  if (request.platform == Platform::kCuda) {
    plan->aligned = RowsAligned(p, request.pointer_alignment);
  }
  if (request.kind == Kind::kAuto) {
    request.platform == Platform::kCpu ? PickCpuKind(plan)
                                       : PickCudaKind(request.pointer_alignment, plan);
  } else {
    plan->reason = "asked for by name";
  }
  if (!ResolveTile(request, plan, error)) return false;
  if (request.platform == Platform::kCuda) {
    SizeCudaGrid(request.pointer_alignment, plan);
  } else {
    if (plan->kind == Kind::kRows && !p.keeps_minor()) {
      plan->kind = Kind::kNaive;
      plan->reason = "asked for 'rows', but the minor dimension moves: element by element";
    } else if (plan->kind == Kind::kInterleave && !CpuInterleaves(p)) {
      plan->kind = Kind::kBlocked;
      plan->reason = "asked for 'interleave', but no side is that short: cache-blocked tiles";
    }
    plan->vector_bytes = p.element_bytes;
    plan->blocks = 1;
    if (plan->kind != Kind::kNaive) {
      if (plan->kind != Kind::kRows) plan->tile = CpuTile(p.element_bytes);
      plan->blocks = MakeCpuBlocks(p, true).blocks;
    }
  }
  return true;
}

std::vector<Plan> CudaCandidates(Request request) {
  std::vector<Plan> candidates;
  for (const KindInfo& info : kKinds) {
    // Never the fastest: the first rungs of the ladder.
    if (!info.cuda || info.kind == Kind::kNaive || info.kind == Kind::kTiledUnpadded) continue;
    request.kind = info.kind;
    for (int tile : {0, 8, 16, 32, 64, 128}) {
      Plan plan;
      std::string error;
      request.tile = tile;
      // A plan may fall back to another kind or tile: what is listed must be what is asked for.
      if (!MakePlan(request, &plan, &error) || plan.kind != info.kind || plan.tile != tile) {
        continue;
      }
      // Off 16-byte rows it is the padded tile, which is listed by its own name.
      if (plan.kind == Kind::kVectorized && !plan.aligned) continue;
      candidates.push_back(plan);
    }
  }
  return candidates;
}

constexpr int64_t kCpuScatteredBytes = int64_t{8} << 20;

// XLA's loops vectorize for some shapes and not for others.
static int64_t CpuCrossoverBytes(const Plan& plan) {
  const Permutation& p = plan.permutation;
  // XLA's loops move wide elements in short or scattered runs as well as ours until the pages of a
  // fresh output cost more.
  const bool tiny = plan.kind == Kind::kTiny, tiles = tiny || plan.kind == Kind::kBlocked;
  const bool wide = p.element_bytes == 16 || (p.element_bytes == 8 && tiny);
  if (p.rank > 2 && tiles && wide) return kCpuScatteredBytes;
  switch (plan.kind) {
    case Kind::kRows:
      return int64_t{256} << 10;
    case Kind::kInterleave:
      return int64_t{2048} * p.element_bytes;
    case Kind::kTiny: {
      // XLA is better at matrices with a side that no 16-byte vector covers.
      const TilePair pair = TiledPair(p);
      const int64_t side = std::min(p.extent[pair.row_dim], p.extent[pair.col_dim]);
      return (side * p.element_bytes >= 16 ? 4096 : 32768) * int64_t{p.element_bytes};
    }
    case Kind::kSubByte:
      return int64_t{4} << 10;
    default:
      return int64_t{1024} * p.element_bytes;
  }
}

// Measured on an H200, device time and host time inside programs. Of aligned matrices XLA's own
// kernel is good, and what ours gains below this is less than the 1.5 µs that its call costs more.
static int64_t CudaCrossoverBytes(const Plan& plan) {
  return int64_t{plan.kind == Kind::kAsyncCopy ? 20 : 8} << 20;
}

int64_t CrossoverBytes(Platform platform, const Plan& plan) {
  return platform == Platform::kCuda ? CudaCrossoverBytes(plan) : CpuCrossoverBytes(plan);
}

bool PreferXla(Platform platform, const Plan& plan, const char** reason) {
  if (platform == Platform::kCuda && plan.sub_byte_bits == 2) {
    // XLA's own kernel asks for more shared memory than there is (jax 0.11.2).
    *reason = plan.reason;
    return false;
  }
  if (plan.permutation.bytes() < CrossoverBytes(platform, plan)) {
    *reason = "smaller than the platform's measured crossover: XLA's transpose has less overhead";
    return true;
  }
  if (platform == Platform::kCuda && plan.kind == Kind::kPacked && !plan.packed.out_vectors &&
      plan.permutation.element_bytes <= 2) {
    *reason = "narrow elements and no output run on 16-byte boundaries: XLA's transpose is as fast";
    return true;
  }
  if (platform == Platform::kCuda && plan.kind == Kind::kSubByte && plan.tile == 0) {
    *reason = "packed elements in short or kept runs: XLA's transpose gathers them as well";
    return true;
  }
  *reason = plan.reason;
  return false;
}

}  // namespace jax_transpose
