#include "cpu/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cpu/block_walk.h"
#include "cpu/dispatch.h"
#include "cpu/in_place.h"
#include "cpu/sub_byte.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace jax_transpose::cpu {
namespace {

// Chunks a thread: enough that one which starts late or is interrupted costs little.
constexpr int64_t kChunksPerThread = 8;
constexpr int64_t kHugePageBytes = int64_t{4} << 20;
constexpr int64_t kCopyBlock = int64_t{256} << 10;

// A large fresh output costs more in page faults than in copying; huge pages need 512 times fewer.
void AdviseHugePages(void* out, int64_t bytes) {
#if defined(__linux__)
  static const bool wanted = [] {
    const char* value = std::getenv("JAX_TRANSPOSE_HUGEPAGES");
    return value == nullptr || std::string(value) != "0";
  }();
  if (!wanted || bytes < kHugePageBytes) return;
  static const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t start = (reinterpret_cast<uintptr_t>(out) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(out) + bytes) / page * page;
  // Only advice: where the kernel has no huge pages, the call fails and nothing is lost.
  madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
#else
  (void)out;
  (void)bytes;
#endif
}

// body(first, last) over [0, items), in chunks where `bytes` repay waking the pool.
void Split(int64_t items, int64_t bytes, const Threads& threads, const Thresholds& thresholds,
           const std::function<void(int64_t, int64_t)>& body) {
  const int64_t chunks = std::min(items, threads.count * kChunksPerThread);
  if (threads.count <= 1 || bytes < thresholds.threads || chunks <= 1) return body(0, items);
  // `body` outlives every chunk: the caller waits here until the last is done.
  ParallelFor(chunks, threads.count - 1, threads.schedule, [=, &body](int64_t chunk) {
    body(items / chunks * chunk + std::min(chunk, items % chunks),
         items / chunks * (chunk + 1) + std::min(chunk + 1, items % chunks));
  });
}

void Copy(int64_t bytes, const char* in, char* out, const Threads& threads,
          const Thresholds& thresholds) {
  const KernelTable& kernels = Kernels();
  Split((bytes + kCopyBlock - 1) / kCopyBlock, bytes, threads, thresholds,
        [&](int64_t first, int64_t last) {
          const int64_t from = first * kCopyBlock, to = std::min(bytes, last * kCopyBlock);
          if (bytes >= thresholds.stream) {
            kernels.stream(out + from, in + from, to - from);
            kernels.fence();
          } else {
            std::memcpy(out + from, in + from, to - from);
          }
        });
}

// One element at a time, in output order: what the other kinds are measured against.
void Naive(const Permutation& p, const char* in, char* out) {
  const Strides s = ComputeStrides(p);
  const int64_t elements = p.elements(), width = p.element_bytes;
  int64_t position[kMaxRank] = {}, at = 0;
  for (int64_t i = 0; i < elements; ++i) {
    std::memcpy(out + i * width, in + at * width, width);
    for (int d = p.rank - 1; d >= 0; --d) {
      at += s.in[p.axes[d]];
      if (++position[d] < p.extent[p.axes[d]]) break;
      at -= s.in[p.axes[d]] * p.extent[p.axes[d]];
      position[d] = 0;
    }
  }
}

}  // namespace

void Run(const Plan& plan, const void* in, void* out, const Threads& threads,
         const Thresholds& thresholds) {
  const Permutation& p = plan.permutation;
  if (plan.blocks == 0) return;
  const char* source = static_cast<const char*>(in);
  char* target = static_cast<char*>(out);
  if (plan.kind == Kind::kInPlace) {
    Swap swap;
    FindSwap(p, &swap);
    const CpuSwap walk = MakeCpuSwap(swap, p.element_bytes);
    return Split(walk.items, p.bytes(), threads, thresholds, [&](int64_t first, int64_t last) {
      RunSwap(plan, swap, walk, target, first, last);
    });
  }
  AdviseHugePages(out, p.bytes());
  if (plan.kind == Kind::kSubByte) {
    return SubByte(plan, static_cast<const uint8_t*>(in), static_cast<uint8_t*>(out), threads);
  }
  if (plan.kind == Kind::kCopy) return Copy(p.bytes(), source, target, threads, thresholds);
  if (plan.kind == Kind::kNaive || (plan.kind == Kind::kRows && !p.keeps_minor())) {
    return Naive(p, source, target);
  }
  const CpuBlocks blocks =
      MakeCpuBlocks(p, reinterpret_cast<uintptr_t>(out) % 64 == 0, thresholds.stream);
  Split(blocks.blocks, p.bytes(), threads, thresholds, [&](int64_t first, int64_t last) {
    RunBlocks(blocks, plan, Kernels(), source, target, first, last);
  });
}

}  // namespace jax_transpose::cpu
