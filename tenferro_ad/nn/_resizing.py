"""Adaptive pooling and interpolation, axis by axis, of public functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

import tenferro_ad as ta

Sizes = int | Sequence[int]


def _sizes(operation: str, x: ta.EagerTensor, size: Sizes) -> tuple[int, ...]:
    """A length for each spatial axis."""
    n = x.ndim - 2
    found = (size,) * n if isinstance(size, int) else tuple(size)
    if n < 1 or len(found) != n or any(k < 1 for k in found):
        raise ta.errors.InvalidArgumentError(
            operation=operation,
            argument="size",
            found=f"{size} for shape {x.shape}",
            fix="pass (batch, channels, *spatial) and a positive length, or one for "
            "each spatial axis",
        )
    return found


# ---- adaptive pooling ----------------------------------------------------------------


def _pooled(
    operation: str, reduce: Callable[..., ta.EagerTensor], x: Any, size: Sizes
) -> ta.EagerTensor:
    y: ta.EagerTensor = ta.asarray(x)
    for axis, k in enumerate(_sizes(operation, y, size), 2):
        n = y.shape[axis]
        if k == n:
            continue
        lead = (slice(None),) * axis
        parts = [
            reduce(y[(*lead, slice(i * n // k, -(-(i + 1) * n // k)))], axis=axis)
            for i in range(k)
        ]
        y = ta.stack(parts, axis=axis)
    return y


def adaptive_avg_pool(x: Any, size: Sizes) -> ta.EagerTensor:
    """Means over windows that divide each spatial axis into `size` parts.

    Args:
        x: (batch, channels, *spatial).
        size: one length, or one for each spatial axis. Window i of k over n elements
            runs from floor(i n / k) to ceil((i + 1) n / k).

    Raises:
        InvalidArgumentError: lengths do not fit.

    Cost: one reduction for each part and axis, and a copy that joins them.
    """
    return _pooled("adaptive_avg_pool", ta.mean, x, size)


def adaptive_max_pool(x: Any, size: Sizes) -> ta.EagerTensor:
    """Largest elements of the windows of `adaptive_avg_pool`; ties share the slope.

    Raises:
        InvalidArgumentError: lengths do not fit.

    Cost: that of `adaptive_avg_pool`.
    """
    return _pooled("adaptive_max_pool", ta.max, x, size)


# ---- interpolation -------------------------------------------------------------------


def interpolate(
    x: Any,
    size: Sizes,
    *,
    mode: Literal["nearest", "linear"] = "nearest",
    align_corners: bool = False,
) -> ta.EagerTensor:
    """`x` resampled to `size` along its spatial axes.

    Args:
        x: (batch, channels, *spatial).
        size: one length, or one for each spatial axis.
        mode: "nearest" takes the element at floor(i n / k) for i of k and n elements;
            "linear" weighs the two neighbours along each axis (in two dimensions
            bilinear, in three trilinear).
        align_corners: for "linear": the first and last elements keep their places;
            otherwise elements are cells, whose outer edges keep theirs.

    Raises:
        InvalidArgumentError: an unknown `mode`, lengths do not fit.

    Cost: for each axis one or two gathered values and their combination.
    """
    y: ta.EagerTensor = ta.asarray(x)
    sizes = _sizes("interpolate", y, size)
    if mode not in ("nearest", "linear"):
        raise ta.errors.InvalidArgumentError(
            operation="interpolate",
            argument="mode",
            found=f"{mode!r}",
            fix='pass "nearest" or "linear"',
        )
    for axis, k in enumerate(sizes, 2):
        n = y.shape[axis]
        if k == n:
            continue
        if mode == "nearest":
            y = ta.take(y, np.arange(k) * n // k, axis=axis)
        else:
            y = _linear(y, axis, k, align_corners)
    return y


def _linear(x: ta.EagerTensor, axis: int, k: int, align_corners: bool) -> Any:
    n = x.shape[axis]
    if align_corners:
        at = np.arange(k) * ((n - 1) / (k - 1) if k > 1 else 0.0)
    else:
        at = np.maximum((np.arange(k) + 0.5) * (n / k) - 0.5, 0.0)
    below = np.minimum(np.floor(at).astype(np.int64), n - 1)
    above = np.minimum(below + 1, n - 1)
    shape = [k if j == axis else 1 for j in range(x.ndim)]
    real = ta.real(x).dtype
    weight = ta.asarray((at - below).reshape(shape), dtype=real, device=x.device)
    first, second = (ta.take(x, i, axis=axis) for i in (below, above))
    return first + (second - first) * weight
