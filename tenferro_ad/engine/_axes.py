"""Axes, counts and shapes as users write them, brought to the form that rows take.

Everything that public functions read as an integer is read here, so that the same
mistake has the same answer everywhere: something else than an integer is a
`DTypeError`, a number that does not fit an `InvalidArgumentError`, an axis that does
not exist an `IndexRangeError`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

from ..errors import (
    DTypeError,
    IndexRangeError,
    InvalidArgumentError,
    ShapeError,
    TenferroError,
    type_name,
)

Axes = int | Sequence[int]
Extent = int | Sequence[int]

_EVERY: Final = tuple([tuple(range(n)) for n in range(33)])


def int_of(
    operation: str,
    argument: str,
    value: Any,
    low: int | None = None,
    high: int | None = None,
) -> int:
    """A Python int from `low` on and below `high`, of at most 64 bits.

    Raises:
        DTypeError: not an integer.
        InvalidArgumentError: out of that range.
    """
    try:
        found = operator.index(value)
    except (TypeError, TenferroError):  # the latter from a tensor that is no scalar
        found = None
    if found is None or isinstance(value, bool):
        raise DTypeError(
            operation=operation,
            argument=argument,
            found=f"{value!r}"
            if isinstance(value, str | float | bool | None)
            else f"an object of type `{type_name(value)}`",
            fix="pass an integer",
        )
    bits = found.bit_length()
    is_within = (low is None or found >= low) and (high is None or found < high)
    if not is_within or bits > 64:
        wanted = " of at most 64 bits" if low is None else f" from {low} on"
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"{found}" if bits <= 64 else f"an integer of {bits} bits",
            fix=f"pass an integer{wanted}"
            if high is None
            else f"pass an integer from {low} to {high - 1}",
        )
    return found


def axis_of(operation: str, axis: Any, ndim: int, argument: str = "axis") -> int:
    """`axis` from 0 on.

    Raises:
        DTypeError: not an integer.
        IndexRangeError: not an axis of a value with `ndim` axes.
    """
    k = int_of(operation, argument, axis)
    if not -ndim <= k < ndim:
        raise IndexRangeError(
            operation=operation,
            argument=argument,
            found=f"axis {k} of a value with {ndim} axes",
            fix=f"pass an axis from {-ndim} to {ndim - 1}"
            if ndim
            else "a 0-d value has no axis: reshape it to have one",
        )
    return k % ndim


def axes_of(
    operation: str, axes: Any, ndim: int, argument: str = "axis"
) -> tuple[int, ...]:
    """Several different axes from 0 on, in the order given; an int is one axis.

    Raises:
        DTypeError: not integers.
        IndexRangeError: one is out of range.
        InvalidArgumentError: one occurs twice.
    """
    given = tuple(axes) if isinstance(axes, tuple | list | range) else (axes,)
    found = tuple([axis_of(operation, a, ndim, argument) for a in given])
    if len(set(found)) < len(found):
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"{given}, which names an axis twice, for {ndim} axes",
            fix="name each axis once",
        )
    return found


def reduced_axes(operation: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes in ascending order; None stands for all of them.

    Raises:
        DTypeError, IndexRangeError, InvalidArgumentError: as `axes_of`.
    """
    if axis is None:
        return _EVERY[ndim] if ndim < 33 else tuple(range(ndim))
    if type(axis) is int and -ndim <= axis < ndim:
        return (axis % ndim,)
    return tuple(sorted(axes_of(operation, axis, ndim)))


def shape_of(operation: str, shape: Any, argument: str = "shape") -> tuple[int, ...]:
    """A tuple of lengths; an int is one length.

    Raises:
        DTypeError: a length is no integer.
        InvalidArgumentError: a length is negative.
    """
    given = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    found = tuple([int_of(operation, argument, n) for n in given])
    if any(n < 0 for n in found):
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"{found}",
            fix="use lengths from 0 on",
        )
    return found


def extents(
    operation: str, argument: str, value: Any, n: int, low: int | None = None
) -> tuple[int, ...]:
    """One integer from `low` on for each of `n` axes; a single one stands for all.

    Raises:
        DTypeError: not integers.
        InvalidArgumentError: another number of integers, or one out of range.
    """
    if not isinstance(value, tuple | list):
        return (int_of(operation, argument, value, low),) * n
    found = tuple([int_of(operation, argument, v, low) for v in value])
    if len(found) != n:
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"{value!r} for {n} spatial axes",
            fix=f"pass one integer, or {n} of them",
        )
    return found


def need_spatial(operation: str, shape: tuple[int, ...], n: int) -> None:
    """Refuse operands without batch, channels and `n` spatial axes.

    Raises:
        ShapeError: another number of axes.
    """
    if len(shape) != n + 2:
        raise ShapeError(
            operation=operation,
            argument="x",
            found=f"shape {shape}",
            fix=f"pass {n + 2} axes: (batch, channels, *spatial)",
        )
