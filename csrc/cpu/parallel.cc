#include "cpu/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace jax_transpose::cpu {
namespace {

struct Loop {
  int64_t chunks;
  std::function<void(int64_t)> body;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> left;
  std::mutex mutex;
  std::condition_variable finished;
  std::exception_ptr error;  // of the first chunk that threw

  Loop(int64_t n, std::function<void(int64_t)> f) : chunks(n), body(std::move(f)), left(n) {}

  void Work() {
    for (;;) {
      const int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks) return;
      try {
        body(chunk);
      } catch (...) {
        // A pool thread must not unwind, and the caller not before every chunk is done.
        std::lock_guard<std::mutex> lock(mutex);
        if (error == nullptr) error = std::current_exception();
      }
      if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        // Under the lock, so that the wake-up cannot fall between the caller's test and its wait.
        std::lock_guard<std::mutex> lock(mutex);
        finished.notify_all();
      }
    }
  }

  void Wait() {
    // The last helper chunk is usually microseconds away.
    for (int i = 0; i < 1000; ++i) {
      if (left.load(std::memory_order_acquire) == 0) return;
    }
    std::unique_lock<std::mutex> lock(mutex);
    finished.wait(lock, [this] { return left.load(std::memory_order_acquire) == 0; });
  }
};

}  // namespace

void ParallelFor(int64_t chunks, int64_t helpers, const Schedule& schedule,
                 std::function<void(int64_t)> body) {
  helpers = std::min(helpers, chunks - 1);
  if (helpers <= 0) {
    for (int64_t i = 0; i < chunks; ++i) body(i);
    return;
  }
  auto loop = std::make_shared<Loop>(chunks, std::move(body));
  try {
    for (int64_t i = 0; i < helpers; ++i) schedule([loop] { loop->Work(); });
  } catch (...) {
    // Helpers that did start use `body` and what it refers to: the caller goes on with them.
  }
  loop->Work();
  loop->Wait();
  // Taken out of the loop, which a late helper may be the last to own.
  const std::exception_ptr error = std::exchange(loop->error, nullptr);
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace jax_transpose::cpu
