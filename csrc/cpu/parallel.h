// A parallel loop over chunks on somebody else's thread pool.
#pragma once

#include <cstdint>
#include <functional>

namespace jax_transpose::cpu {

// Hands a task to a pool. It may run at once, late, or only after the caller has returned.
using Schedule = std::function<void(std::function<void()>)>;

// Runs body(0) .. body(chunks - 1), on the calling thread and on up to `helpers` pool threads.
// Returns when all have run, and then throws what one of them threw. Where `schedule` throws, those
// helpers that it took, and the caller, do all the work. The caller works too and waits only for
// chunks that a running helper has taken, never for helpers that have not started: a pool whose
// every thread waits in here still makes progress. Late helpers find nothing to do and touch
// nothing but shared state, which `body` is part of, so `body` must own what it uses or use it only
// while a chunk runs.
void ParallelFor(int64_t chunks, int64_t helpers, const Schedule& schedule,
                 std::function<void(int64_t)> body);

}  // namespace jax_transpose::cpu
