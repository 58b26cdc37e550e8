"""What NumPy allocates for its arrays, byte by byte: now, and at most.

NumPy calls a handler for the memory of array data, and reports the same calls to
`tracemalloc` as a domain of its own. `tracemalloc` tells that domain apart only for
what is alive; its one peak counts Python's objects as well. So the handler is replaced
by one that counts, which gives the peak of exactly that domain.

Memory keeps its handler until it is freed: a watcher that is left with live arrays of
its own says so, and its callbacks stay for good.
"""

from __future__ import annotations

import ctypes
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_char, c_char_p, c_size_t, c_uint8, c_void_p, py_object
from typing import Any

import numpy as np
from numpy._core import _multiarray_umath

SET_HANDLER = 304  # `PyDataMem_SetHandler` in NumPy's table of C functions
DOMAIN = np.lib.tracemalloc_domain

_MALLOC = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t)
_CALLOC = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)
_REALLOC = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_size_t)
_FREE = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)


class _Allocator(ctypes.Structure):
    _fields_ = [
        ("ctx", c_void_p),
        ("malloc", _MALLOC),
        ("calloc", _CALLOC),
        ("realloc", _REALLOC),
        ("free", _FREE),
    ]


class _Handler(ctypes.Structure):
    _fields_ = [("name", c_char * 127), ("version", c_uint8), ("use", _Allocator)]


def _c_function(pointer: Any, name: bytes | None) -> Any:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c_void_p, [py_object, c_char_p]
    return ctypes.cast(get(pointer, name), ctypes.POINTER(c_void_p))


_TABLE = _c_function(_multiarray_umath._ARRAY_API, None)
_set_handler = ctypes.PYFUNCTYPE(py_object, py_object)(_TABLE[SET_HANDLER])
_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = c_void_p, [c_size_t]
_libc.calloc.restype, _libc.calloc.argtypes = c_void_p, [c_size_t, c_size_t]
_libc.realloc.restype, _libc.realloc.argtypes = c_void_p, [c_void_p, c_size_t]
_libc.free.restype, _libc.free.argtypes = None, [c_void_p]


class NumpyMemory:
    """Counts while it is watching.

    Attributes:
        live: bytes of arrays made while watching and not freed since.
        peak: the most of it since `restart`.
    """

    def __init__(self) -> None:
        self.live = self.peak = 0
        self._sizes: dict[int, int] = {}
        self._handler = _Handler(
            b"counting",
            1,
            _Allocator(
                None,
                _MALLOC(self._malloc),
                _CALLOC(self._calloc),
                _REALLOC(self._realloc),
                _FREE(self._free),
            ),
        )
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype = py_object
        capsule.argtypes = [c_void_p, c_char_p, c_void_p]
        self._capsule = capsule(ctypes.addressof(self._handler), b"mem_handler", None)
        # Memory that outlives us calls us when it is freed: never go away.
        ctypes.pythonapi.Py_IncRef(py_object(self))

    def restart(self) -> None:
        self.peak = self.live

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = _set_handler(self._capsule)
        try:
            yield
        finally:
            _set_handler(before)

    def _made(self, at: int | None, nbytes: int) -> int | None:
        if at is not None:
            self._sizes[at] = nbytes
            self.live += nbytes
            self.peak = max(self.peak, self.live)
        return at

    def _malloc(self, ctx: Any, nbytes: int) -> int | None:
        return self._made(_libc.malloc(max(nbytes, 1)), nbytes)

    def _calloc(self, ctx: Any, n: int, size: int) -> int | None:
        return self._made(_libc.calloc(max(n, 1), max(size, 1)), n * size)

    def _realloc(self, ctx: Any, at: int | None, nbytes: int) -> int | None:
        self.live -= self._sizes.pop(at, 0) if at is not None else 0
        return self._made(_libc.realloc(at, max(nbytes, 1)), nbytes)

    def _free(self, ctx: Any, at: int | None, nbytes: int) -> None:
        if at is not None:
            self.live -= self._sizes.pop(at, 0)
            _libc.free(at)


def traced() -> int:
    """What `tracemalloc` sees alive in NumPy's domain."""
    only = tracemalloc.DomainFilter(True, DOMAIN)
    snapshot = tracemalloc.take_snapshot().filter_traces([only])
    return sum(trace.size for trace in snapshot.traces)
