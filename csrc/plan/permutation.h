// Canonical form of an N-dimensional transpose: the fewest dimensions and the widest element that
// move the same bytes.
#pragma once

#include <cstdint>
#include <string>

namespace jax_transpose {

// 2^48 elements is more than any device holds, so no canonical form (every extent >= 2) is longer.
inline constexpr int kMaxRank = 48;
inline constexpr int kSectorBytes = 32;  // what GPU memory reads and writes at least

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A row-major array of `extent[0..rank)` whose dimension `axes[i]` becomes output dimension i.
struct Permutation {
  int rank = 0;
  int element_bytes = 0;  // 0 where elements are narrower than a byte
  int packed_bits = 0;    // 4 or 2: their width then
  int64_t extent[kMaxRank];
  int axes[kMaxRank];

  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= extent[i];
    return n;
  }
  int64_t bytes() const {
    return packed_bits == 0 ? elements() * element_bytes : (elements() * packed_bits + 7) / 8;
  }
  bool keeps_minor() const { return rank > 0 && axes[rank - 1] == rank - 1; }
};

// Drops extents of 1, merges axes that stay adjacent, and, where the minor dimension is kept,
// widens the element to the largest power of two up to `max_element_bytes` that divides the kept
// run. Elements of `packed_bits` (0: none) become bytes where a kept run or an unmoved array is one
// of whole bytes. Returns false when `rank` dimensions longer than 1 exceed kMaxRank. A zero extent
// yields rank 1 with extent 0.
bool Canonicalize(const int64_t* dims, const int64_t* axes, int64_t rank, int element_bytes,
                  int packed_bits, int max_element_bytes, Permutation* result);

// Such as "(3, 5)".
std::string ShapeText(const int64_t* dims, int64_t rank);

// True where counting the array's bits does not overflow, which takes 2^60 bytes: below that, no
// sum or product of a plan does either. No extent may be negative; one of zero makes any array
// empty. `error` names the shape otherwise.
bool CheckSize(const int64_t* dims, int64_t rank, int64_t element_bits, std::string* error);

// Element strides of the input dimensions, and of the same dimensions in the output.
struct Strides {
  int64_t in[kMaxRank];
  int64_t out[kMaxRank];
};
Strides ComputeStrides(const Permutation& p);

}  // namespace jax_transpose
