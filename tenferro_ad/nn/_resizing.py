"""Adaptive pooling and interpolation, axis by axis, of public functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final, Literal

import tenferro_ad as ta
from tenferro_ad.errors import named

from ._arguments import number

Sizes = int | Sequence[int]


def _sizes(operation: str, x: ta.EagerTensor, size: Sizes) -> tuple[int, ...]:
    """A length for each spatial axis."""
    n = x.ndim - 2
    given: Any = size if isinstance(size, tuple | list) else (size,) * n
    found: tuple[int, ...] = tuple(given)
    for k in found:
        number(operation, "size", k, -math.inf, kind=int)
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

Mode = Literal["nearest", "nearest-exact", "linear", "cubic", "area"]
# PyTorch has a name for each number of axes.
_MODES: Final[dict[str, Mode]] = {
    "nearest": "nearest",
    "nearest-exact": "nearest-exact",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
    "area": "area",
}
_CUBIC: Final = -0.75  # the slope of the cubic kernel at distance 1


@named(axis="size")
def interpolate(
    x: Any,
    size: Sizes | None = None,
    *,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> ta.EagerTensor:
    """`x` resampled to `size` along its spatial axes.

    Args:
        x: (batch, channels, *spatial).
        size: one length, or one for each spatial axis.
        scale_factor: instead of `size`: lengths are multiplied by it and rounded down,
            and neighbouring results lie 1 / `scale_factor` apart.
        mode: "nearest" takes the element at floor(i n / k) for i of k and n elements,
            "nearest-exact" that at floor((i + 1/2) n / k); "linear" weighs the two
            neighbours along each axis, "cubic" the four (convolution with the cubic
            kernel of parameter -3/4, edges repeated); "area" takes means over windows,
            as `adaptive_avg_pool`. PyTorch's "bilinear", "trilinear" and "bicubic" are
            other names.
        align_corners: for "linear" and "cubic": the first and last elements keep their
            places; otherwise elements are cells, whose outer edges keep theirs.

    Raises:
        InvalidArgumentError: an unknown `mode`; not exactly one of `size` and
            `scale_factor`; lengths do not fit; `align_corners` in another mode.

    Cost: for each axis one, two or four gathered values and their combination, and a
        few values of its new length.

    Source: R. Keys, IEEE Trans. Acoust. Speech Signal Process. 29 (1981).
    """
    y: ta.EagerTensor = ta.asarray(x)
    how = _MODES.get(mode) if isinstance(mode, str) else None
    if how is None:
        names = ", ".join(f'"{m}"' for m in _MODES)
        raise _refused("mode", f"{mode!r}", f"pass one of {names}")
    if (size is None) == (scale_factor is None):
        found = "neither" if size is None else "both"
        raise _refused("size", f"{found} of `size` and `scale_factor`", "pass one")
    if align_corners and how not in ("linear", "cubic"):
        raise _refused("align_corners", f'mode "{mode}"', 'use "linear" or "cubic"')
    sizes, steps = _grid(y, size, scale_factor)
    if how == "area":
        return adaptive_avg_pool(y, sizes)
    for axis, (k, step) in enumerate(zip(sizes, steps, strict=True), 2):
        n = y.shape[axis]
        if k == n and step == 1:
            continue
        if how in ("linear", "cubic"):
            y = _weighed(y, axis, _places(y, n, k, float(step), align_corners), how)
            continue
        index = ta.arange(k, device=y.device)
        if how == "nearest-exact":
            index = _whole((index + 0.5) * float(step))
        elif isinstance(step, Fraction):
            index = index * n // k
        else:
            index = _whole(index * step)
        y = ta.take(y, ta.minimum(index, n - 1), axis=axis)
    return y


def _refused(argument: str, found: str, fix: str) -> Exception:
    return ta.errors.InvalidArgumentError(
        operation="interpolate", argument=argument, found=found, fix=fix
    )


def _grid(
    x: ta.EagerTensor, size: Sizes | None, scale_factor: Any
) -> tuple[tuple[int, ...], list[Any]]:
    """Lengths of the result, and the distance of neighbours, for each spatial axis."""
    spatial = x.shape[2:]
    if size is not None:
        sizes = _sizes("interpolate", x, size)
        return sizes, [Fraction(n, k) for n, k in zip(spatial, sizes, strict=True)]
    several = isinstance(scale_factor, tuple | list)
    factors = tuple(scale_factor) if several else (scale_factor,) * len(spatial)
    for f in factors:
        number("interpolate", "scale_factor", f, -math.inf)
    if len(factors) != len(spatial) or any(not f > 0 for f in factors):
        raise _refused(
            "scale_factor",
            f"{scale_factor} for shape {x.shape}",
            "pass one positive number, or one for each spatial axis",
        )
    lengths = [math.floor(n * f) for n, f in zip(spatial, factors, strict=True)]
    return _sizes("interpolate", x, lengths), [1.0 / f for f in factors]


def _real(x: ta.EagerTensor) -> Any:
    """The dtype of weights."""
    if ta.isdtype(x.dtype, "complex floating"):
        return ta.float32 if x.dtype.itemsize == 8 else ta.float64
    return x.dtype if ta.isdtype(x.dtype, "real floating") else ta.float64


def _whole(at: ta.EagerTensor) -> ta.EagerTensor:
    """Rounded down, as indices."""
    return ta.astype(ta.floor(at), ta.int64)


def _places(
    x: ta.EagerTensor, n: int, k: int, step: float, align_corners: bool
) -> ta.EagerTensor:
    """Where the elements of the result lie among those of the argument."""
    wide = ta.result_type(_real(x), ta.float32)
    at = ta.arange(k, dtype=wide, device=x.device)
    if align_corners:
        return at * ((n - 1) / (k - 1) if k > 1 else 0.0)
    return (at + 0.5) * step - 0.5


def _weighed(
    x: ta.EagerTensor, axis: int, at: ta.EagerTensor, how: Mode
) -> ta.EagerTensor:
    """Sums of neighbours along an axis, weighed by their distance."""
    n = x.shape[axis]
    if how == "linear":
        at = ta.maximum(at, 0.0)
    first = ta.floor(at)
    t = at - first
    if how == "linear":
        weights = {0: 1.0 - t, 1: t}
    else:
        weights = {-1: _far(t + 1.0), 0: _near(t), 1: _near(1.0 - t), 2: _far(2.0 - t)}
    index = ta.astype(first, ta.int64)
    shape = [at.size if j == axis else 1 for j in range(x.ndim)]
    real = _real(x)
    total: Any = None
    for offset, weight in weights.items():
        part = ta.take(x, ta.clip(index + offset, 0, n - 1), axis=axis)
        part = part * ta.reshape(ta.astype(weight, real), shape)
        total = part if total is None else total + part
    found: ta.EagerTensor = total
    return found


def _near(d: Any) -> Any:
    """The cubic kernel at distances up to 1."""
    return ((_CUBIC + 2.0) * d - (_CUBIC + 3.0)) * d * d + 1.0


def _far(d: Any) -> Any:
    """The cubic kernel at distances from 1 to 2."""
    return ((_CUBIC * d - 5.0 * _CUBIC) * d + 8.0 * _CUBIC) * d - 4.0 * _CUBIC
