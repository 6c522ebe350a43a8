// What both handlers share: reading a call's buffers and attributes into a plan. Saved programs
// come from other people, so nothing that a call says is taken for granted.
#pragma once

#include <atomic>
#include <bitset>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "plan/plan.h"
#include "xla/ffi/api/ffi.h"

namespace jax_transpose {

namespace ffi = xla::ffi;

inline int PointerAlignment(const void* a, const void* b) {
  const auto bits = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) | 16;
  return static_cast<int>(bits & (~bits + 1));
}

inline ffi::Error InvalidArgument(const std::string& text) {
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, "jax_transpose: " + text);
}

// Bits of an element in a buffer, where sub-byte types are packed; 0 for types that this FFI header
// does not know. Those cannot be checked and are refused: it knows all that the kernels move.
inline int64_t BufferBits(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::S1:
    case ffi::DataType::U1:
      return 1;
    case ffi::DataType::S2:
    case ffi::DataType::U2:
      return 2;
    case ffi::DataType::S4:
    case ffi::DataType::U4:
    case ffi::DataType::F4E2M1FN:
      return 4;
    case ffi::DataType::PRED:
    case ffi::DataType::S8:
    case ffi::DataType::U8:
    case ffi::DataType::F8E5M2:
    case ffi::DataType::F8E4M3:
    case ffi::DataType::F8E4M3FN:
    case ffi::DataType::F8E4M3B11FNUZ:
    case ffi::DataType::F8E5M2FNUZ:
    case ffi::DataType::F8E4M3FNUZ:
    case ffi::DataType::F8E3M4:
    case ffi::DataType::F8E8M0FNU:
      return 8;
    case ffi::DataType::S16:
    case ffi::DataType::U16:
    case ffi::DataType::F16:
    case ffi::DataType::BF16:
      return 16;
    case ffi::DataType::S32:
    case ffi::DataType::U32:
    case ffi::DataType::F32:
      return 32;
    case ffi::DataType::S64:
    case ffi::DataType::U64:
    case ffi::DataType::F64:
    case ffi::DataType::C64:
      return 64;
    case ffi::DataType::C128:
      return 128;
    default:
      return 0;
  }
}

inline std::string Text(ffi::AnyBuffer buffer) {
  const auto dims = buffer.dimensions();
  return "type " + std::to_string(static_cast<int>(buffer.element_type())) + " and shape " +
         ShapeText(dims.begin(), static_cast<int64_t>(dims.size()));
}

inline ffi::Error CheckTypes(ffi::AnyBuffer in, ffi::AnyBuffer out, int64_t element_bits) {
  if (in.element_type() != out.element_type()) {
    return InvalidArgument("the operand has " + Text(in) + ", the result " + Text(out) +
                           ": the types must be the same");
  }
  const int64_t bits = BufferBits(in.element_type());
  if (bits == 0) {
    return InvalidArgument("the operand has " + Text(in) + ": a type that no kernel moves");
  }
  if (bits != element_bits) {
    return InvalidArgument("element_bits=" + std::to_string(element_bits) +
                           " for an operand whose elements have " + std::to_string(bits) + " bits");
  }
  return ffi::Error::Success();
}

inline ffi::Error CheckShapes(ffi::AnyBuffer in, ffi::AnyBuffer out,
                              ffi::Span<const int64_t> permutation) {
  const auto dims = in.dimensions(), out_dims = out.dimensions();
  constexpr size_t kMaxAxes = 1024;  // of which all but kMaxRank have length 1
  if (dims.size() > kMaxAxes) {
    return InvalidArgument("more than " + std::to_string(kMaxAxes) + " dimensions");
  }
  const auto rank = static_cast<int64_t>(dims.size());
  auto axes = [&] {
    return "permutation=" +
           ShapeText(permutation.begin(), static_cast<int64_t>(permutation.size()));
  };
  if (permutation.size() != dims.size() || out_dims.size() != dims.size()) {
    return InvalidArgument(axes() + " for an operand of shape " + ShapeText(dims.begin(), rank) +
                           " and a result of " + std::to_string(out_dims.size()) +
                           " dimensions: all must have the same number");
  }
  std::bitset<kMaxAxes> seen;
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t axis = permutation.begin()[i];
    if (axis < 0 || axis >= rank || seen[axis]) {
      return InvalidArgument(axes() + " is no permutation of " + std::to_string(rank) + " axes");
    }
    seen[axis] = true;
    if (out_dims.begin()[i] != dims.begin()[axis]) {
      return InvalidArgument(axes() + " does not map an operand of shape " +
                             ShapeText(dims.begin(), rank) + " to a result of shape " +
                             ShapeText(out_dims.begin(), rank));
    }
  }
  return ffi::Error::Success();
}

// `given` is the operand whose buffer XLA makes the result's.
inline ffi::Error CheckGiven(ffi::AnyBuffer given, ffi::AnyBuffer out) {
  if (given.element_type() == out.element_type() && given.dimensions() == out.dimensions()) {
    return ffi::Error::Success();
  }
  return InvalidArgument("the second operand has " + Text(given) + ", the result " + Text(out) +
                         ": they must be the same");
}

// For tests of what happens where planning runs out of memory.
inline std::atomic<bool> force_planning_failure{false};

// Types and shapes must have been checked.
inline ffi::Error PlanCall(Platform platform, ffi::AnyBuffer in, ffi::AnyBuffer out,
                           ffi::Span<const int64_t> permutation, int64_t element_bits,
                           std::string_view kernel, int64_t tile, Plan* plan) {
  if (force_planning_failure.load(std::memory_order_relaxed)) throw std::bad_alloc();
  Request request;
  request.platform = platform;
  request.dims = in.dimensions().begin();
  request.axes = permutation.begin();
  request.rank = static_cast<int64_t>(permutation.size());
  request.element_bits = element_bits;
  request.tile = tile;
  request.pointer_alignment = PointerAlignment(in.untyped_data(), out.untyped_data());
  // Kernels with two buffers must never be given one.
  request.in_place = in.untyped_data() == out.untyped_data();
  std::string error;
  if (!ParseKind(kernel.data(), kernel.size(), &request.kind)) {
    error = "unknown kernel='" + std::string(kernel) + "'";
  } else if (MakePlan(request, plan, &error)) {
    return ffi::Error::Success();
  }
  return InvalidArgument(error);
}

// The attributes of every handler, in the order in which its function takes them.
template <class Binding>
auto BindAttributes(Binding binding) {
  return std::move(binding)
      .template Attr<ffi::Span<const int64_t>>("permutation")
      .template Attr<int64_t>("element_bits")
      .template Attr<std::string_view>("kernel")
      .template Attr<int64_t>("tile");
}

}  // namespace jax_transpose
