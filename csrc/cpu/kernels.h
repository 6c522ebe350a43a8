// Runs a plan on the CPU.
#pragma once

#include <cstdint>

#include "cpu/parallel.h"
#include "plan/cpu_blocks.h"
#include "plan/plan.h"

namespace jax_transpose::cpu {

struct Threads {
  int64_t count = 1;  // with the caller
  Schedule schedule;  // needed for more than one
};

// From how many bytes of one array on the cache is bypassed, and other threads are woken.
struct Thresholds {
  int64_t stream = kCpuStreamBytes;
  int64_t threads = kCpuThreadBytes;
};

void Run(const Plan& plan, const void* in, void* out, const Threads& threads = {},
         const Thresholds& thresholds = {});

}  // namespace jax_transpose::cpu
