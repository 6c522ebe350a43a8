// Parts of the CPU kernels that no wrong byte shows: whether stores that bypass the cache are
// ordered before a call is done, whether an error leaves a parallel loop, and which processor gets
// which instruction set.
//
//   cpu_parts_test [CASES [SEED]]
#include <atomic>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "cpu/instruction_sets.h"
#include "cpu/kernel_table.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "random_case.h"

namespace jax_transpose::testing {
namespace {

std::atomic<int64_t> wrong{0};

void Expect(bool right, const std::string& what) {
  if (right) return;
  std::printf("wrong: %s\n", what.c_str());
  ++wrong;
}

// --- fences -------------------------------------------------------------------------------------

// The kernels of one instruction set, which tell when they stream and when they fence. A fence
// orders the stores of its own thread alone.
const cpu::KernelTable* real = nullptr;
cpu::KernelTable watched;
thread_local bool unfenced = false;
std::atomic<int64_t> streamed[4];  // by the kernel: see kNames
constexpr const char* kNames[] = {"tiles_streaming", "tiles_shifted", "rows_streaming", "stream"};

void Streamed(int kernel) {
  ++streamed[kernel];
  unfenced = true;
}
template <int kLog>
void TilesStreaming(const cpu::Planes& p) {
  real->tiles_streaming[kLog](p);
  Streamed(0);
}
template <int kLog>
void TilesShifted(const cpu::Planes& p) {
  real->tiles_shifted[kLog](p);
  Streamed(1);
}
void RowsStreaming(const cpu::Planes& p) {
  real->rows_streaming(p);
  Streamed(2);
}
void Stream(char* out, const char* in, size_t bytes) {
  real->stream(out, in, bytes);
  Streamed(3);
}
void Fence() {
  real->fence();
  unfenced = false;
}

void Watch(const cpu::KernelTable& table) {
  real = &table;
  watched = table;
  const cpu::PlanesKernel streaming[] = {TilesStreaming<0>, TilesStreaming<1>, TilesStreaming<2>,
                                         TilesStreaming<3>, TilesStreaming<4>};
  const cpu::PlanesKernel shifted[] = {TilesShifted<0>, TilesShifted<1>, TilesShifted<2>,
                                       TilesShifted<3>, TilesShifted<4>};
  std::copy(streaming, streaming + 5, watched.tiles_streaming);
  std::copy(shifted, shifted + 5, watched.tiles_shifted);
  watched.rows_streaming = RowsStreaming;
  watched.stream = Stream;
  watched.fence = Fence;
}

void RunCase(const Case& c, Random& random) {
  Buffer in(c.bytes(), 0), out(c.bytes(), Between(random, 0, 3) == 0 ? c.bits / 8 : 0);
  Plan plan;
  std::string error;
  Expect(MakePlan(MakeRequest(c, Platform::kCpu, in.data(), out.data()), &plan, &error), error);
  std::vector<std::thread> helpers;
  auto schedule = [&](std::function<void()> task) {
    helpers.emplace_back([&c, task = std::move(task)] {
      task();
      Expect(!unfenced, "a helper ends with streaming stores on their way: " + c.ToString());
    });
  };
  unfenced = false;
  // Thresholds of 0: the paths of large arrays.
  cpu::Run(plan, in.data(), out.data(), {Between(random, 1, 3), schedule}, {0, 0});
  Expect(!unfenced, "a call ends with streaming stores on their way: " + c.ToString());
  for (std::thread& helper : helpers) helper.join();
}

void RunCases(int64_t cases, uint64_t seed) {
  Random random(seed);
  for (int bits = 8; bits <= 128; bits *= 2) {
    const int64_t line = 512 / bits;
    RunCase({{6 * line, 3 * line}, {1, 0}, bits}, random);
    RunCase({{40 * line + 1, 2 * line + 3}, {1, 0}, bits}, random);
    RunCase({{5, 3 * line, 70 * line}, {1, 0, 2}, bits}, random);
    RunCase({{7, 3, 5 * line + 1}, {2, 0, 1}, bits}, random);
    RunCase({{9 * line}, {0}, bits}, random);
  }
  for (int64_t i = 0; i < cases; ++i) {
    Case c = RandomCase(random, int64_t{1} << 17);
    if (c.bits >= 8 && c.elements() > 0) RunCase(c, random);
  }
  for (int k = 0; k < 4; ++k) {
    Expect(streamed[k] > 0, std::string("no case reaches ") + kNames[k]);
    streamed[k] = 0;
  }
}

// Whether a function's first bytes have x86's store fence.
bool HasStoreFence(void (*fence)()) {
  const auto* code = reinterpret_cast<const uint8_t*>(fence);
  for (int i = 0; i < 64; ++i) {
    if (code[i] == 0x0F && code[i + 1] == 0xAE && code[i + 2] == 0xF8) return true;
  }
  return false;
}

void CheckFences(const cpu::KernelTable& table, int64_t cases, uint64_t seed) {
  Watch(table);
  RunCases(cases, seed);
#if defined(__x86_64__)
  Expect(HasStoreFence(table.fence), std::string("no sfence in the fence of ") + table.name);
#endif
}

// --- parallel loops -----------------------------------------------------------------------------

void CheckErrors() {
  constexpr int64_t kChunks = 40;
  for (int64_t helpers : {0, 1, 3}) {
    for (int64_t bad : {int64_t{0}, kChunks / 2, kChunks - 1, int64_t{-1}}) {
      std::vector<std::thread> threads;
      std::atomic<int64_t> ran{0};
      std::string message;
      // Until the helpers are gone: a thread sanitizer does not see libstdc++ count who has one.
      std::exception_ptr kept;
      try {
        cpu::ParallelFor(
            kChunks, helpers,
            [&](std::function<void()> task) { threads.emplace_back(std::move(task)); },
            [&](int64_t chunk) {
              ++ran;
              std::this_thread::yield();
              if (chunk == bad) throw std::runtime_error("chunk " + std::to_string(chunk));
            });
      } catch (const std::runtime_error& error) {
        message = error.what();
        kept = std::current_exception();
      }
      for (std::thread& thread : threads) thread.join();
      Expect(message == (bad < 0 ? "" : "chunk " + std::to_string(bad)),
             "the caller saw '" + message + "' of chunk " + std::to_string(bad));
      // Other threads may work on chunks when one fails: all are done when the caller goes on.
      Expect(ran == (helpers == 0 && bad >= 0 ? bad + 1 : kChunks), "chunks were left");
    }
  }
}

// --- instruction sets ---------------------------------------------------------------------------

void CheckInstructionSets() {
#if defined(__x86_64__)
  for (int bits = 0; bits < 16; ++bits) {
    const bool avx2 = bits & 1, f = bits & 2, bw = bits & 4, vl = bits & 8;
    std::string names, want = "sse2 ";
    for (const auto* table : cpu::TablesFor({avx2, f, bw, vl}))
      names += table->name + std::string(" ");
    // What the kernels of a set are compiled with: CPU_FLAGS of csrc/kernels.cmake.
    if (avx2) want += "avx2 ";
    if (f && bw && vl) want += "avx512 ";
    Expect(names == want, "'" + names + "' instead of '" + want + "'");
  }
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, 5, "flags") != 0) continue;
    auto has = [&](const char* flag) {
      return (line + " ").find(std::string(" ") + flag + " ") != std::string::npos;
    };
    const cpu::CpuFeatures found = cpu::DetectFeatures();
    Expect(found.avx2 == has("avx2") && found.avx512f == has("avx512f") &&
               found.avx512bw == has("avx512bw") && found.avx512vl == has("avx512vl"),
           "other features than /proc/cpuinfo has");
    break;
  }
#endif
}

int Main(int64_t cases, uint64_t seed) {
  CheckErrors();
  CheckInstructionSets();
#if defined(__x86_64__)
  for (const auto* table : cpu::TablesFor(cpu::DetectFeatures())) CheckFences(*table, cases, seed);
#else
  CheckFences(cpu::generic::kTable, cases, seed);
#endif
  std::printf("parts of the CPU kernels: %lld wrong\n", static_cast<long long>(wrong.load()));
  return wrong == 0 ? 0 : 1;
}

}  // namespace

const cpu::KernelTable& WatchedKernels() { return watched; }

}  // namespace jax_transpose::testing

// What cpu::Run calls: the linker then leaves out the library's cpu/dispatch.cc.
namespace jax_transpose::cpu {
const KernelTable& Kernels() { return testing::WatchedKernels(); }
}  // namespace jax_transpose::cpu

int main(int argc, char** argv) {
  return jax_transpose::testing::Main(argc > 1 ? std::atoll(argv[1]) : 300,
                                      argc > 2 ? std::atoll(argv[2]) : 1);
}
