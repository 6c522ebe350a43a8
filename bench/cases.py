"""What is transposed: a `Case` is a shape, a permutation and a dtype; suites are JSON files."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

SUITES = Path(__file__).parent / "suites"

# Packed bits of the dtypes whose elements are smaller than a byte on the device.
_SUB_BYTE_BITS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn": 4}

_ALIASES = {
    "u8": "uint8",
    "i8": "int8",
    "u16": "uint16",
    "i16": "int16",
    "u32": "uint32",
    "i32": "int32",
    "u64": "uint64",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
    "f8": "float8_e4m3fn",
}

WIDTH_DTYPES = {1: "uint8", 2: "bfloat16", 4: "float32", 8: "float64", 16: "complex128"}

RANDOM_MAX_BYTES = {"cpu": 32 << 20, "gpu": 1 << 30}


@dataclasses.dataclass(frozen=True)
class Case:
    """One transpose.

    `data` is "random" (random bits) or "photo" (a batch made from a photograph). `xla` is false for
    a case that XLA's own transpose takes minutes to compile on a GPU: it is timed without.

    >>> Case("t", (3, 4), (1, 0), "float32").moved
    96
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    dtype: str
    data: str = "random"
    xla: bool = True

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the array; int4 and its like count packed."""
        return -(-self.elements * element_bits(self.dtype) // 8)

    @property
    def moved(self) -> int:
        """Bytes read plus bytes written."""
        return 2 * self.nbytes

    @property
    def key(self) -> tuple:
        """What makes two records of different runs the same case."""
        return (self.name, self.shape, self.axes, self.dtype)


def dtype_name(name: str) -> str:
    """The full dtype name of `name`, which may be short.

    >>> dtype_name("bf16"), dtype_name("int32")
    ('bfloat16', 'int32')
    """
    import jax.numpy as jnp

    full = _ALIASES.get(name, name)
    try:
        return jnp.dtype(full).name
    except TypeError:
        raise ValueError(
            f"dtype: {name!r} is no JAX dtype; short names are {', '.join(_ALIASES)}"
        ) from None


def element_bits(dtype: str) -> int:
    """Bits one element takes in device memory.

    >>> element_bits("int4"), element_bits("bool"), element_bits("complex128")
    (4, 8, 128)
    """
    if dtype in _SUB_BYTE_BITS:
        return _SUB_BYTE_BITS[dtype]
    import jax.numpy as jnp

    return jnp.dtype(dtype).itemsize * 8


def parse_case(raw: dict, platform: str) -> Case:
    """A `Case` from one JSON object; `shape` is a list, or one list per platform ("cpu", "gpu")."""
    shape = raw["shape"]
    if isinstance(shape, dict):
        shape = shape["cpu" if platform == "cpu" else "gpu"]
    shape, axes = tuple(shape), tuple(raw["axes"])
    if sorted(axes) != list(range(len(shape))):
        raise ValueError(f"case {raw['name']!r}: axes {axes} do not permute shape {shape}")
    dtype, data, xla = dtype_name(raw["dtype"]), raw.get("data", "random"), raw.get("xla", True)
    return Case(raw["name"], shape, axes, dtype, data, xla or platform == "cpu")


def load_suite(name_or_path: str, platform: str) -> list[Case]:
    """The cases of a suite: a name from `bench/suites/` or the path of a JSON file of that form."""
    path = Path(name_or_path)
    if path.suffix != ".json":
        path = SUITES / f"{name_or_path}.json"
    if not path.is_file():
        known = ", ".join([*sorted(p.stem for p in SUITES.glob("*.json")), "random"])
        raise ValueError(f"suite: no {path}; known suites: {known}, or the path of a .json file")
    return [parse_case(raw, platform) for raw in json.loads(path.read_text())["cases"]]


def with_dtype(case: Case, dtype: str) -> Case:
    """The same shape and axes in another dtype; a photo is bytes, so it becomes random bits."""
    if dtype == case.dtype:
        return case
    return dataclasses.replace(case, dtype=dtype, data="random")


def scaled(case: Case, max_bytes: int | None) -> Case:
    """`case` with its largest dimension halved until the array fits in `max_bytes`.

    Odd sizes stay odd, since oddness is often the point of a case. Photo batches shrink in their
    batch dimension only.

    >>> scaled(Case("t", (64, 9), (1, 0), "uint8"), 200).shape
    (16, 9)
    """
    while max_bytes is not None and case.nbytes > max_bytes:
        shape = list(case.shape)
        dim = 0 if case.data == "photo" else shape.index(max(shape))
        if shape[dim] == 1:
            break
        odd = shape[dim] % 2
        shape[dim] = max(1, shape[dim] // 2 | odd)
        case = dataclasses.replace(case, shape=tuple(shape))
    return case


def select(
    name_or_path: str,
    platform: str,
    *,
    dtype: str | None = None,
    width: int | None = None,
    max_bytes: int | None = None,
    seed: int = 0,
    count: int = 200,
) -> list[Case]:
    """The suite's cases after the command line's `--dtype`, `--width` and `--max-bytes`.

    "random" is drawn from `seed`, `count` cases up to `max_bytes` (CPU: 32 MiB, GPU: 1 GiB).
    """
    if width is not None:
        dtype = WIDTH_DTYPES[width]
    if dtype is not None:
        dtype = dtype_name(dtype)
    if name_or_path == "random":
        from . import draw  # which needs this module

        widths = draw.WIDTHS if dtype is None else (max(8, element_bits(dtype)) // 8,)
        cases = draw.cases(seed, count, max_bytes or RANDOM_MAX_BYTES[platform], widths)
    else:
        cases = load_suite(name_or_path, platform)
    if dtype is not None:
        cases = [with_dtype(case, dtype) for case in cases]
    return [scaled(case, max_bytes) for case in cases]


def part(cases: list[Case], shard: tuple[int, int] = (1, 1), start: int = 0) -> list[Case]:
    """The i-th of n consecutive parts, without its first `start` cases.

    >>> part(list(range(10)), (2, 3)), part(list(range(10)), start=8)
    ([3, 4, 5], [8, 9])
    """
    i, n = shard
    return cases[(i - 1) * len(cases) // n : i * len(cases) // n][start:]
