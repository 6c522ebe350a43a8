// What both handlers share: reading a call's buffers and attributes into a plan.
#pragma once

#include <cstdint>
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

inline ffi::Error CheckShapes(ffi::AnyBuffer in, ffi::AnyBuffer out,
                              ffi::Span<const int64_t> permutation) {
  const auto dims = in.dimensions();
  if (permutation.size() != dims.size()) {
    return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                      "jax_transpose: permutation has " + std::to_string(permutation.size()) +
                          " axes but the operand has " + std::to_string(dims.size()));
  }
  const auto out_dims = out.dimensions();
  uint64_t seen = 0;
  if (dims.size() > 64) {
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, "jax_transpose: more than 64 dimensions");
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t axis = permutation.begin()[i];
    if (axis < 0 || axis >= static_cast<int64_t>(dims.size()) || (seen >> axis & 1) != 0 ||
        out_dims.begin()[i] != dims.begin()[axis]) {
      return ffi::Error(ffi::ErrorCode::kInvalidArgument,
                        "jax_transpose: permutation does not map the operand to the result");
    }
    seen |= uint64_t{1} << axis;
  }
  return ffi::Error::Success();
}

// Shapes must have been checked. Element width comes as an attribute: buffers of types that this
// FFI header is too old to know report a width of zero, and sub-byte types report a whole byte.
inline ffi::Error PlanCall(Platform platform, ffi::AnyBuffer in, ffi::AnyBuffer out,
                           ffi::Span<const int64_t> permutation, int64_t element_bits,
                           std::string_view kernel, int64_t tile, Plan* plan) {
  Request request;
  request.platform = platform;
  request.dims = in.dimensions().begin();
  request.axes = permutation.begin();
  request.rank = static_cast<int64_t>(permutation.size());
  request.set_element_bits(element_bits);
  request.tile = static_cast<int>(tile);
  request.pointer_alignment = PointerAlignment(in.untyped_data(), out.untyped_data());
  // Kernels with two buffers must never be given one.
  request.in_place = in.untyped_data() == out.untyped_data();
  std::string error;
  if (!ParseKind(kernel.data(), kernel.size(), &request.kind)) {
    error = "unknown kernel '" + std::string(kernel) + "'";
  } else if (MakePlan(request, plan, &error)) {
    return ffi::Error::Success();
  }
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, "jax_transpose: " + error);
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
