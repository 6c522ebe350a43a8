#include "cuda/emulate.h"

#include <algorithm>
#include <vector>

#include "cuda/packed_tile.h"
#include "cuda/row_tile.h"

namespace jax_transpose::cuda {
namespace {

constexpr uint8_t kGuard = 0xA5;
constexpr int kGuardBytes = 64;

template <int kBytes>
bool EmulateWidth(const Plan& plan, const uint8_t* in, uint8_t* out) {
  const PackedLaunch& launch = plan.packed;
  const PackedGrid& grid = launch.grid;
  if (plan.kind == Kind::kRows) {
    for (int64_t b = 0; b < launch.blocks; ++b) {
      const PackedBlock block = LocateBlock(grid, in, out, static_cast<uint32_t>(b));
      for (int t = 0; t < launch.threads; ++t) RowTile<kBytes>::Run(grid, block, t, launch.threads);
    }
    return true;
  }
  if (plan.kind != Kind::kPacked) return false;
  std::vector<uint4> storage((launch.shared_bytes + kGuardBytes) / sizeof(uint4));
  auto* shared = reinterpret_cast<uint8_t*>(storage.data());
  std::fill(shared + launch.shared_bytes, shared + launch.shared_bytes + kGuardBytes, kGuard);
  const bool found = VisitPackedTile<kBytes>(launch, [&](auto tile) {
    using Tile = decltype(tile);
    for (int64_t b = 0; b < launch.blocks; ++b) {
      const PackedBlock block = LocateBlock(grid, in, out, static_cast<uint32_t>(b));
      for (int t = 0; t < launch.threads; ++t)
        Tile::Load(grid, block, in, shared, t, launch.threads);
      for (int t = 0; t < launch.threads; ++t) {
        Tile::StoreTile(grid, block, shared, t, launch.threads);
      }
    }
  });
  return found &&
         std::all_of(shared + launch.shared_bytes, shared + launch.shared_bytes + kGuardBytes,
                     [](uint8_t byte) { return byte == kGuard; });
}

}  // namespace

bool Emulate(const Plan& plan, const void* in, void* out) {
  const auto* source = static_cast<const uint8_t*>(in);
  auto* target = static_cast<uint8_t*>(out);
  switch (plan.permutation.element_bytes) {
    case 1:
      return EmulateWidth<1>(plan, source, target);
    case 2:
      return EmulateWidth<2>(plan, source, target);
    case 4:
      return EmulateWidth<4>(plan, source, target);
    case 8:
      return EmulateWidth<8>(plan, source, target);
    case 16:
      return EmulateWidth<16>(plan, source, target);
    default:
      return false;
  }
}

}  // namespace jax_transpose::cuda
