// Runs a plan on the CPU.
#pragma once

#include <cstdint>

#include "cpu/parallel.h"
#include "plan/plan.h"

namespace jax_transpose::cpu {

struct Threads {
  int64_t count = 1;  // with the caller
  Schedule schedule;
};

void Run(const Plan& plan, const void* in, void* out, const Threads& threads = {});

}  // namespace jax_transpose::cpu
