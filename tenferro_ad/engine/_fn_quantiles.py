"""Quantiles: elements of the sorted order, and numbers between two of them.

The derivative goes to the elements that a result was read from, by their weights; of
equal elements to those that a stable sort puts there. A lane with a NaN gives NaN.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

import numpy as np

from ..errors import DTypeError, InvalidArgumentError, named, type_name
from ..ops import span
from ._axes import Axes, reduced_axes
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._fn_elementwise import astype
from ._make import as_tensor

__all__ = ["median", "quantile"]

Method = Literal["linear", "lower", "higher", "nearest", "midpoint"]
_METHODS: Final = ("linear", "lower", "higher", "nearest", "midpoint")


@named()
def quantile(
    x: Any,
    q: Any,
    /,
    *,
    axis: Axes | None = None,
    method: Method = "linear",
    keepdims: bool = False,
) -> EagerTensor:
    """Numbers below which lies the share `q` of the elements along `axis`.

    Args:
        x: real elements; integers give float64.
        q: numbers from 0 to 1, of any shape, which come first in the result's shape.
        axis: an axis, several, or None for all.
        method: what to take where q (n - 1) lies between the places of two elements:
            "linear" a number between them, "lower" or "higher" one of them, "nearest"
            the nearer (of a half the even place), "midpoint" their mean.
        keepdims: keep reduced axes with length 1.

    Raises:
        DTypeError: complex elements. IndexRangeError: an axis out of range.
        InvalidArgumentError: `q` outside 0 to 1, no elements, an unknown `method`.
        TracedConversionError: `q` is tracked: there is no derivative in it.

    Cost: sorts; allocates the sorted elements, and a few values of the result's size,
        share by share.

    Source: R. Hyndman, Y. Fan, Amer. Statist. 50 (1996), type 7.
    """
    x = as_tensor(x)
    if method not in _METHODS:
        raise InvalidArgumentError(
            operation="quantile",
            argument="method",
            found=f"{method!r}",
            fix=f"use one of {', '.join(map(repr, _METHODS))}",
        )
    try:
        shares = np.asarray(q, np.float64)
    except (TypeError, ValueError, OverflowError):
        if isinstance(q, EagerTensor):
            raise
        raise DTypeError(
            operation="quantile",
            argument="q",
            found=f"an object of type `{type_name(q)}`",
            fix="pass numbers from 0 to 1",
        ) from None
    if not np.all((shares >= 0.0) & (shares <= 1.0)):
        raise InvalidArgumentError(
            operation="quantile",
            argument="q",
            found="numbers outside 0 to 1",
            fix="pass shares, not percentages",
        )
    axes = reduced_axes("quantile", axis, x.ndim)
    lanes, rest = _lanes(x, axes)
    found = _at_shares(lanes, shares.reshape(-1), method)
    if keepdims:
        rest = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
    return HANDLES.regroup(found, (*shares.shape, *rest))  # type: ignore[no-any-return]


@named()
def median(
    x: Any, /, *, axis: Axes | None = None, keepdims: bool = False
) -> EagerTensor:
    """The element in the middle, or the mean of the two there; see `quantile`.

    Raises:
        DTypeError: complex elements. IndexRangeError: an axis out of range.
        InvalidArgumentError: no elements.

    Cost: sorts; allocates the sorted elements and a few values of the result's size.
    """
    return quantile(x, 0.5, axis=axis, keepdims=keepdims)


def _lanes(
    x: EagerTensor, axes: tuple[int, ...]
) -> tuple[EagerTensor, tuple[int, ...]]:
    """Floating elements as (results, n), and the shape of the results."""
    if x.dtype.kind == "c":
        raise DTypeError(
            operation="quantile",
            argument="x",
            found=f"dtype {x.dtype}, which has no order",
            fix="use `ta.real(x)`, `ta.imag(x)` or `ta.abs(x)`",
        )
    n = math.prod(x.shape[a] for a in axes)
    if not n:
        raise InvalidArgumentError(
            operation="quantile",
            argument="x",
            found=f"no elements along axis {axes} of shape {x.shape}",
            fix="reduce an axis that has elements",
        )
    if x.dtype.kind != "f":
        x = astype(x, np.float64)
    kept = tuple(k for k in range(x.ndim) if k not in axes)
    rest = tuple(x.shape[k] for k in kept)
    if (*kept, *axes) != tuple(range(x.ndim)):
        x = HANDLES.permute_dims(x, (*kept, *axes))
    return HANDLES.regroup(x, (math.prod(rest), n)), rest


def _at_shares(lanes: EagerTensor, shares: Any, method: Method) -> EagerTensor:
    """The result of each lane for each share: (shares, results)."""
    rows, n = lanes.shape
    ordered = HANDLES.sort(lanes, 1, False, True)

    def at(place: int) -> EagerTensor:
        return HANDLES.slice(ordered, (None, span(0, rows, 1), place))  # type: ignore[no-any-return]

    last = at(n - 1)
    broken = HANDLES.isnan(last)
    found = []
    for low, high, t in (_places(float(share) * (n - 1), method) for share in shares):
        value = at(low)
        if t:
            moved = HANDLES.add(value, HANDLES.mul(HANDLES.sub(at(high), value), t))
            # Nothing is added to an infinity, which would give NaN.
            value = HANDLES.select(HANDLES.isfinite(value), moved, value)
        found.append(HANDLES.select(broken, last, value))
    if not found:
        return HANDLES.full((0, rows), lanes.dtype, 0, lanes.device)  # type: ignore[no-any-return]
    return HANDLES.concat(found, 0) if len(found) > 1 else found[0]  # type: ignore[no-any-return]


def _places(at: float, method: Method) -> tuple[int, int, float]:
    """Two neighbouring places, and how far from the first to the second."""
    low, high = math.floor(at), math.ceil(at)
    match method:
        case "lower":
            return low, low, 0.0
        case "higher":
            return high, high, 0.0
        case "nearest":
            return round(at), round(at), 0.0
        case "midpoint":
            return low, high, 0.5 if high > low else 0.0
    return low, high, at - low
