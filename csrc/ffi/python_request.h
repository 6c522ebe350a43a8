// Plans that Python asks for, in both modules: the same checks and the same errors.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace jax_transpose {

// Points into `shape` and `axes`. Raises ValueError where `axes` do not permute `shape`.
inline Request PythonRequest(Platform platform, const std::vector<int64_t>& shape,
                             const std::vector<int64_t>& axes, int64_t element_bits) {
  if (shape.size() != axes.size()) {
    throw nanobind::value_error("shape and axes must have the same length");
  }
  std::vector<bool> seen(axes.size(), false);
  for (int64_t axis : axes) {
    if (axis < 0 || axis >= static_cast<int64_t>(axes.size()) || seen[axis]) {
      throw nanobind::value_error("axes is not a permutation");
    }
    seen[axis] = true;
  }
  Request request;
  request.platform = platform;
  request.dims = shape.data();
  request.axes = axes.data();
  request.rank = static_cast<int64_t>(shape.size());
  request.element_bits = element_bits;
  return request;
}

// Raises ValueError where the kernel is unknown or the plan not possible.
inline Plan PythonPlan(Request request, const std::string& kernel) {
  Plan plan;
  std::string error;
  if (!ParseKind(kernel.data(), kernel.size(), &request.kind)) {
    error = "unknown kernel '" + kernel + "'";
  } else if (MakePlan(request, &plan, &error)) {
    return plan;
  }
  throw nanobind::value_error(error.c_str());
}

}  // namespace jax_transpose
