#include "cpu/instruction_sets.h"

namespace jax_transpose::cpu {

#if defined(__x86_64__)

CpuFeatures DetectFeatures() {
  return {__builtin_cpu_supports("avx2") != 0, __builtin_cpu_supports("avx512f") != 0,
          __builtin_cpu_supports("avx512bw") != 0, __builtin_cpu_supports("avx512vl") != 0};
}

std::vector<const KernelTable*> TablesFor(const CpuFeatures& features) {
  std::vector<const KernelTable*> tables = {&sse2::kTable};
  if (features.avx2) tables.push_back(&avx2::kTable);
  if (features.avx512f && features.avx512bw && features.avx512vl) {
    tables.push_back(&avx512::kTable);
  }
  return tables;
}

#else

CpuFeatures DetectFeatures() { return {}; }

std::vector<const KernelTable*> TablesFor(const CpuFeatures&) { return {&generic::kTable}; }

#endif

}  // namespace jax_transpose::cpu
