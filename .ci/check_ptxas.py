"""Fails where a CUDA kernel spills registers or uses local memory.

    python .ci/check_ptxas.py BUILD_LOG

BUILD_LOG holds the output of a build with JAX_TRANSPOSE_PTXAS_REPORT=ON, as
`pip --log BUILD_LOG` writes it.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
LOCAL = re.compile(r"(\d+) bytes lmem")
# The name and the template arguments in a mangled name: ...16VectorizedKernelILi4ELi64EjE...
TEMPLATE = re.compile(r"([A-Z][A-Za-z]*Kernel)I((?:Li-?\d+E|Lb[01]E|[a-z])*)E")


class Kernel(NamedTuple):
    """ptxas's report on one kernel for one architecture; sizes in bytes."""

    symbol: str
    architecture: str
    registers: int
    shared: int
    stack: int
    spilled: int

    @property
    def name(self) -> str:
        """`VectorizedKernel` of the mangled name."""
        found = TEMPLATE.search(self.symbol)
        return found[1] if found else self.symbol

    @property
    def instance(self) -> str:
        """`VectorizedKernel<4, 64, j>`: j is uint32_t, m is uint64_t."""
        found = TEMPLATE.search(self.symbol)
        if not found:
            return self.symbol
        arguments = re.findall(r"L[ib](-?\d+)E|([a-z])", found[2])
        return f"{found[1]}<{', '.join(number or letter for number, letter in arguments)}>"


def read(log: str) -> list[Kernel]:
    """Every kernel that the log reports on."""
    kernels = []
    symbol = architecture = ""
    stack = spilled = 0
    for line in log.splitlines():
        if found := ENTRY.search(line):
            symbol, architecture = found.groups()
            stack = spilled = 0
        elif found := FRAME.search(line):
            stack = int(found[1])
            spilled = int(found[2]) + int(found[3])
        elif symbol and (found := USED.search(line)):
            shared, local = SHARED.search(line), LOCAL.search(line)
            kernels.append(
                Kernel(
                    symbol,
                    architecture,
                    registers=int(found[1]),
                    shared=int(shared[1]) if shared else 0,
                    stack=max(stack, int(local[1]) if local else 0),
                    spilled=spilled,
                )
            )
            symbol = ""
    return kernels


def table(kernels: list[Kernel]) -> str:
    """Most registers and shared memory of a kernel's instances, a row per kernel."""
    by_name = defaultdict(list)
    for kernel in kernels:
        by_name[kernel.name].append(kernel)
    lines = [f"{'kernel':<28}{'instances':>10}{'registers':>11}{'shared':>9}  most registers in"]
    for name, group in sorted(by_name.items()):
        worst = max(group, key=lambda kernel: kernel.registers)
        shared = max(kernel.shared for kernel in group)
        lines.append(
            f"{name:<28}{len(group):>10}{worst.registers:>11}{shared:>9}"
            f"  {worst.instance} {worst.architecture}"
        )
    return "\n".join(lines)


def main(path: str) -> int:
    """Prints the table; the exit status is 1 where a kernel spills or there is no report."""
    kernels = read(Path(path).read_text(errors="replace"))
    if not kernels:
        print("no report of ptxas in the log: was it a build with JAX_TRANSPOSE_PTXAS_REPORT=ON?")
        return 1
    print(table(kernels))
    bad = [kernel for kernel in kernels if kernel.stack or kernel.spilled]
    for kernel in bad:
        print(
            f"FAIL {kernel.instance} {kernel.architecture}: {kernel.stack} bytes of local memory, "
            f"{kernel.spilled} bytes spilled ({kernel.registers} registers)"
        )
    architectures = ", ".join(sorted({kernel.architecture for kernel in kernels}))
    print(f"{len(kernels)} kernels for {architectures}: {len(bad)} spill or use local memory")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
