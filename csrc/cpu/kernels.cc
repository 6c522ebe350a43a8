#include "cpu/kernels.h"

#include <algorithm>
#include <cstring>

namespace jax_transpose::cpu {
namespace {

struct alignas(16) Wide {
  uint64_t low, high;
};

template <int kBytes>
struct ElementOf;
template <>
struct ElementOf<1> {
  using type = uint8_t;
};
template <>
struct ElementOf<2> {
  using type = uint16_t;
};
template <>
struct ElementOf<4> {
  using type = uint32_t;
};
template <>
struct ElementOf<8> {
  using type = uint64_t;
};
template <>
struct ElementOf<16> {
  using type = Wide;
};

// Walks the dimensions of `order` (major first) like an odometer, keeping both offsets.
class Odometer {
 public:
  Odometer(const Permutation& p, const int* order, int count) : count_(count) {
    const Strides s = ComputeStrides(p);
    for (int i = 0; i < count; ++i) {
      extent_[i] = p.extent[order[i]];
      in_stride_[i] = s.in[order[i]];
      out_stride_[i] = s.out[order[i]];
      position_[i] = 0;
    }
  }
  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  bool Next() {
    for (int i = count_ - 1; i >= 0; --i) {
      in_ += in_stride_[i];
      out_ += out_stride_[i];
      if (++position_[i] < extent_[i]) return true;
      in_ -= in_stride_[i] * extent_[i];
      out_ -= out_stride_[i] * extent_[i];
      position_[i] = 0;
    }
    return false;
  }

 private:
  int count_;
  int64_t in_ = 0, out_ = 0;
  int64_t extent_[kMaxRank], in_stride_[kMaxRank], out_stride_[kMaxRank], position_[kMaxRank];
};

template <class T>
void Naive(const Permutation& p, const T* in, T* out) {
  Odometer at(p, p.axes, p.rank);
  do out[at.out()] = in[at.in()];
  while (at.Next());
}

// Whole kept runs, in output order.
template <class T>
void Rows(const Permutation& p, const T* in, T* out) {
  if (!p.keeps_minor()) return Naive(p, in, out);
  const int64_t run = p.extent[p.rank - 1];
  Odometer at(p, p.axes, p.rank - 1);
  do std::memcpy(out + at.out(), in + at.in(), run * sizeof(T));
  while (at.Next());
}

// Tiles go through a local buffer: rows of a power-of-two pitch share cache sets, so reading them
// down a column in place would evict lines before they are used up.
template <class T, int kTile>
void Blocked(const Permutation& p, const T* in, T* out) {
  const TilePair pair = TiledPair(p);
  const Strides s = ComputeStrides(p);
  const int64_t rows = p.extent[pair.row_dim], cols = p.extent[pair.col_dim];
  const int64_t in_row = s.in[pair.row_dim], in_col = s.in[pair.col_dim];
  const int64_t out_row = s.out[pair.row_dim], out_col = s.out[pair.col_dim];
  int batch[kMaxRank], count = 0;
  for (int i = 0; i < p.rank; ++i) {
    if (p.axes[i] != pair.row_dim && p.axes[i] != pair.col_dim) batch[count++] = p.axes[i];
  }
  alignas(64) T tile[kTile][kTile];
  Odometer at(p, batch, count);
  do {
    for (int64_t col = 0; col < cols; col += kTile) {
      const int width = static_cast<int>(std::min<int64_t>(kTile, cols - col));
      for (int64_t row = 0; row < rows; row += kTile) {
        const int height = static_cast<int>(std::min<int64_t>(kTile, rows - row));
        const T* source = in + at.in() + row * in_row + col * in_col;
        T* target = out + at.out() + row * out_row + col * out_col;
        if (in_col == 1 && out_row == 1 && width == kTile && height == kTile) {
          for (int r = 0; r < kTile; ++r)
            std::memcpy(tile[r], source + r * in_row, sizeof(tile[r]));
          for (int c = 0; c < kTile; ++c) {
            for (int r = 0; r < kTile; ++r) target[c * out_col + r] = tile[r][c];
          }
        } else {
          for (int c = 0; c < width; ++c) {
            for (int r = 0; r < height; ++r) {
              target[c * out_col + r * out_row] = source[r * in_row + c * in_col];
            }
          }
        }
      }
    }
  } while (at.Next());
}

template <int kBytes>
void RunWidth(const Plan& plan, const void* in, void* out) {
  using T = typename ElementOf<kBytes>::type;
  const T* source = static_cast<const T*>(in);
  T* target = static_cast<T*>(out);
  switch (plan.kind) {
    case Kind::kBlocked:
      return Blocked<T, CpuTile(kBytes)>(plan.permutation, source, target);
    case Kind::kRows:
      return Rows(plan.permutation, source, target);
    default:
      return Naive(plan.permutation, source, target);
  }
}

}  // namespace

void Run(const Plan& plan, const void* in, void* out) {
  const Permutation& p = plan.permutation;
  if (plan.blocks == 0) return;
  if (plan.kind == Kind::kCopy) {
    std::memcpy(out, in, p.bytes());
    return;
  }
  switch (p.element_bytes) {
    case 1:
      return RunWidth<1>(plan, in, out);
    case 2:
      return RunWidth<2>(plan, in, out);
    case 4:
      return RunWidth<4>(plan, in, out);
    case 8:
      return RunWidth<8>(plan, in, out);
    case 16:
      return RunWidth<16>(plan, in, out);
  }
}

}  // namespace jax_transpose::cpu
