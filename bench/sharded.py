"""Transposes over several devices: what a shard costs, and what a distributed matrix costs.

*Sharded* cases keep the permuted sharding: every device transposes its shard, nothing is exchanged,
and the slowest device should take as long as one device takes for one shard. *Distributed* cases
start and end split by rows, which needs one exchange; "exchange" is that exchange alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from rich.table import Table

import jax_transpose

from . import operands, report, suite, timing, verify
from .cases import Case
from .hlo import collectives

AXIS = "devices"


@dataclasses.dataclass(frozen=True)
class Sharded:
    """`shape` is that of a shard; the array is longer by the number of devices along `split`."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    dtype: str
    split: int = 0


SHARDED = {
    "cpu": (
        Sharded("stack", (1, 1024, 1024), (0, 2, 1), "float32"),
        Sharded("columns", (1024, 1024), (1, 0), "float32", split=1),
        Sharded("odd", (1, 511, 1023), (0, 2, 1), "bfloat16"),
    ),
    "gpu": (
        Sharded("stack", (1, 8192, 8192), (0, 2, 1), "float32"),
        Sharded("stack", (1, 16384, 16384), (0, 2, 1), "float32"),
        Sharded("columns", (16384, 8192), (1, 0), "float32", split=1),
        Sharded("odd", (1, 8191, 16385), (0, 2, 1), "bfloat16"),
        Sharded("heads", (8, 4096, 32, 128), (0, 2, 1, 3), "bfloat16"),
    ),
}
#: Sides of the matrices of the distributed cases.
DISTRIBUTED = {"cpu": (1024, 2048), "gpu": (16384, 32768)}


def transpose_rows(x: jax.Array, mesh: Mesh, axis: str, kernel: str = "auto") -> jax.Array:
    """The recipe of docs/sharding.md: both matrices split by rows, one exchange, our kernels."""
    devices = mesh.shape[axis]

    def block(x):
        x = jax_transpose.transpose(x, kernel=kernel)
        parts = exchange(x.reshape(devices, -1, x.shape[1]), axis)
        return jax_transpose.transpose(parts, (1, 0, 2), kernel=kernel).reshape(parts.shape[1], -1)

    return by_rows(block, mesh, axis)(x)


def exchange(parts: jax.Array, axis: str) -> jax.Array:
    """Part i of each device goes to device i: shape (devices, ...) before and after."""
    return jax.lax.all_to_all(parts, axis, 0, 0)


def by_rows(block: Callable, mesh: Mesh, axis: str) -> Callable:
    """`block` on every device's rows, giving rows."""
    return jax.shard_map(block, mesh=mesh, in_specs=P(axis), out_specs=P(axis))


class Runner:
    """Records of all cases on every device that JAX has.

    A record holds `us` (microseconds a call, by implementation; of several devices the slowest),
    `by_device` (our microseconds on each; on GPUs), `gbs` (of one device: bytes read plus written
    by our transpose; "sent" to others by the exchange alone), `collectives` and `status`.
    """

    def __init__(self, platform: str, kernel: str, repeat: int, devices: list | None = None):
        self.platform, self.kernel, self.repeat = platform, kernel, repeat
        self.devices = jax.devices() if devices is None else devices
        if len(self.devices) < 2:
            raise ValueError(
                f"sharded: it takes at least two devices, here is {len(self.devices)} (on a CPU "
                "set XLA_FLAGS=--xla_force_host_platform_device_count=8)"
            )
        self.mesh = Mesh(np.array(self.devices), (AXIS,))
        self._serial = 0

    def settle(self) -> None:
        for device in self.devices:
            with jax.default_device(device):
                timing.settle(self.platform)

    def sharded(self, case: Sharded) -> dict:
        """One device's share of a sharded transpose, beside the same shard on one device."""
        shape = list(case.shape)
        shape[case.split] *= len(self.devices)
        spec = [None] * len(shape)
        spec[case.split] = AXIS
        whole = Case(case.name, tuple(shape), case.axes, case.dtype)
        shard = Case(case.name, case.shape, case.axes, case.dtype)
        split = self._inputs(whole, NamedSharding(self.mesh, P(*spec)), shard.nbytes)
        alone = self._inputs(shard, None, shard.nbytes)

        def ours(x):
            return jax_transpose.transpose(x, case.axes, kernel=self.kernel)

        programs = {
            "ours": (ours, split),
            "one device": (ours, alone),
            "jnp": (lambda x: jnp.transpose(x, case.axes), split),
        }
        record = self._measure(programs, "ours", case.axes, expected=[])
        return {
            "kind": "sharded",
            "name": case.name,
            "shape": shape,
            "split": case.split,
            "axes": list(case.axes),
            "dtype": case.dtype,
            **record,
            "gbs": {"ours": suite.gbs(shard.moved, record["us"]["ours"] * 1e-6)},
            "ratio": round(record["us"]["one device"] / record["us"]["ours"], 4),
        }

    def distributed(self, side: int) -> dict:
        """A square float32 matrix from rows to rows, in three ways, and the exchange alone."""
        count = len(self.devices)
        whole = Case("rows", (side, side), (1, 0), "float32")
        rows = NamedSharding(self.mesh, P(AXIS))
        inputs = self._inputs(whole, rows, whole.nbytes // count)

        def placed(transpose):
            return lambda x: jax.lax.with_sharding_constraint(transpose(x), rows)

        def alone(x):
            parts = exchange(x.reshape(count, -1, x.shape[1]), AXIS)
            return parts.reshape(x.shape)

        programs = {
            "ours": (lambda x: transpose_rows(x, self.mesh, AXIS, self.kernel), inputs),
            "ours, XLA's exchange": (
                placed(lambda x: jax_transpose.transpose(x, kernel=self.kernel)),
                inputs,
            ),
            "jnp": (placed(jnp.transpose), inputs),
            "exchange": (by_rows(alone, self.mesh, AXIS), inputs),
        }
        record = self._measure(programs, "ours", (1, 0), expected=["all-to-all"])
        moved = whole.moved // count
        sent = whole.nbytes // count * (count - 1) // count
        return {
            "kind": "distributed",
            "name": "rows to rows",
            "shape": [side, side],
            "split": 0,
            "axes": [1, 0],
            "dtype": "float32",
            **record,
            "gbs": {
                "ours": suite.gbs(moved, record["us"]["ours"] * 1e-6),
                "sent": suite.gbs(sent, record["us"]["exchange"] * 1e-6),
            },
            "ratio": round(record["us"]["jnp"] / record["us"]["ours"], 4),
        }

    def _inputs(self, case: Case, sharding, nbytes: int) -> list:
        count = timing.rotation(nbytes, self.platform)
        made = (operands.make(case, seed + 1) for seed in range(count))
        return [x if sharding is None else jax.device_put(x, sharding) for x in made]

    def _measure(self, programs: dict, ours: str, axes, expected: list[str]) -> dict:
        """Times `programs`, checks every transposed byte, and what each exchanges."""
        self._serial += 1
        jitted, found = {}, {}
        for i, (name, (f, inputs)) in enumerate(programs.items()):
            key = f"m{self._serial:03d}_{i}"
            jitted[name] = timing.jitted(key, f, inputs)
            found[name] = collectives(jax.jit(f).lower(inputs[0]).compile().as_text())
        times = timing.measure(list(jitted.values()), self.platform, self.repeat)
        wrong = {}
        for name, program in jitted.items():
            if name == "exchange":
                continue
            source = programs[name][1][program.last_index % program.rotation]
            wrong[name] = verify.wrong_elements(source, program.last, tuple(axes))
        exchanged = {name: found[name] for name in found if name != "one device"}
        right = not any(wrong.values()) and all(c == expected for c in exchanged.values())
        us = {name: times[program.key] for name, program in jitted.items()}
        return {
            "us": {name: round(t.seconds * 1e6, 2) for name, t in us.items()},
            "by_device": [round(t * 1e6, 2) for t in us[ours].by_device],
            "source": sorted({t.source for t in us.values()}),
            "collectives": exchanged,
            "wrong_elements": wrong,
            "status": "ok" if right else "wrong",
        }


def tables(records: list[dict], devices: int) -> list[Table]:
    """The sharded cases, then the distributed ones."""
    first = Table(title=f"sharded over {devices} devices: µs of the slowest, bytes read + written")
    for name in ("case", "shape", "dtype", "ours", "one device", "jnp", "GB/s a device"):
        first.add_column(name, justify="left" if name in ("case", "shape", "dtype") else "right")
    first.add_column("one device / ours", justify="right")
    first.add_column("exchanges")
    second = Table(title=f"rows to rows over {devices} devices: µs of the slowest")
    ways = ("ours", "ours, XLA's exchange", "jnp", "exchange")
    for name in ("shape", *ways, "GB/s sent", "jnp / ours", "exchanges"):
        second.add_column(name, justify="right")
    for record in records:
        shape = " x ".join(map(str, record["shape"]))
        us = {name: f"{value:.1f}" for name, value in record["us"].items()}
        speed = record["gbs"]["sent" if "sent" in record["gbs"] else "ours"]
        end = [f"{speed:.0f}", f"{record['ratio']:.3f}", exchanges(record)]
        if record["kind"] == "sharded":
            names = (us[name] for name in ("ours", "one device", "jnp"))
            first.add_row(record["name"], shape, record["dtype"], *names, *end)
        else:
            second.add_row(shape, *(us[name] for name in ways), *end)
    return [first, second]


def exchanges(record: dict) -> str:
    """What our program exchanges, in words."""
    text = ", ".join(record["collectives"]["ours"]) or "none"
    return text if record["status"] == "ok" else f"[bold red]{text}: WRONG[/]"


def last_line(records: list[dict]) -> str:
    """The line that a run ends with, in rich markup."""
    bad = [r["name"] for r in records if r["status"] != "ok"]
    if bad:
        return f"[bold red]WRONG: {', '.join(bad)}[/]"
    parts = [f"[bold green]{len(records)} cases byte-exact, no exchange but one of rows to rows[/]"]
    shards = [r["ratio"] for r in records if r["kind"] == "sharded" and r["by_device"]]
    if shards:  # devices of a CPU share its cores
        parts.append(f"a shard at worst at {min(shards):.3f} of one device's speed")
    ratios = [r["ratio"] for r in records if r["kind"] == "distributed"]
    parts.append(f"rows to rows {report.geomean(ratios):.2f} x jnp.transpose (geomean)")
    return " · ".join(parts)
