#include "cpu/dispatch.h"

#include <cstdlib>

namespace jax_transpose::cpu {
namespace {

std::vector<const KernelTable*> Supported() {
#if defined(__x86_64__)
  std::vector<const KernelTable*> tables = {&sse2::kTable};
  if (__builtin_cpu_supports("avx2")) tables.push_back(&avx2::kTable);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    tables.push_back(&avx512::kTable);
  }
  return tables;
#else
  return {&generic::kTable};
#endif
}

struct Choice {
  const KernelTable* table;
  std::string error;
};

const Choice& Chosen() {
  static const Choice choice = [] {
    const auto tables = Supported();
    const char* name = std::getenv("JAX_TRANSPOSE_ISA");
    if (name == nullptr || *name == 0) return Choice{tables.back(), ""};
    std::string allowed;
    for (const KernelTable* table : tables) {
      if (std::string(table->name) == name) return Choice{table, ""};
      allowed += (allowed.empty() ? "'" : ", '") + std::string(table->name) + "'";
    }
    return Choice{tables.back(), "JAX_TRANSPOSE_ISA='" + std::string(name) +
                                     "' is not supported here; allowed: " + allowed};
  }();
  return choice;
}

}  // namespace

const KernelTable& Kernels() { return *Chosen().table; }

const std::string& IsaError() { return Chosen().error; }

std::vector<std::string> IsaNames() {
  std::vector<std::string> names;
  for (const KernelTable* table : Supported()) names.emplace_back(table->name);
  return names;
}

}  // namespace jax_transpose::cpu
