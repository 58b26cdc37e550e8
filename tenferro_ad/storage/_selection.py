"""Layouts derived from checked layouts: select, permute, reshape, broadcast.

Each function validates only what is new (the index, the axes, the shape) and reuses
the proofs of the layout that it starts from. None of them touches bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..errors import IndexRangeError, LayoutError, ShapeError, type_name
from ._layout import CheckedLayout, Shape, c_strides, integers, trusted_layout


def _keys(operation: str, key: object, ndim: int) -> list[Any]:
    given = list(key) if isinstance(key, tuple) else [key]
    used = sum(1 for part in given if part is not None and part is not Ellipsis)
    dots = sum(1 for part in given if part is Ellipsis)
    if used > ndim or dots > 1:
        raise IndexRangeError(
            operation=operation,
            argument="key",
            found=f"{used} indices and {dots} ellipses for {ndim} axes",
            fix="give at most one index for each axis and one ellipsis",
        )
    if not dots:
        given.append(Ellipsis)
    at = next(i for i, part in enumerate(given) if part is Ellipsis)
    given[at : at + 1] = [slice(None)] * (ndim - used)
    return given


def checked_index(operation: str, index: object, extent: int, axis: int) -> int:
    """Return `index` counted from the front of an axis of `extent` elements.

    Raises:
        IndexRangeError: It is outside, or no integer.
    """
    found = None if isinstance(index, bool) else integers((index,))  # type: ignore[arg-type]
    if found is None:
        raise IndexRangeError(
            operation=operation,
            argument="key",
            found=f"an index of type `{type_name(index)}`",
            fix="use integers, slices, `...` and None; gathering is an operation",
        )
    (at,) = found
    if not -extent <= at < extent:
        raise IndexRangeError(
            operation=operation,
            argument="index",
            found=f"index {at} on axis {axis} of extent {extent}",
            fix=f"use {-extent} to {extent - 1}" if extent else "the axis is empty",
        )
    return at + extent if at < 0 else at


def select(operation: str, layout: CheckedLayout, key: object) -> CheckedLayout:
    """Apply basic indexing; new facts: the indices.

    Raises:
        IndexRangeError: An index is outside, or of a kind that needs a copy.

    Cost: O(rank).
    """
    offset = layout.offset
    shape: list[int] = []
    strides: list[int] = []
    axis = 0
    for part in _keys(operation, key, len(layout.shape)):
        if part is None:
            shape.append(1)
            strides.append(0)
            continue
        extent, stride = layout.shape[axis], layout.strides[axis]
        if isinstance(part, slice):
            try:
                start, stop, step = part.indices(extent)
            except (TypeError, ValueError) as error:
                raise IndexRangeError(
                    operation=operation,
                    argument="key",
                    found=f"a slice that cannot be used: {error}",
                    fix="use integer bounds and a step that is not zero",
                ) from None
            count = len(range(start, stop, step))
            # An empty selection starts where its axis starts, never outside the span.
            offset += start * stride if count else 0
            shape.append(count)
            strides.append(stride * step)
        else:
            offset += checked_index(operation, part, extent, axis) * stride
        axis += 1
    return trusted_layout(offset, tuple(shape), tuple(strides), layout.itemsize)


def permute(
    operation: str, layout: CheckedLayout, axes: Sequence[int]
) -> CheckedLayout:
    """Reorder axes; new fact: `axes` is a permutation.

    Raises:
        ShapeError: It is not.

    Cost: O(rank).
    """
    ndim = len(layout.shape)
    given = integers(axes)
    order = [axis + ndim if axis < 0 else axis for axis in given or ()]
    if given is None or sorted(order) != list(range(ndim)):
        raise ShapeError(
            operation=operation,
            argument="axes",
            found=f"{axes if given is None else given} for {ndim} axes",
            fix="name each axis once",
        )
    return trusted_layout(
        layout.offset,
        tuple(layout.shape[axis] for axis in order),
        tuple(layout.strides[axis] for axis in order),
        layout.itemsize,
    )


def reverse(operation: str, layout: CheckedLayout, axis: int) -> CheckedLayout:
    """Run one axis backwards; new fact: the axis.

    Raises:
        IndexRangeError: There is no such axis.

    Cost: O(rank).
    """
    ndim = len(layout.shape)
    found = integers((axis,))
    if found is None or not -ndim <= found[0] < ndim:
        raise IndexRangeError(
            operation=operation,
            argument="axis",
            found=f"{axis!r} for {ndim} axes",
            fix="name an axis of the value",
        )
    at = found[0] % ndim
    key = tuple(slice(None, None, -1 if k == at else None) for k in range(ndim))
    return select(operation, layout, key)


def broadcast(operation: str, layout: CheckedLayout, shape: Shape) -> CheckedLayout:
    """Repeat extents of one without copying; new fact: the shape.

    Raises:
        ShapeError: The shapes do not broadcast.

    Cost: O(rank).
    """
    shape = _sizes(operation, layout, shape)
    lead = len(shape) - len(layout.shape)
    fits = lead >= 0 and all(
        old in (1, new) for old, new in zip(layout.shape, shape[lead:], strict=True)
    )
    if not fits or any(extent < 0 for extent in shape):
        raise ShapeError(
            operation=operation,
            argument="shape",
            found=f"{shape} from {layout.shape}",
            fix="extend axes of extent 1, or add leading axes",
        )
    kept = tuple(
        0 if old == 1 != new else stride
        for old, new, stride in zip(
            layout.shape, shape[lead:], layout.strides, strict=True
        )
    )
    return trusted_layout(layout.offset, shape, (0,) * lead + kept, layout.itemsize)


def _sizes(operation: str, layout: CheckedLayout, shape: Shape) -> Shape:
    found = integers(shape)
    if found is None:
        raise ShapeError(
            operation=operation,
            argument="shape",
            found=f"{shape!r} from {layout.shape}",
            fix="pass a tuple of integers",
        )
    return found


def reshape(operation: str, layout: CheckedLayout, shape: Shape) -> CheckedLayout:
    """Regroup elements in C order where strides can express it; never copies.

    Raises:
        ShapeError: The number of elements changes.
        LayoutError: The strides cannot express the shape.

    Cost: O(rank).
    """
    shape, size = _sizes(operation, layout, shape), layout.size
    if shape.count(-1) == 1:
        rest = -math.prod(shape)
        if rest and size % rest == 0:
            shape = tuple(size // rest if n == -1 else n for n in shape)
    if any(extent < 0 for extent in shape) or math.prod(shape) != size:
        raise ShapeError(
            operation=operation,
            argument="shape",
            found=f"{shape} from {layout.shape}",
            fix=f"keep {size} elements",
        )
    if size == 0:
        plain = c_strides(shape, layout.itemsize)
        return trusted_layout(layout.offset, shape, plain, layout.itemsize)
    strides = _regrouped(layout, shape)
    if strides is None:
        raise LayoutError(
            operation=operation,
            field="strides",
            requested=f"shape {shape} from shape {layout.shape}",
            limit="what one set of strides can express",
            fix="`duplicate()` the view first; storage views never copy",
        )
    return trusted_layout(layout.offset, shape, strides, layout.itemsize)


def _regrouped(layout: CheckedLayout, shape: Shape) -> tuple[int, ...] | None:
    """Strides for `shape` over the same elements in the same order, if they exist."""
    old = [
        (extent, stride)
        for extent, stride in zip(layout.shape, layout.strides, strict=True)
        if extent != 1
    ]
    # Merge neighbouring axes that step as one; each run is (extent, smallest stride).
    runs: list[tuple[int, int]] = []
    for extent, stride in old:
        if runs and runs[-1][1] == extent * stride:
            runs[-1] = (runs[-1][0] * extent, stride)
        else:
            runs.append((extent, stride))
    strides: list[int] = []
    left, step = 1, layout.itemsize
    for extent in reversed(shape):
        if extent == 1:
            strides.append(step)
            continue
        if left == 1:
            left, step = runs.pop()
        if left % extent:
            return None
        strides.append(step)
        left //= extent
        step *= extent
    return tuple(reversed(strides))
