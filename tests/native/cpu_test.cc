// Random transposes by the CPU kernels, bit for bit, alone and many at once.
//
//   cpu_test [CASES [SEED]]
//   cpu_test --isas            the instruction sets of this processor
//
// JAX_TRANSPOSE_ISA picks the instruction set.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "cpu/dispatch.h"
#include "cpu/kernels.h"
#include "random_case.h"

namespace jax_transpose::testing {
namespace {

// A pool as XLA's: tasks start when a thread is free, which may be after their caller has gone on.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  cpu::Threads Of(int64_t count) {
    return {count, [this](std::function<void()> task) {
              {
                std::lock_guard<std::mutex> lock(mutex_);
                tasks_.push_back(std::move(task));
              }
              wake_.notify_one();
            }};
  }

 private:
  void Work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

// False, and a line of text, where a byte is wrong.
bool RunCase(Random& random, Pool& pool, int64_t max_bytes) {
  const bool in_place = Between(random, 0, 4) == 0;
  const Case c = in_place ? RandomSwap(random, max_bytes) : RandomCase(random, max_bytes);
  const int64_t width = c.bits < 8 ? 1 : c.bits / 8;
  auto shift = [&] { return Between(random, 0, 1) * Between(random, 0, 9) * width; };
  const std::vector<uint8_t> source = RandomBytes(random, c.bytes());
  Buffer in(c.bytes(), shift()), out(c.bytes(), shift());
  uint8_t* result = in_place ? in.data() : out.data();
  std::copy(source.begin(), source.end(), in.data());
  std::memset(out.data(), 0xA5, static_cast<size_t>(c.bytes()));

  Request request = MakeRequest(c, Platform::kCpu, in.data(), result);
  if (!in_place && c.bits >= 8 && Between(random, 0, 3) == 0) {
    constexpr Kind kKinds[] = {Kind::kNaive, Kind::kRows, Kind::kBlocked, Kind::kInterleave,
                               Kind::kTiny};
    request.kind = kKinds[Between(random, 0, 4)];
  }
  Plan plan;
  std::string error;
  if (!MakePlan(request, &plan, &error)) {
    std::printf("no plan for %s: %s\n", c.ToString().c_str(), error.c_str());
    return false;
  }
  cpu::Thresholds thresholds;
  if (Between(random, 0, 1) == 1) thresholds = {0, 0};  // the paths of large arrays
  const int64_t threads = Between(random, 1, 4);
  cpu::Run(plan, in.data(), result, pool.Of(threads), thresholds);

  std::vector<uint8_t> want = Expected(c, source.data());
  // What fills the last byte of packed elements is free where nothing moves.
  if (c.bits < 8 && plan.kind == Kind::kCopy && !want.empty())
    want.back() = result[want.size() - 1];
  if (std::equal(want.begin(), want.end(), result)) return true;
  std::printf("wrong bytes: %s, kind %s, in place %d, threads %d\n", c.ToString().c_str(),
              KindName(plan.kind), in_place, static_cast<int>(threads));
  return false;
}

// Counts what runs, and throws as told: `refused` is the helper that the pool does not take, -1 for
// none, `bad` the chunk that fails. Helpers start late, when the caller may have gone on.
bool RunLoop(Pool& pool, int64_t helpers, int64_t refused, int64_t bad) {
  constexpr int64_t kChunks = 64;
  const cpu::Schedule schedule = pool.Of(helpers + 1).schedule;
  int64_t asked = 0;
  bool caught = false;
  {
    // Gone when the loop has returned: an address sanitizer sees a helper that goes on.
    std::vector<std::atomic<int>> runs(kChunks);
    try {
      cpu::ParallelFor(
          kChunks, helpers,
          [&](std::function<void()> task) {
            if (asked++ == refused) throw std::bad_alloc();
            schedule([task = std::move(task)] {
              std::this_thread::sleep_for(std::chrono::microseconds(200));
              task();
            });
          },
          [&](int64_t chunk) {
            std::this_thread::sleep_for(std::chrono::microseconds(20));
            ++runs[chunk];
            if (chunk == bad) throw std::runtime_error("chunk");
          });
    } catch (const std::runtime_error& error) {
      caught = std::strcmp(error.what(), "chunk") == 0;
    } catch (const std::bad_alloc&) {
      std::printf("a helper that cannot be scheduled fails the loop\n");
      return false;
    }
    for (std::atomic<int>& count : runs) {
      if (count != 1) {
        std::printf("a chunk ran %d times\n", count.load());
        return false;
      }
    }
  }
  if (caught != (bad >= 0)) std::printf("the error of chunk %d is lost\n", static_cast<int>(bad));
  return caught == (bad >= 0);
}

int64_t CheckLoops(Pool& pool) {
  int64_t wrong = 0;
  for (int round = 0; round < 20; ++round) {
    for (int64_t helpers : {0, 1, 3}) {
      for (int64_t refused = -1; refused < helpers; ++refused) {
        // A caller without helpers stops at the first error.
        for (int64_t bad : {-1, 0, 31, 63}) {
          if (helpers > 0 || bad != 0)
            wrong += !RunLoop(pool, helpers, refused, helpers ? bad : -1);
        }
      }
    }
  }
  return wrong;
}

int Main(int64_t cases, uint64_t seed) {
  if (!cpu::IsaError().empty()) {
    std::printf("%s\n", cpu::IsaError().c_str());
    return 2;
  }
  Pool pool(3);
  Random random(seed);
  int64_t wrong = CheckLoops(pool);
  for (int64_t i = 0; i < cases; ++i) wrong += !RunCase(random, pool, int64_t{1} << 19);

  // More callers than pool threads, each waiting for chunks that the others hold up.
  std::atomic<int64_t> wrong_at_once{0};
  const int64_t share = cases / 32;
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&, i] {
      Random mine(seed + 1 + i);
      for (int64_t k = 0; k < share; ++k) {
        wrong_at_once += !RunCase(mine, pool, int64_t{1} << 17);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  wrong += wrong_at_once;
  std::printf("%s: %lld random cases, %lld of them at once, %lld wrong\n", cpu::Kernels().name,
              static_cast<long long>(cases + 8 * share), static_cast<long long>(8 * share),
              static_cast<long long>(wrong));
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace jax_transpose::testing

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--isas") == 0) {
    for (const std::string& name : jax_transpose::cpu::IsaNames()) std::printf("%s ", name.c_str());
    return 0;
  }
  return jax_transpose::testing::Main(argc > 1 ? std::atoll(argv[1]) : 2000,
                                      argc > 2 ? std::atoll(argv[2]) : 1);
}
