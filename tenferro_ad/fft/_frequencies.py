"""Frequencies of coefficients, and the zero frequency in the middle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import errors
from ..engine import (
    EagerTensor,
    as_tensor,
    asarray,
    dtype_of,
    int_of,
    real_of,
    roll,
)
from ._arguments import (
    Axes,
    where,
)

# ---- frequencies ---------------------------------------------------------------------


def _frequencies(name: str, n: Any, d: float, dtype: Any, device: Any) -> EagerTensor:
    size, distance = int_of(name, "n", n, 1), real_of(name, "d", d)
    if not distance:
        raise errors.InvalidArgumentError(
            operation=name,
            argument="d",
            found="0",
            fix="pass the distance between samples",
        )
    found = getattr(np.fft, name)(size, distance)
    wanted = dtype_of(name, np.float64 if dtype is None else dtype)
    if wanted.kind != "f":
        raise errors.DTypeError(
            operation=name,
            argument="dtype",
            found=f"dtype {wanted}",
            fix="pass a real floating dtype",
        )
    return asarray(found, dtype=wanted, device=device)


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None
) -> EagerTensor:
    """The frequencies of the coefficients of `fft`, in cycles per unit of `d`.

    Args:
        n: the length of the transform.
        d: the distance between samples.
        dtype: a real floating dtype, by default float64.
        device: where the result lives.

    Raises:
        InvalidArgumentError: a length below 1, a distance of 0. DTypeError: another
            kind of dtype.

    Cost: one allocation, filled from outside (one `Transfer`).
    """
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None
) -> EagerTensor:
    """The frequencies of the coefficients of `rfft`; see `fftfreq`.

    Raises: as `fftfreq`.

    Cost: one allocation, filled from outside (one `Transfer`).
    """
    return _frequencies("rfftfreq", n, d, dtype, device)


def _rolled(operation: str, x: Any, axes: int | Axes, *, back: bool) -> EagerTensor:
    value: EagerTensor = as_tensor(x)
    given = axes if isinstance(axes, Sequence | None) else (axes,)
    at, _ = where(operation, value, None, given)
    if not at:
        return value
    halves = [-(value.shape[a] // 2) if back else value.shape[a] // 2 for a in at]
    return roll(value, tuple(halves), axis=at)


def fftshift(x: Any, /, *, axes: int | Axes = None) -> EagerTensor:
    """Frequency 0 moved to the middle of each axis.

    Args:
        x: coefficients in the order of `fft`.
        axes: one axis, several, or None for all.

    Raises:
        IndexRangeError: not an axis. InvalidArgumentError: an axis named twice.

    Cost: one allocation of the result's size.
    """
    return _rolled("fftshift", x, axes, back=False)


def ifftshift(x: Any, /, *, axes: int | Axes = None) -> EagerTensor:
    """The inverse of `fftshift`.

    Raises: as `fftshift`.

    Cost: one allocation of the result's size.
    """
    return _rolled("ifftshift", x, axes, back=True)
