"""Axes, lengths and norms of transforms, and the three kinds of transform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from .. import errors
from ..engine import (
    HANDLES,
    EagerTensor,
    as_tensor,
    astype,
    axes_of,
    int_of,
)
from ..ops import span

Norm = Literal["backward", "ortho", "forward"]
Lengths = Sequence[int] | None
Axes = Sequence[int] | None

SWAPPED: Final[dict[Norm, Norm]] = {
    "backward": "forward",
    "forward": "backward",
    "ortho": "ortho",
}


# ---- arguments -----------------------------------------------------------------------


def _bad(name: str, argument: str, found: Any, fix: str) -> Exception:
    return errors.InvalidArgumentError(
        operation=name, argument=argument, found=f"{found}", fix=fix
    )


def where(
    operation: str, x: EagerTensor, s: Lengths, axes: Axes, *, least: int = 0
) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Axes from 0 on, and for each the length asked for."""
    s = None if s is None else _listed(operation, "s", s)
    if axes is None:
        count = x.ndim if s is None else len(s)
        if count > x.ndim:
            raise _bad(operation, "s", s, f"pass at most {x.ndim} lengths")
        axes = range(x.ndim - count, x.ndim)
    axes = _listed(operation, "axes", axes)
    found = axes_of(operation, axes, x.ndim, "axes")
    if len(found) < least:
        raise _bad(operation, "axes", axes, "name some axis")
    if s is None:
        return found, (None,) * len(found)
    if len(s) != len(found):
        raise _bad(operation, "s", s, f"pass {len(found)} lengths")
    return found, s


def _listed(operation: str, argument: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(value)
    raise errors.DTypeError(
        operation=operation,
        argument=argument,
        found=f"an object of type `{errors.type_name(value)}`",
        fix="pass a sequence of integers",
    )


def _sizes(operation: str, x: EagerTensor, axes: Any, lengths: Any) -> list[int]:
    """A length for each axis: its own where none is given."""
    given = zip(axes, lengths, strict=True)
    return [int_of(operation, "s", x.shape[a] if n is None else n, 1) for a, n in given]


def norm_of(operation: str, norm: Any) -> Norm:
    if not isinstance(norm, str) or norm not in SWAPPED:
        fix = 'pass "backward", "ortho" or "forward"'
        raise _bad(operation, "norm", repr(norm), fix)
    found: Norm = norm
    return found


def _resized(x: EagerTensor, axes: tuple[int, ...], lengths: list[int]) -> EagerTensor:
    """`x` cut and then padded with zeros to the lengths given: a view where it is only
    cut, itself where nothing changes."""
    shape = list(x.shape)
    for a, n in zip(axes, lengths, strict=True):
        shape[a] = n
    key = tuple(span(0, min(m, n), 1) for m, n in zip(x.shape, shape, strict=True))
    if any(n < m for m, n in zip(x.shape, shape, strict=True)):
        x = HANDLES.slice(x, key)
    if x.shape != tuple(shape):
        x = HANDLES.place(x, tuple(shape), key, 0)
    return x


def full(
    operation: str, row: str, x: Any, s: Lengths, axes: Axes, norm: Any
) -> EagerTensor:
    x, norm = as_tensor(x), norm_of(operation, norm)
    at, lengths = where(operation, x, s, axes)
    if not at:
        return astype(x, np.result_type(x.dtype, np.complex64))
    sizes = _sizes(operation, x, at, lengths)
    out: EagerTensor = getattr(HANDLES, row)(_resized(x, at, sizes), at, norm)
    return out


def half(operation: str, x: Any, s: Lengths, axes: Axes, norm: Any) -> EagerTensor:
    x, norm = as_tensor(x), norm_of(operation, norm)
    if x.dtype.kind == "c":
        raise errors.DTypeError(
            operation=operation,
            argument="x",
            found=f"dtype {x.dtype}, where it takes real numbers",
            fix="use the complex transform of the same name without `r`",
        )
    at, lengths = where(operation, x, s, axes, least=1)
    sizes = _sizes(operation, x, at, lengths)
    out: EagerTensor = HANDLES.rfftn(_resized(x, at, sizes), at, norm)
    return out


def unhalf(operation: str, x: Any, s: Lengths, axes: Axes, norm: Any) -> EagerTensor:
    x, norm = as_tensor(x), norm_of(operation, norm)
    at, lengths = where(operation, x, s, axes, least=1)
    last = lengths[-1]
    n = 2 * (x.shape[at[-1]] - 1) if last is None else last
    n = int_of(operation, "s", n, 1)
    sizes = _sizes(operation, x, at[:-1], lengths[:-1])
    x = _resized(x, at, [*sizes, n // 2 + 1])
    out: EagerTensor = HANDLES.irfftn(x, at, n, norm)
    return out


def one(n: int | None) -> Lengths:
    return None if n is None else (n,)
