// The Python module jax_transpose._cpu: the CPU handler as a capsule, and the plans of both
// platforms for `explain` and for lowering.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/kernels.h"
#include "ffi/arguments.h"

namespace jax_transpose::cpu {
namespace {

namespace nb = nanobind;

ffi::Error Transpose(ffi::AnyBuffer in, ffi::Result<ffi::AnyBuffer> out,
                     ffi::Span<const int64_t> permutation, int64_t element_bits,
                     std::string_view kernel, int64_t tile) {
  Plan plan;
  ffi::Error error =
      PlanCall(Platform::kCpu, in, *out, permutation, element_bits, kernel, tile, &plan);
  if (error.success()) Run(plan, in.untyped_data(), out->untyped_data());
  return error;
}

XLA_FFI_DEFINE_HANDLER(TransposeHandler, Transpose,
                       ffi::Ffi::Bind()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Attr<ffi::Span<const int64_t>>("permutation")
                           .Attr<int64_t>("element_bits")
                           .Attr<std::string_view>("kernel")
                           .Attr<int64_t>("tile"));

Platform ParsePlatform(const std::string& name) {
  if (name == "cpu") return Platform::kCpu;
  if (name == "cuda") return Platform::kCuda;
  throw nb::value_error(("platform='" + name + "' has no kernels; allowed: 'cpu', 'cuda'").c_str());
}

nb::dict PlanAsDict(const std::string& platform_name, const std::vector<int64_t>& shape,
                    const std::vector<int64_t>& axes, int element_bytes, const std::string& kernel,
                    int tile) {
  if (shape.size() != axes.size()) {
    throw nb::value_error("shape and axes must have the same length");
  }
  std::vector<bool> seen(axes.size(), false);
  for (int64_t axis : axes) {
    if (axis < 0 || axis >= static_cast<int64_t>(axes.size()) || seen[axis]) {
      throw nb::value_error("axes is not a permutation");
    }
    seen[axis] = true;
  }
  Request request;
  request.platform = ParsePlatform(platform_name);
  request.dims = shape.data();
  request.axes = axes.data();
  request.rank = static_cast<int64_t>(shape.size());
  request.element_bytes = element_bytes;
  request.tile = tile;
  Plan plan;
  std::string error;
  if (!ParseKind(kernel.data(), kernel.size(), &request.kind)) {
    error = "unknown kernel '" + kernel + "'";
  } else if (MakePlan(request, &plan, &error)) {
    const Permutation& p = plan.permutation;
    const char* reason = plan.reason;
    const bool prefer_xla = PreferXla(request.platform, plan, &reason);
    nb::dict result;
    result["canonical_shape"] =
        nb::tuple(nb::cast(std::vector<int64_t>(p.extent, p.extent + p.rank)));
    result["canonical_axes"] = nb::tuple(nb::cast(std::vector<int>(p.axes, p.axes + p.rank)));
    result["element_bytes"] = p.element_bytes;
    result["kernel"] = KindName(plan.kind);
    result["tile"] = plan.tile;
    result["vector_width"] = plan.vector_bytes;
    result["grid"] = plan.blocks;
    result["block"] = plan.threads;
    result["bytes_moved"] = 2 * p.bytes();
    result["prefer_xla"] = prefer_xla;
    result["reason"] = plan.reason;
    result["auto_reason"] = reason;
    return result;
  }
  throw nb::value_error(error.c_str());
}

}  // namespace

NB_MODULE(_cpu, m) {
  m.def("handler", [] { return nb::capsule(reinterpret_cast<void*>(TransposeHandler)); });
  m.attr("ffi_api_version") = nb::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR);
  m.def("plan", &PlanAsDict, nb::arg("platform"), nb::arg("shape"), nb::arg("axes"),
        nb::arg("element_bytes"), nb::arg("kernel"), nb::arg("tile"));
  m.def("kernels", [](const std::string& platform) {
    return nb::tuple(nb::cast(KindNames(ParsePlatform(platform))));
  });
}

}  // namespace jax_transpose::cpu
