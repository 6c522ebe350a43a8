#include "cpu/sub_byte.h"

#include <algorithm>
#include <cstring>

#include "plan/bit_blocks.h"
#include "plan/sub_byte_plan.h"

namespace jax_transpose::cpu {
namespace {

constexpr int kRun = 64;                 // bytes of a tile's row, on both sides
constexpr int kLanes = kRun / 4;         // words of a tile's row
constexpr int64_t kGatherBytes = 16384;  // output bytes a chunk

// A batch of matrices with strides in bytes; rows and columns start on bytes.
struct Matrices {
  int64_t rows, cols, in_pitch, out_pitch;
  int batch_rank = 0;
  int64_t extent[kMaxRank], in[kMaxRank], out[kMaxRank];  // minor first
};

Matrices MakeMatrices(const Permutation& p) {
  const TilePair pair = TiledPair(p);
  const Strides s = ComputeStrides(p);
  const int64_t per_byte = 8 / p.packed_bits;
  Matrices m;
  m.rows = p.extent[pair.row_dim];
  m.cols = p.extent[pair.col_dim];
  m.in_pitch = s.in[pair.row_dim] / per_byte;
  m.out_pitch = s.out[pair.col_dim] / per_byte;
  for (int d = p.rank - 1; d >= 0; --d) {
    if (d == pair.row_dim || d == pair.col_dim) continue;
    m.extent[m.batch_rank] = p.extent[d];
    m.in[m.batch_rank] = s.in[d] / per_byte;
    m.out[m.batch_rank] = s.out[d] / per_byte;
    ++m.batch_rank;
  }
  return m;
}

// Up to kRun bytes a row; what lies outside the matrix is read as zero and not written.
template <int kBits>
void TransposeTile(const uint8_t* in, int64_t in_pitch, uint8_t* out, int64_t out_pitch,
                   int64_t rows, int64_t cols) {
  constexpr int kBlock = 32 / kBits, kPerByte = 8 / kBits, kTile = kRun * kPerByte;
  const int64_t in_bytes = std::min<int64_t>(cols / kPerByte, kRun);
  const int64_t out_bytes = std::min<int64_t>(rows / kPerByte, kRun);
  uint32_t turned[kTile][kLanes];
  for (int64_t first = 0; first < std::min<int64_t>(rows, kTile); first += kBlock) {
    uint32_t words[kBlock][kLanes];
    for (int r = 0; r < kBlock; ++r) {
      const int64_t length = first + r < rows ? in_bytes : 0;
      if (length == kRun) {
        std::memcpy(words[r], in + (first + r) * in_pitch, kRun);
      } else {
        std::memset(words[r], 0, kRun);
        if (length > 0) std::memcpy(words[r], in + (first + r) * in_pitch, length);
      }
    }
    TransposeBlocks<kBits>(words);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int c = 0; c < kBlock; ++c) turned[lane * kBlock + c][first / kBlock] = words[c][lane];
    }
  }
  for (int64_t c = 0; c < std::min<int64_t>(cols, kTile); ++c) {
    if (out_bytes == kRun) {
      std::memcpy(out + c * out_pitch, turned[c], kRun);
    } else {
      std::memcpy(out + c * out_pitch, turned[c], out_bytes);
    }
  }
}

template <int kBits>
void RunTiles(const Plan& plan, const Matrices& m, const uint8_t* in, uint8_t* out, int64_t first,
              int64_t last) {
  constexpr int kPerByte = 8 / kBits, kTile = kRun * kPerByte;
  for (int64_t tile = first; tile < last; ++tile) {
    int64_t rest = tile / plan.row_tiles;
    const int64_t row = tile % plan.row_tiles * kTile, col = rest % plan.col_tiles * kTile;
    rest /= plan.col_tiles;
    int64_t in_offset = row * m.in_pitch + col / kPerByte;
    int64_t out_offset = col * m.out_pitch + row / kPerByte;
    for (int i = 0; i < m.batch_rank; ++i) {
      in_offset += rest % m.extent[i] * m.in[i];
      out_offset += rest % m.extent[i] * m.out[i];
      rest /= m.extent[i];
    }
    TransposeTile<kBits>(in + in_offset, m.in_pitch, out + out_offset, m.out_pitch, m.rows - row,
                         m.cols - col);
  }
}

// Bytes [first, last) of the output, element by element.
template <int kBits>
void Gather(const Permutation& p, const Strides& s, const uint8_t* in, uint8_t* out, int64_t first,
            int64_t last) {
  constexpr int kPerByte = 8 / kBits;
  constexpr unsigned kMask = (1u << kBits) - 1;
  const int64_t elements = p.elements();
  int64_t position[kMaxRank], rest = first * kPerByte, at = 0;
  for (int d = p.rank - 1; d >= 0; --d) {
    position[d] = rest % p.extent[p.axes[d]];
    rest /= p.extent[p.axes[d]];
    at += position[d] * s.in[p.axes[d]];
  }
  for (int64_t byte = first; byte < last; ++byte) {
    unsigned value = 0;
    const int count = static_cast<int>(std::min<int64_t>(kPerByte, elements - byte * kPerByte));
    for (int e = 0; e < count; ++e) {
      value |= ((in[at / kPerByte] >> (at % kPerByte * kBits)) & kMask) << (e * kBits);
      for (int d = p.rank - 1; d >= 0; --d) {
        at += s.in[p.axes[d]];
        if (++position[d] < p.extent[p.axes[d]]) break;
        at -= s.in[p.axes[d]] * p.extent[p.axes[d]];
        position[d] = 0;
      }
    }
    out[byte] = static_cast<uint8_t>(value);
  }
}

template <int kBits>
void RunBits(const Plan& plan, const uint8_t* in, uint8_t* out, const Threads& threads) {
  const Permutation& p = plan.permutation;
  const int64_t bytes = p.bytes();
  const int64_t items = plan.aligned ? plan.blocks : (bytes + kGatherBytes - 1) / kGatherBytes;
  Matrices matrices;
  if (plan.aligned) matrices = MakeMatrices(p);
  const Strides strides = ComputeStrides(p);
  const int64_t chunks = threads.count <= 1 ? 1 : std::min(items, threads.count * 8);
  ParallelFor(chunks, threads.count - 1, threads.schedule, [&](int64_t chunk) {
    // The remainder goes to the first chunks, one item each.
    const int64_t first = items / chunks * chunk + std::min(chunk, items % chunks);
    const int64_t last = items / chunks * (chunk + 1) + std::min(chunk + 1, items % chunks);
    if (plan.aligned) {
      RunTiles<kBits>(plan, matrices, in, out, first, last);
    } else {
      Gather<kBits>(p, strides, in, out, first * kGatherBytes,
                    std::min(bytes, last * kGatherBytes));
    }
  });
}

}  // namespace

void SubByte(const Plan& plan, const uint8_t* in, uint8_t* out, const Threads& threads) {
  if (plan.permutation.packed_bits == 4) return RunBits<4>(plan, in, out, threads);
  RunBits<2>(plan, in, out, threads);
}

}  // namespace jax_transpose::cpu
