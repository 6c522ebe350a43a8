#include "cpu/dispatch.h"

#include <cstdlib>

#include "cpu/instruction_sets.h"

namespace jax_transpose::cpu {
namespace {

std::vector<const KernelTable*> Supported() { return TablesFor(DetectFeatures()); }

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
