"""A jax array whose pointer is aligned to its element only, imported through DLPack."""

import ctypes
import math

import jax
import numpy as np


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("ordinal", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
# JAX insists on a deleter, and may call it after the view is gone: it lives in the module.
_nothing_to_delete = _Deleter(lambda _: None)


class _Managed(ctypes.Structure):
    _fields_ = [
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
    ]


_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = (
    ctypes.py_object,
    [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
)
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5}


class OffsetView:
    """`shape` elements of the flat jax array `base`, from element `offset` on.

    Owns nothing: keep it and `base` alive while the imported array is in use.
    """

    def __init__(self, base, offset, shape):
        dtype = np.dtype(base.dtype)
        assert offset + math.prod(shape) <= base.size
        device = next(iter(base.devices()))
        self._kind = (2, device.local_hardware_id) if device.platform == "gpu" else (1, 0)
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        self._managed = _Managed(
            tensor=_Tensor(
                data=base.unsafe_buffer_pointer() + offset * dtype.itemsize,
                device=_Device(*self._kind),
                rank=len(shape),
                dtype=_Type(_CODES[dtype.kind], 8 * dtype.itemsize, 1),
                shape=self._shape,
            ),
            deleter=_nothing_to_delete,
        )

    def __dlpack__(self, **_):
        return _capsule(ctypes.addressof(self._managed), b"dltensor", None)

    def __dlpack_device__(self):
        return self._kind

    def to_jax(self):
        return jax.dlpack.from_dlpack(self)
