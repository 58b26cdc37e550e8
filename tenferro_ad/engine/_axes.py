"""Axes and counts as users write them, brought to the form that operations take."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ..errors import IndexRangeError, InvalidArgumentError

Axes = int | Sequence[int]


def int_of(operation: str, argument: str, value: Any) -> int:
    """A Python int.

    Raises:
        InvalidArgumentError: not an integer.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"an object of type `{type(value).__name__}`",
            fix="pass an integer",
        ) from None


def axis_of(operation: str, axis: Any, ndim: int, argument: str = "axis") -> int:
    """`axis` from 0 on.

    Raises:
        IndexRangeError: not an axis of a value with `ndim` axes.
    """
    k = int_of(operation, argument, axis)
    if not -ndim <= k < ndim:
        raise IndexRangeError(
            operation=operation,
            argument=argument,
            found=f"axis {k} of a value with {ndim} axes",
            fix=f"use an axis from {-ndim} to {ndim - 1}" if ndim else "it has no axis",
        )
    return k % ndim


def axes_of(
    operation: str, axes: Any, ndim: int, argument: str = "axis"
) -> tuple[int, ...]:
    """Several different axes from 0 on, in the order given; an int is one axis.

    Raises:
        IndexRangeError: one is out of range.
        InvalidArgumentError: one occurs twice.
    """
    given = tuple(axes) if isinstance(axes, tuple | list | range) else (axes,)
    found = tuple(axis_of(operation, a, ndim, argument) for a in given)
    if len(set(found)) < len(found):
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"a repeated axis in {given}",
            fix="name each axis once",
        )
    return found


def shape_of(operation: str, shape: Any, argument: str = "shape") -> tuple[int, ...]:
    """A tuple of lengths; an int is one length.

    Raises:
        InvalidArgumentError: a length is negative or no integer.
    """
    given = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    found = tuple(int_of(operation, argument, n) for n in given)
    if any(n < 0 for n in found):
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"{found}",
            fix="use lengths from 0 on",
        )
    return found
