// Which kernel moves a permutation, and how. Plain C++: no CUDA and no XLA, so that the choice is
// tested on any machine and `explain` prints exactly what a handler will do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/packed_plan.h"
#include "plan/permutation.h"

namespace jax_transpose {

enum class Platform : uint8_t { kCpu, kCuda };

enum class Kind : uint8_t {
  kAuto,           // a request only: the plan picks
  kCopy,           // canonical form is the identity
  kRows,           // the minor run is kept: runs are copied whole
  kNaive,          // one element a thread
  kTiledUnpadded,  // shared-memory tile, bank conflicts and all
  kTiled,          // shared-memory tile with one column of padding
  kVectorized,     // 16-byte accesses, swizzled tile, sub-transpose in registers
  kAsyncCopy,      // cp.async into the swizzled tile, one tile a block
  kPacked,         // tiles of a set of dimensions: skinny, small and high-rank permutations
  kShifted,        // rows of any alignment: whole words, shifted in registers
  kBlocked,        // CPU: cache-blocked tiles, transposed in registers
  kInterleave,     // CPU: a side of 2 to 8 elements, adjacent in memory
  kTiny,           // CPU: a batch of matrices of a tile at most
  kSubByte,        // elements narrower than a byte; never asked for by name
  kInPlace,        // operand and result are one buffer; never asked for by name
};

const char* KindName(Kind kind);
// False where `name` is no kind. "auto", "native" and "autotune" all ask the plan to pick.
bool ParseKind(const char* name, size_t size, Kind* kind);
std::vector<std::string> KindNames(Platform platform);

// Every side that some kind is compiled for.
inline constexpr int kTileSides[] = {8, 16, 32, 64, 128};

// Launch shape shared by the plan and the kernels.
constexpr int ScalarThreads(int tile) { return tile <= 8 ? 64 : 256; }
constexpr int SwizzledThreads(int element_bytes, int rows, int cols) {
  const int quarter = rows * cols * element_bytes / 16 / 4;  // four 16-byte chunks a thread
  return quarter < 32 ? 32 : quarter;
}
// Bytes are read in runs of twice the tile's side: 256, as for the other widths.
constexpr int AsyncCols(int element_bytes, int tile) {
  return element_bytes == 1 ? 2 * tile : tile;
}
// A shifted tile reads a window of each row from a 16-byte boundary on. Where the input's rows
// start elsewhere, its columns are fewer by what may come before the first element, and whole
// words. Where the output's rows start within sectors, tiles overlap by a sector of rows, so that
// each sector is written by one block alone.
inline constexpr int kShiftedRows = 128;
inline constexpr int kShiftedWindow = 256;
inline constexpr int kShiftedThreads = 256;
constexpr int ShiftedCols(int element_bytes, bool aligned) {
  const int word = element_bytes < 4 ? 4 : element_bytes;
  const int before = aligned ? 0 : 16 - element_bytes;
  return (kShiftedWindow - before) / word * word / element_bytes;
}
constexpr int CpuTile(int element_bytes) { return 64 / element_bytes; }

// The CPU wakes other threads for arrays at least this large.
inline constexpr int64_t kCpuThreadBytes = int64_t{2} << 20;

struct Request {
  Platform platform = Platform::kCpu;
  const int64_t* dims = nullptr;
  const int64_t* axes = nullptr;
  int64_t rank = 0;
  int64_t element_bits = 0;  // below a byte: 4 or 2, for elements that XLA packs
  Kind kind = Kind::kAuto;
  int64_t tile = 0;            // 0: the plan picks; with kAuto a wish, for kinds that have it
  int pointer_alignment = 16;  // the largest power of two up to 16 that divides both addresses
  bool in_place = false;       // operand and result are one buffer; `kind` is then ignored
};

struct Plan {
  Permutation permutation;
  Kind kind = Kind::kCopy;
  int tile = 0;                          // side of the tile in elements, 0 where the kind has none
  int64_t row_tiles = 0, col_tiles = 0;  // tiles of one matrix, where the kind has tiles
  bool matrices_first = false;           // blocks visit one tile of every matrix, then the next
  int row_overlap = 0;                   // rows that a shifted tile shares with the one before
  int tile_cols = 0;                     // columns of a shifted tile
  int vector_bytes = 0;                  // bytes of one global-memory access
  bool aligned = false;                  // every row of both arrays starts on a 16-byte boundary
  int threads = 0;                       // threads a block (CUDA)
  int64_t blocks = 0;                    // blocks of the grid (CUDA) or tiles (CPU)
  const char* reason = "";
  int sub_byte_bits = 0;  // of the request's elements, where XLA packs them
  PackedLaunch packed;    // set where the kind is kPacked or (CUDA) kRows
};

// False where no kernel of any platform moves arrays of this shape and width; `error` says why.
bool CheckRequest(const Request& request, std::string* error);

// False where the request is not possible; `error` then says what is.
bool MakePlan(const Request& request, Plan* plan, std::string* error);

// The plans worth measuring for a CUDA request: every kind and tile that may win, each once.
std::vector<Plan> CudaCandidates(Request request);

// The two dimensions that a tiled kernel exchanges: `cols` is contiguous in the input, `rows` in
// the output. Valid where the minor dimension is not kept.
struct TilePair {
  int row_dim, col_dim;
};
TilePair TiledPair(const Permutation& p);

// Bytes of one array below which `auto` leaves a plan's permutation to XLA: the fixed cost of a
// custom call then outweighs the faster kernel. docs/tuning.md has the measurements.
int64_t CrossoverBytes(Platform platform, const Plan& plan);

// True where `auto` should leave the permutation to XLA's own transpose. `reason` is set either
// way.
bool PreferXla(Platform platform, const Plan& plan, const char** reason);

}  // namespace jax_transpose
