#include "plan/permutation.h"

namespace jax_transpose {

bool Canonicalize(const int64_t* dims, const int64_t* axes, int64_t rank, int element_bytes,
                  int packed_bits, int max_element_bytes, Permutation* result) {
  Permutation& p = *result;
  p.element_bytes = element_bytes;
  p.packed_bits = packed_bits;
  for (int64_t i = 0; i < rank; ++i) {
    if (dims[i] == 0) {
      p.rank = 1;
      p.extent[0] = 0;
      p.axes[0] = 0;
      if (packed_bits != 0) p.element_bytes = 1;
      p.packed_bits = 0;
      return true;
    }
  }

  // Each group is a maximal run of input axes that stay adjacent and in order; extents of 1 are
  // transparent. `first[g]` is the group's leading input axis, in output order.
  int groups = 0;
  int64_t first[kMaxRank], last[kMaxRank], extent[kMaxRank];
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t axis = axes[i];
    if (dims[axis] == 1) continue;
    bool joins = false;
    if (groups > 0 && last[groups - 1] < axis) {
      joins = true;
      for (int64_t a = last[groups - 1] + 1; a < axis; ++a) joins = joins && dims[a] == 1;
    }
    if (joins) {
      extent[groups - 1] *= dims[axis];
      last[groups - 1] = axis;
    } else {
      if (groups == kMaxRank) return false;
      first[groups] = last[groups] = axis;
      extent[groups] = dims[axis];
      ++groups;
    }
  }

  p.rank = groups;
  for (int g = 0; g < groups; ++g) {
    int position = 0;
    for (int h = 0; h < groups; ++h) position += first[h] < first[g];
    p.axes[g] = position;
    p.extent[position] = extent[g];
  }

  if (p.packed_bits != 0 && p.rank <= 1) {
    // The bits after the last element, if any, are copied with it.
    p.extent[0] = p.bytes();
    p.rank = 1;
    p.axes[0] = 0;
    p.element_bytes = 1;
    p.packed_bits = 0;
  }
  if (p.keeps_minor()) {
    int64_t& run = p.extent[p.rank - 1];
    while (p.packed_bits != 0 && run % 2 == 0) {
      run /= 2;
      p.packed_bits *= 2;
      if (p.packed_bits == 8) {
        p.packed_bits = 0;
        p.element_bytes = 1;
      }
    }
    while (p.packed_bits == 0 && run % 2 == 0 && p.element_bytes * 2 <= max_element_bytes) {
      run /= 2;
      p.element_bytes *= 2;
    }
    // The other axes cannot merge further: they were not adjacent before either.
    if (run == 1) --p.rank;
  }
  return true;
}

std::string ShapeText(const int64_t* dims, int64_t rank) {
  std::string text;
  for (int64_t i = 0; i < rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  return "(" + text + (rank == 1 ? ",)" : ")");
}

bool CheckSize(const int64_t* dims, int64_t rank, int64_t element_bits, std::string* error) {
  int64_t bits = element_bits;
  bool empty = false, overflows = false;
  for (int64_t i = 0; i < rank; ++i) {
    if (dims[i] < 0) {
      *error = "shape " + ShapeText(dims, rank) + " has a negative extent";
      return false;
    }
    empty = empty || dims[i] == 0;
    overflows = overflows || __builtin_mul_overflow(bits, dims[i], &bits);
  }
  if (empty || !overflows) return true;
  *error = "an array of shape " + ShapeText(dims, rank) + " and elements of " +
           std::to_string(element_bits) + " bits has 2**60 bytes or more, which no kernel moves";
  return false;
}

Strides ComputeStrides(const Permutation& p) {
  Strides s;
  int64_t stride = 1;
  for (int i = p.rank - 1; i >= 0; --i) {
    s.in[i] = stride;
    stride *= p.extent[i];
  }
  stride = 1;
  for (int i = p.rank - 1; i >= 0; --i) {
    s.out[p.axes[i]] = stride;
    stride *= p.extent[p.axes[i]];
  }
  return s;
}

}  // namespace jax_transpose
