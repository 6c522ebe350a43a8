// The Python module jax_transpose._cpu: the CPU handler as a capsule, and the plans of both
// platforms for `explain` and for lowering.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/kernels.h"
#include "cuda/emulate.h"
#include "ffi/arguments.h"
#include "ffi/no_throw.h"
#include "ffi/python_request.h"
#include "plan/cuda_model.h"

namespace jax_transpose::cpu {
namespace {

namespace nb = nanobind;

ffi::Error Transpose(ffi::ThreadPool pool, ffi::AnyBuffer in, ffi::Result<ffi::AnyBuffer> out,
                     ffi::Span<const int64_t> permutation, int64_t element_bits,
                     std::string_view kernel, int64_t tile) {
  if (ffi::Error error = CheckTypes(in, *out, element_bits); error.failure()) return error;
  if (ffi::Error error = CheckShapes(in, *out, permutation); error.failure()) return error;
  Plan plan;
  ffi::Error error =
      PlanCall(Platform::kCpu, in, *out, permutation, element_bits, kernel, tile, &plan);
  if (error.failure()) return error;
  Threads threads;
  if (plan.permutation.bytes() >= kCpuThreadBytes) {
    threads.count = pool.num_threads();
    threads.schedule = [&pool](std::function<void()> task) { pool.Schedule(std::move(task)); };
  }
  Run(plan, in.untyped_data(), out->untyped_data(), threads);
  return error;
}

// The second argument's buffer is the result's: XLA aliases them.
ffi::Error TransposeInto(ffi::ThreadPool pool, ffi::AnyBuffer in, ffi::AnyBuffer given,
                         ffi::Result<ffi::AnyBuffer> out, ffi::Span<const int64_t> permutation,
                         int64_t element_bits, std::string_view kernel, int64_t tile) {
  if (ffi::Error error = CheckGiven(given, *out); error.failure()) return error;
  return Transpose(pool, in, out, permutation, element_bits, kernel, tile);
}

XLA_FFI_DEFINE_HANDLER(
    TransposeHandler, Transpose,
    BindAttributes(
        ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>()));

XLA_FFI_DEFINE_HANDLER(TransposeIntoHandler, TransposeInto,
                       BindAttributes(ffi::Ffi::Bind()
                                          .Ctx<ffi::ThreadPool>()
                                          .Arg<ffi::AnyBuffer>()
                                          .Arg<ffi::AnyBuffer>()
                                          .Ret<ffi::AnyBuffer>()));

Platform ParsePlatform(const std::string& name) {
  if (name == "cpu") return Platform::kCpu;
  if (name == "cuda") return Platform::kCuda;
  throw nb::value_error(("platform='" + name + "' has no kernels; allowed: 'cpu', 'cuda'").c_str());
}

nb::dict PlanAsDict(const std::string& platform_name, const std::vector<int64_t>& shape,
                    const std::vector<int64_t>& axes, double element_bytes,
                    const std::string& kernel, int64_t tile, bool in_place) {
  Request request =
      PythonRequest(ParsePlatform(platform_name), shape, axes, std::lround(element_bytes * 8));
  request.tile = tile;
  request.in_place = in_place;
  const Plan plan = PythonPlan(request, kernel);
  const Permutation& p = plan.permutation;
  const char* reason = plan.reason;
  const bool prefer_xla = PreferXla(request.platform, plan, &reason);
  nb::dict result;
  result["canonical_shape"] =
      nb::tuple(nb::cast(std::vector<int64_t>(p.extent, p.extent + p.rank)));
  result["canonical_axes"] = nb::tuple(nb::cast(std::vector<int>(p.axes, p.axes + p.rank)));
  if (p.packed_bits != 0) {
    result["element_bytes"] = p.packed_bits / 8.0;
  } else {
    result["element_bytes"] = p.element_bytes;
  }
  result["kernel"] = KindName(plan.kind);
  result["tile"] = plan.tile;
  const bool cpu = request.platform == Platform::kCpu && plan.kind != Kind::kNaive &&
                   plan.kind != Kind::kSubByte;
  result["vector_width"] = cpu ? Kernels().vector_bytes : plan.vector_bytes;
  result["grid"] = plan.blocks;
  result["block"] = plan.threads;
  result["bytes_moved"] = 2 * p.bytes();
  if (request.platform == Platform::kCuda) {
    result["predicted_us"] = PredictMicroseconds(plan);
    result["predicted_on"] = kModelDevice;
  }
  result["prefer_xla"] = prefer_xla;
  result["reason"] = plan.reason + (cpu ? std::string(" (") + Kernels().name + ")" : "");
  result["auto_reason"] = reason;
  return result;
}

// Why no kernel moves arrays of this shape and width, whichever is asked for; empty where some do.
std::string Refusal(const nb::tuple& shape, const std::vector<int64_t>& axes,
                    double element_bytes) {
  std::vector<int64_t> dims;
  for (nb::handle extent : shape) {
    int64_t value = 0;
    if (!nb::try_cast(extent, value)) {
      return std::string("shape ") + nb::repr(shape).c_str() + " has an extent of 2**63 or more";
    }
    dims.push_back(value);
  }
  std::string error;
  CheckRequest(PythonRequest(Platform::kCpu, dims, axes, std::lround(element_bytes * 8)), &error);
  return error;
}

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Runs a kernel on plain buffers with threads of its own, so that tests reach every instruction
// set and thread count without compiling a program each. `large` takes the paths of large arrays.
void RunOnBuffers(Bytes in, Bytes out, const std::vector<int64_t>& shape,
                  const std::vector<int64_t>& axes, double element_bytes, const std::string& kernel,
                  int threads, bool large) {
  Request request = PythonRequest(Platform::kCpu, shape, axes, std::lround(element_bytes * 8));
  request.pointer_alignment = PointerAlignment(in.data(), out.data());
  request.in_place = in.data() == out.data();
  const Plan plan = PythonPlan(request, kernel);
  if (plan.permutation.bytes() != static_cast<int64_t>(in.size()) || in.size() != out.size()) {
    throw nb::value_error("buffers and shape differ in size");
  }
  Thresholds thresholds;
  if (large) thresholds = {0, 0};
  nb::gil_scoped_release unlocked;
  struct Helpers : std::vector<std::thread> {
    ~Helpers() {
      for (std::thread& helper : *this) helper.join();
    }
  } helpers;
  Threads pool{threads, [&](std::function<void()> task) { helpers.emplace_back(std::move(task)); }};
  Run(plan, in.data(), out.data(), pool, thresholds);
}

nb::list CandidatesAsList(const std::vector<int64_t>& shape, const std::vector<int64_t>& axes,
                          int element_bytes) {
  const Request request = PythonRequest(Platform::kCuda, shape, axes, 8 * element_bytes);
  nb::list result;
  for (const Plan& plan : CudaCandidates(request)) {
    result.append(nb::make_tuple(KindName(plan.kind), plan.tile));
  }
  return result;
}

// Moves buffers as the CUDA kernels `packed` and `rows` would; returns the kind that did. Tests
// thus reach the kernels' index arithmetic on any machine.
std::string EmulateCuda(Bytes in, Bytes out, const std::vector<int64_t>& shape,
                        const std::vector<int64_t>& axes, int element_bytes,
                        const std::string& kernel) {
  Request request = PythonRequest(Platform::kCuda, shape, axes, 8 * element_bytes);
  request.pointer_alignment = PointerAlignment(in.data(), out.data());
  const Plan plan = PythonPlan(request, kernel);
  if (plan.permutation.bytes() != static_cast<int64_t>(in.size()) || in.size() != out.size()) {
    throw nb::value_error("buffers and shape differ in size");
  }
  const bool moves = plan.kind == Kind::kPacked || plan.kind == Kind::kRows;
  if (moves && !cuda::Emulate(plan, in.data(), out.data())) {
    throw std::runtime_error("a tile overruns its shared memory, or its kernel does not exist");
  }
  return KindName(plan.kind);
}

}  // namespace

NB_MODULE(_cpu, m) {
  m.def("handler", [] { return nb::capsule(reinterpret_cast<void*>(&NoThrow<TransposeHandler>)); });
  m.def("into_handler",
        [] { return nb::capsule(reinterpret_cast<void*>(&NoThrow<TransposeIntoHandler>)); });
  m.attr("ffi_api_version") = nb::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR);
  m.def("plan", &PlanAsDict, nb::arg("platform"), nb::arg("shape"), nb::arg("axes"),
        nb::arg("element_bytes"), nb::arg("kernel"), nb::arg("tile"), nb::arg("in_place") = false);
  m.def("refusal", &Refusal, nb::arg("shape"), nb::arg("axes"), nb::arg("element_bytes"));
  m.def(
      "_force_planning_failure", [](bool force) { force_planning_failure = force; },
      nb::arg("force"));
  m.def("isa", [] { return Kernels().name; });
  m.def("isas", [] { return nb::tuple(nb::cast(IsaNames())); });
  m.def("_run", &RunOnBuffers, nb::arg("input"), nb::arg("output"), nb::arg("shape"),
        nb::arg("axes"), nb::arg("element_bytes"), nb::arg("kernel") = "native",
        nb::arg("threads") = 1, nb::arg("large") = false);
  m.def("_emulate_cuda", &EmulateCuda, nb::arg("input"), nb::arg("output"), nb::arg("shape"),
        nb::arg("axes"), nb::arg("element_bytes"), nb::arg("kernel") = "packed");
  if (!IsaError().empty()) throw nb::import_error(IsaError().c_str());
  m.attr("tile_sides") =
      nb::tuple(nb::cast(std::vector<int>(std::begin(kTileSides), std::end(kTileSides))));
  m.def("cuda_candidates", &CandidatesAsList, nb::arg("shape"), nb::arg("axes"),
        nb::arg("element_bytes"));
  m.def("kernels", [](const std::string& platform) {
    return nb::tuple(nb::cast(KindNames(ParsePlatform(platform))));
  });
}

}  // namespace jax_transpose::cpu
