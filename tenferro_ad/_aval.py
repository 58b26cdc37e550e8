"""Abstract values: shape, dtype and placement of a value, without its bytes.

`aval_of` interns, so the hot path compares and hashes avals by identity; the intern
table may be emptied at any time, so identity is only ever a shortcut, never a proof
of difference.
"""

from __future__ import annotations

import math
from typing import Any, Final, Protocol, final

import numpy as np

from .errors import DeviceMismatchError, DTypeError, ShapeError

DType = np.dtype[Any]
Shape = tuple[int, ...]


class Device(Protocol):
    """What an aval needs to know of a place: its name. Providers are richer."""

    name: str


@final
class Aval:
    """Shape, dtype and device of a value; `nbytes` and `size` follow from them."""

    __slots__ = ("device", "dtype", "nbytes", "ndim", "shape", "size")

    def __init__(self, shape: Shape, dtype: DType, device: Any) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.ndim = len(shape)
        self.size = math.prod(shape)
        self.nbytes = self.size * dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"

    def same(self, other: Aval) -> bool:
        """Equal in value; identity is only the fast case."""
        return self is other or (
            self.shape == other.shape
            and self.dtype == other.dtype
            and self.device is other.device
        )


def is_row_major(aval: Aval, strides: tuple[int, ...]) -> bool:
    """Whether elements at these strides in bytes lie one after the other in C order."""
    step = aval.dtype.itemsize
    for n, stride in zip(reversed(aval.shape), reversed(strides), strict=True):
        if n != 1 and stride != step:
            return False
        step *= n
    return True


def mismatch(
    given: Any, wanted: Any, **facts: Any
) -> ShapeError | DTypeError | DeviceMismatchError:
    """The error for a value of another shape, dtype or device than is wanted.

    Args:
        given, wanted: avals, or anything else with a shape, a dtype and, where both
            may be equal, a device.
        facts: the fields of the error; where only the devices differ, `found` and
            `fix` tell of them instead.
    """
    if given.shape != wanted.shape:
        return ShapeError(**facts)
    if given.dtype != wanted.dtype:
        return DTypeError(**facts)
    here, there = given.device.name, wanted.device.name
    told = {
        "found": f"a value on `{here}` where one on `{there}` fits",
        "fix": f"compute it there, or move it: `x.to({there!r})`",
    }
    return DeviceMismatchError(**(facts | told))


_LIMIT: Final = 65_536
_avals: dict[tuple[Any, ...], Aval] = {}


def aval_of(shape: Shape, dtype: DType, device: Any) -> Aval:
    """The interned aval of `shape` (ints), `dtype` (a NumPy dtype) and `device`."""
    key = (shape, dtype, device)
    found = _avals.get(key)
    if found is None:
        if len(_avals) >= _LIMIT:
            _avals.clear()
        # Python ints only: numpy integers would leak into shapes users see.
        found = Aval(tuple(int(n) for n in shape), dtype, device)
        _avals[key] = found
    return found


def is_inexact(dtype: DType) -> bool:
    """Floating or complex: the dtypes that can carry a derivative."""
    return dtype.kind in "fc"


def real_dtype(dtype: DType) -> DType:
    """The real dtype of the same precision."""
    if dtype.kind != "c":
        return dtype
    return np.dtype(f"f{dtype.itemsize // 2}")


def complex_dtype(dtype: DType) -> DType:
    """The complex dtype of the same precision."""
    if dtype.kind == "c":
        return dtype
    return np.dtype(f"c{dtype.itemsize * 2}")


def promote(*dtypes: Any) -> DType:
    """Result dtype of an operation: array API promotion within a kind, NumPy's across
    kinds; Python scalars are weak (NEP 50)."""
    return np.result_type(*dtypes)
