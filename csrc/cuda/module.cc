// The Python module jax_transpose._cuda: the CUDA handler as a capsule, and what explains a missing
// device. Importing it needs neither a driver nor a GPU.
#include <cuda_runtime.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/launch.h"
#include "cuda/measure.h"
#include "ffi/arguments.h"
#include "ffi/plan_cache.h"
#include "ffi/python_request.h"

namespace jax_transpose::cuda {
namespace {

namespace nb = nanobind;

std::string Describe(cudaError_t code) {
  std::string text = std::string(cudaGetErrorName(code)) + " (" + cudaGetErrorString(code) + ")";
  if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorUnsupportedPtxVersion) {
    int device = 0, major = 0, minor = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    text += "; this build holds code for " JAX_TRANSPOSE_CUDA_ARCHITECTURES ", the device is sm_" +
            std::to_string(major) + std::to_string(minor) +
            ": rebuild with CMAKE_CUDA_ARCHITECTURES set to it";
  }
  return text;
}

ffi::Error Transpose(cudaStream_t stream, ffi::AnyBuffer in, ffi::Result<ffi::AnyBuffer> out,
                     ffi::Span<const int64_t> permutation, int64_t element_bits,
                     std::string_view kernel, int64_t tile) {
  const Plan* plan = nullptr;
  ffi::Error error =
      CachedPlanCall(Platform::kCuda, in, *out, permutation, element_bits, kernel, tile, &plan);
  if (error.failure()) return error;
  const cudaError_t code = Launch(*plan, in.untyped_data(), out->untyped_data(), stream);
  if (code == cudaSuccess) return ffi::Error::Success();
  return ffi::Error(ffi::ErrorCode::kInternal, std::string("jax_transpose: kernel '") +
                                                   KindName(plan->kind) +
                                                   "' failed to launch: " + Describe(code));
}

// The second argument's buffer is the result's: XLA aliases them.
ffi::Error TransposeInto(cudaStream_t stream, ffi::AnyBuffer in, ffi::AnyBuffer,
                         ffi::Result<ffi::AnyBuffer> out, ffi::Span<const int64_t> permutation,
                         int64_t element_bits, std::string_view kernel, int64_t tile) {
  return Transpose(stream, in, out, permutation, element_bits, kernel, tile);
}

// Median microseconds of each (kind, tile), for a permutation of a default device's arrays.
std::vector<float> Measure(const std::vector<int64_t>& shape, const std::vector<int64_t>& axes,
                           int element_bytes,
                           const std::vector<std::pair<std::string, int>>& candidates) {
  std::vector<Plan> plans;
  for (const auto& [name, tile] : candidates) {
    Request request = PythonRequest(Platform::kCuda, shape, axes, 8 * element_bytes);
    request.tile = tile;
    plans.push_back(PythonPlan(request, name));
  }
  std::vector<float> microseconds;
  const cudaError_t code = MeasurePlans(plans, &microseconds);
  if (code != cudaSuccess) throw std::runtime_error(Describe(code));
  return microseconds;
}

XLA_FFI_DEFINE_HANDLER(TransposeHandler, Transpose,
                       BindAttributes(ffi::Ffi::Bind()
                                          .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                          .Arg<ffi::AnyBuffer>()
                                          .Ret<ffi::AnyBuffer>()),
                       {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER(TransposeIntoHandler, TransposeInto,
                       BindAttributes(ffi::Ffi::Bind()
                                          .Ctx<ffi::PlatformStream<cudaStream_t>>()
                                          .Arg<ffi::AnyBuffer>()
                                          .Arg<ffi::AnyBuffer>()
                                          .Ret<ffi::AnyBuffer>()),
                       {ffi::Traits::kCmdBufferCompatible});

}  // namespace

NB_MODULE(_cuda, m) {
  m.def("handler", [] { return nb::capsule(reinterpret_cast<void*>(TransposeHandler)); });
  m.def("into_handler", [] { return nb::capsule(reinterpret_cast<void*>(TransposeIntoHandler)); });
  m.attr("ffi_api_version") = nb::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR);
  m.attr("architectures") = JAX_TRANSPOSE_CUDA_ARCHITECTURES;
  m.def("device_count", []() -> std::pair<int, std::string> {
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    return {code == cudaSuccess ? count : 0, code == cudaSuccess ? "" : Describe(code)};
  });
  m.def("measure", &Measure, nb::arg("shape"), nb::arg("axes"), nb::arg("element_bytes"),
        nb::arg("candidates"));
  m.def("_force_launch_failure", &ForceLaunchFailure, nb::arg("force"));
}

}  // namespace jax_transpose::cuda
