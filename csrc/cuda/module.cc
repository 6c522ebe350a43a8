// The Python module jax_transpose._cuda: the CUDA handler as a capsule, and what explains a missing
// device. Importing it needs neither a driver nor a GPU.
#include <cuda_runtime.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <future>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/launch.h"
#include "cuda/measure.h"
#include "cuda/probe.h"
#include "ffi/arguments.h"
#include "ffi/no_throw.h"
#include "ffi/plan_cache.h"
#include "ffi/python_request.h"

namespace jax_transpose::cuda {
namespace {

namespace nb = nanobind;

bool LacksCode(cudaError_t code) {
  return code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction ||
         code == cudaErrorUnsupportedPtxVersion;
}

std::string Describe(cudaError_t code, int device) {
  std::string text = std::string(cudaGetErrorName(code)) + " (" + cudaGetErrorString(code) + ")";
  if (!LacksCode(code)) return text;
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  const std::string architecture = std::to_string(major) + std::to_string(minor);
  text += "; this build holds code for " JAX_TRANSPOSE_CUDA_ARCHITECTURES ", the device is sm_" +
          architecture;
  return major < 8 ? text + ", and the kernels need compute capability 8.0 or newer"
                   : text + ": rebuild with CUDAARCHS=" + architecture + "-real pip install .";
}

std::string Describe(cudaError_t code) {
  int device = 0;
  cudaGetDevice(&device);
  return Describe(code, device);
}

// Runs `work` with a device as the current one. In a thread of its own: to set the caller's device
// back would start a context on a device that the caller never used.
template <class Work>
cudaError_t OnDevice(int device, Work work) {
  return std::async(std::launch::async,
                    [&] {
                      const cudaError_t code = cudaSetDevice(device);
                      if (code == cudaSuccess) return work();
                      cudaGetLastError();
                      return code;
                    })
      .get();
}

ffi::Error Transpose(cudaStream_t stream, ffi::AnyBuffer in, ffi::Result<ffi::AnyBuffer> out,
                     ffi::Span<const int64_t> permutation, int64_t element_bits,
                     std::string_view kernel, int64_t tile) {
  if (ffi::Error error = CheckTypes(in, *out, element_bits); error.failure()) return error;
  if (ffi::Error error = CheckShapes(in, *out, permutation); error.failure()) return error;
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
ffi::Error TransposeInto(cudaStream_t stream, ffi::AnyBuffer in, ffi::AnyBuffer given,
                         ffi::Result<ffi::AnyBuffer> out, ffi::Span<const int64_t> permutation,
                         int64_t element_bits, std::string_view kernel, int64_t tile) {
  if (ffi::Error error = CheckGiven(given, *out); error.failure()) return error;
  return Transpose(stream, in, out, permutation, element_bits, kernel, tile);
}

// Median microseconds of each (kind, tile) on a CUDA device, for a permutation of arrays that lie
// there; infinity where one cannot be planned or launched.
std::vector<float> Measure(const std::vector<int64_t>& shape, const std::vector<int64_t>& axes,
                           int element_bytes,
                           const std::vector<std::pair<std::string, int>>& candidates, int device) {
  std::vector<float> microseconds(candidates.size(), std::numeric_limits<float>::infinity());
  Request request = PythonRequest(Platform::kCuda, shape, axes, int64_t{8} * element_bytes);
  std::vector<Plan> plans;
  std::vector<size_t> planned;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto& [name, tile] = candidates[i];
    request.tile = tile;
    Plan plan;
    std::string error;
    if (!ParseKind(name.data(), name.size(), &request.kind)) continue;
    if (!MakePlan(request, &plan, &error)) continue;
    plans.push_back(plan);
    planned.push_back(i);
  }
  std::vector<float> medians;
  cudaError_t code = cudaSuccess;
  {
    nb::gil_scoped_release unlocked;
    code = OnDevice(device, [&] { return MeasurePlans(plans, &medians); });
  }
  if (code != cudaSuccess) throw std::runtime_error(Describe(code, device));
  for (size_t i = 0; i < planned.size(); ++i) microseconds[planned[i]] = medians[i];
  return microseconds;
}

// Whether this build holds code that a CUDA device runs, and why not.
std::pair<bool, std::string> CanRun(int device) {
  nb::gil_scoped_release unlocked;
  const cudaError_t code = OnDevice(device, ProbeKernels);
  return {code == cudaSuccess, code == cudaSuccess ? "" : Describe(code, device)};
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
  m.def("handler", [] { return nb::capsule(reinterpret_cast<void*>(&NoThrow<TransposeHandler>)); });
  m.def("into_handler",
        [] { return nb::capsule(reinterpret_cast<void*>(&NoThrow<TransposeIntoHandler>)); });
  m.attr("ffi_api_version") = nb::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR);
  m.attr("architectures") = JAX_TRANSPOSE_CUDA_ARCHITECTURES;
  m.def("device_count", []() -> std::pair<int, std::string> {
    int count = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    return {code == cudaSuccess ? count : 0, code == cudaSuccess ? "" : Describe(code)};
  });
  m.def("measure", &Measure, nb::arg("shape"), nb::arg("axes"), nb::arg("element_bytes"),
        nb::arg("candidates"), nb::arg("device"));
  m.def("can_run", &CanRun, nb::arg("device"));
  m.def(
      "_force_planning_failure", [](bool force) { force_planning_failure = force; },
      nb::arg("force"));
  m.def("_force_launch_failure", &ForceLaunchFailure, nb::arg("force"));
}

}  // namespace jax_transpose::cuda
