"""HPTT through its C interface, from a libhptt.so that the caller built.

HPTT multiplies what it moves by one. Random bits would hold subnormal numbers, which slow that
down, so it moves numbers of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

# Element widths that its real types have; complex scalars do not pass through ctypes.
WIDTHS = (4, 8)


class Library:
    """The shared library at `path`; OSError where there is none."""

    def __init__(self, path: str):
        library = ctypes.CDLL(path)
        self._functions = {}
        for width, name, scalar in (
            (4, "sTensorTranspose", ctypes.c_float),
            (8, "dTensorTranspose", ctypes.c_double),
        ):
            function = getattr(library, name)
            ints = ctypes.POINTER(ctypes.c_int)
            function.restype = None
            function.argtypes = [
                *(ints, ctypes.c_int, scalar, ctypes.c_void_p, ints, ints),
                *(scalar, ctypes.c_void_p, ints, ctypes.c_int, ctypes.c_int),
            ]
            self._functions[width] = function

    def call(self, arrays, threads: int) -> Callable[[int], np.ndarray]:
        """What moves as many numbers as `arrays` (of bench.cpu) holds into `arrays.target`.

        Raises AssertionError where the result is not numpy's.
        """
        # At the call, for bench.cpu imports this module. The memory is as the other programs':
        # numpy's own starts 16 bytes past a page, which costs HPTT up to half.
        from .cpu import resident

        rank = len(arrays.case.shape)
        permutation = (ctypes.c_int * rank)(*arrays.case.axes)
        extents = (ctypes.c_int * rank)(*arrays.case.shape)
        source = resident(arrays.target.nbytes).view(f"f{arrays.width}").reshape(arrays.case.shape)
        np.random.default_rng(0).random(dtype=source.dtype, out=source)
        function = self._functions[arrays.width]

        def call(_):
            data, target = source.ctypes.data, arrays.target.ctypes.data
            row_major = 1
            function(
                *(permutation, rank, 1.0, data, extents, None),
                *(0.0, target, None, threads, row_major),
            )
            return arrays.target

        assert call(0).tobytes() == source.transpose(arrays.case.axes).tobytes(), "HPTT is wrong"
        return call
