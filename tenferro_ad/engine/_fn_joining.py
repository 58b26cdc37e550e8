"""Joining, cutting, padding and repeating values.

Parts are views of their whole; joins and paddings write one fresh output each.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ..errors import IndexRangeError, InvalidArgumentError, ShapeError, named
from ..ops import exact, span
from ..storage import host_elements
from ._axes import Axes, axis_of, int_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._fn_creation import arange, number_of
from ._fn_movement import broadcast_to, expand_dims, reshape
from ._make import as_tensor, several

__all__ = [
    "array_split",
    "concat",
    "hstack",
    "pad",
    "repeat",
    "split",
    "stack",
    "tile",
    "unstack",
    "vstack",
]


# ---- joining -------------------------------------------------------------------------


@named()
def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> EagerTensor:
    """Values one after another along an existing axis.

    Args:
        arrays: values whose other axes are equal; dtypes promote.
        axis: the axis; None first reshapes each value to one axis.

    Raises:
        ShapeError: other axes differ, or a value is 0-d.

    Cost: one fresh output; the derivatives are views of the cotangent.
    """
    xs = several("concat", arrays)
    if axis is None:
        xs, axis = [reshape(x, (x.size,)) for x in xs], 0
    if xs[0].ndim == 0:
        raise ShapeError(
            operation="concat",
            argument="arrays",
            found="a 0-d value, which has no axis",
            fix="use `stack`, or `axis=None`",
        )
    return HANDLES.concat(xs, axis_of("concat", axis, xs[0].ndim))  # type: ignore[no-any-return]


@named(x="arrays", axes="axis")
def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> EagerTensor:
    """Values of one shape along a new axis.

    Raises:
        ShapeError: shapes differ.

    Cost: one fresh output; the derivatives are views of the cotangent.
    """
    xs = several("stack", arrays)
    for x in xs:
        if x.shape != xs[0].shape:
            raise ShapeError(
                operation="stack",
                argument="arrays",
                found=f"shapes {xs[0].shape} and {x.shape}",
                fix="make them equal, or use `concat`",
            )
    at = axis_of("stack", axis, xs[0].ndim + 1)
    return HANDLES.concat(  # type: ignore[no-any-return]
        [expand_dims(x, axis=at) for x in xs], at
    )


@named()
def hstack(arrays: Sequence[Any], /) -> EagerTensor:
    """Values one after another along the second axis, or the only one.

    Raises: as `concat`.

    Cost: one fresh output.
    """
    xs = [x if x.ndim else reshape(x, (1,)) for x in several("hstack", arrays)]
    return concat(xs, axis=0 if xs[0].ndim == 1 else 1)


@named()
def vstack(arrays: Sequence[Any], /) -> EagerTensor:
    """Values one after another along the first axis; vectors are rows.

    Raises: as `concat`.

    Cost: one fresh output.
    """
    xs = several("vstack", arrays)
    return concat([x if x.ndim > 1 else reshape(x, (1, x.size)) for x in xs], axis=0)


# ---- cutting -------------------------------------------------------------------------


@named()
def split(
    x: Any, indices_or_sections: int | Sequence[int], /, *, axis: int = 0
) -> list[EagerTensor]:
    """Adjacent parts of a value.

    Args:
        x: a value.
        indices_or_sections: a number of equal parts, or the increasing indices where
            parts begin (negative ones count from the end).
        axis: the axis to cut.

    Raises:
        ShapeError: the axis has no such equal parts, or indices decrease.
        IndexRangeError: an index lies beyond the axis.

    Cost: views; the derivative of all parts together is one concat.
    """
    x = as_tensor(x)
    at = axis_of("split", axis, x.ndim)
    n = x.shape[at]
    if isinstance(indices_or_sections, tuple | list):
        sizes = _between(indices_or_sections, n, at)
    else:
        parts = int_of("split", "indices_or_sections", indices_or_sections)
        if parts < 1 or n % parts:
            raise ShapeError(
                operation="split",
                argument="indices_or_sections",
                found=f"{parts} equal parts of axis {at} of length {n}",
                fix="use a divisor of the length, or a list of indices",
            )
        sizes = (n // parts,) * parts
    return _parts(x, sizes, at)


@named()
def array_split(
    x: Any, indices_or_sections: int | Sequence[int], /, *, axis: int = 0
) -> list[EagerTensor]:
    """Adjacent parts of a value, of nearly equal lengths: the first ones are longer.

    Args:
        x: a value.
        indices_or_sections: a number of parts, or indices as for `split`.
        axis: the axis to cut.

    Raises:
        ShapeError: indices decrease.
        InvalidArgumentError: a number of parts below 1.
        IndexRangeError: an index lies beyond the axis. DTypeError: not integers.

    Cost: views; the derivative of all parts together is one concat.
    """
    if isinstance(indices_or_sections, tuple | list):
        return split(x, indices_or_sections, axis=axis)
    x = as_tensor(x)
    at = axis_of("array_split", axis, x.ndim)
    parts = int_of("array_split", "indices_or_sections", indices_or_sections, 1)
    least, more = divmod(x.shape[at], parts)
    return _parts(x, (least + 1,) * more + (least,) * (parts - more), at)


def _between(indices: Sequence[int], n: int, axis: int) -> tuple[int, ...]:
    cuts = [int_of("split", "indices_or_sections", i) for i in indices]
    for i in cuts:
        if not -n <= i <= n:
            raise IndexRangeError(
                operation="split",
                argument="indices_or_sections",
                found=f"index {i} for axis {axis}, which has size {n}",
                fix=f"use indices from {-n} to {n}",
            )
    ends = [0, *[i + n if i < 0 else i for i in cuts], n]
    sizes = tuple(b - a for a, b in itertools.pairwise(ends))
    if min(sizes) < 0:
        raise ShapeError(
            operation="split",
            argument="indices_or_sections",
            found=f"decreasing indices {tuple(cuts)}",
            fix="give them in increasing order",
        )
    return sizes


def _parts(x: EagerTensor, sizes: tuple[int, ...], axis: int) -> list[EagerTensor]:
    if len(sizes) == 1:
        return [HANDLES.slice(x, tuple(span(0, n, 1) for n in x.shape))]
    return list(HANDLES.split(x, sizes, axis))


@named()
def unstack(x: Any, /, *, axis: int = 0) -> tuple[EagerTensor, ...]:
    """The values along an axis, which they lose.

    Raises:
        IndexRangeError: there is no such axis.
        DTypeError: `axis` is no integer.

    Cost: views; the derivative of all parts together is one concat.
    """
    x = as_tensor(x)
    at = axis_of("unstack", axis, x.ndim)
    if not x.shape[at]:
        return ()
    key = tuple(0 if k == at else span(0, n, 1) for k, n in enumerate(x.shape))
    parts = _parts(x, (1,) * x.shape[at], at)
    return tuple(HANDLES.slice(part, key) for part in parts)


# ---- padding -------------------------------------------------------------------------

Widths = int | Sequence[Any]
_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


@named()
def pad(
    x: Any,
    pad_width: Widths,
    mode: str = "constant",
    *,
    constant_values: complex = 0,
) -> EagerTensor:
    """`x` with elements added before and after each axis.

    Args:
        x: a value.
        pad_width: `(before, after)` for each axis, one such pair for all, or a number.
        mode: `"constant"` adds `constant_values`; `"edge"` repeats the outermost
            element, `"reflect"` mirrors about it, `"symmetric"` mirrors about the
            border, `"wrap"` continues from the other side.
        constant_values: a number, for mode `"constant"`.

    Raises:
        InvalidArgumentError: an unknown mode, or a width that is negative or larger
            than the mode can fill from the axis.

    Cost: one fresh output (in the other modes one for each padded axis). The
        derivative of constant padding is a view.
    """
    x = as_tensor(x)
    widths = _widths(pad_width, x.ndim)
    if mode not in _MODES:
        raise InvalidArgumentError(
            operation="pad",
            argument="mode",
            found=repr(mode),
            fix=f"use one of {', '.join(_MODES)}",
        )
    if mode == "constant":
        value = exact(number_of("pad", "constant_values", constant_values, x.dtype))
        shape = tuple(a + n + b for n, (a, b) in zip(x.shape, widths, strict=True))
        key = tuple(span(a, n, 1) for n, (a, _) in zip(x.shape, widths, strict=True))
        return HANDLES.place(x, shape, key, value)  # type: ignore[no-any-return]
    whole = tuple(span(0, n, 1) for n in x.shape)
    out: EagerTensor = HANDLES.slice(x, whole)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            out = _extended(out, axis, before, after, mode)
    return out


def _widths(given: Any, ndim: int) -> tuple[tuple[int, int], ...]:
    pairs: Any = given
    if not isinstance(given, tuple | list):
        pairs = [(given, given)] * ndim
    elif given and not isinstance(given[0], tuple | list):
        pairs = [(given[0], given[-1])] * ndim if len(given) <= 2 else [(None, None)]
    elif len(given) == 1:
        pairs = list(given) * ndim
    are_pairs = all(isinstance(p, tuple | list) and len(p) == 2 for p in pairs)
    if len(pairs) != ndim or not are_pairs:
        raise InvalidArgumentError(
            operation="pad",
            argument="pad_width",
            found=f"{given} for a value with {ndim} axes",
            fix="give one pair (before, after) for each axis",
        )
    widths = tuple(
        (int_of("pad", "pad_width", a), int_of("pad", "pad_width", b)) for a, b in pairs
    )
    if any(n < 0 for pair in widths for n in pair):
        raise InvalidArgumentError(
            operation="pad",
            argument="pad_width",
            found=f"{widths}",
            fix="use widths from 0 on; to cut elements off, slice",
        )
    return widths


def _extended(
    x: EagerTensor, axis: int, before: int, after: int, mode: str
) -> EagerTensor:
    """One axis extended by views of itself: one concat."""
    n = x.shape[axis]
    room = {"edge": max(before, after) if n else 0, "reflect": n - 1}.get(mode, n)
    if max(before, after) > max(room, 0):
        raise InvalidArgumentError(
            operation="pad",
            argument="pad_width",
            found=f"{(before, after)} for axis {axis} of length {n} in mode `{mode}`",
            fix=f"use widths up to {max(room, 0)}, or pad several times",
        )

    def part(start: int, count: int, step: int) -> EagerTensor:
        key = tuple(
            span(start, count, step) if k == axis else span(0, m, 1)
            for k, m in enumerate(x.shape)
        )
        return HANDLES.slice(x, key)  # type: ignore[no-any-return]

    match mode:
        case "edge":
            shape = x.shape
            left, right = (
                broadcast_to(part(at, 1, 1), (*shape[:axis], m, *shape[axis + 1 :]))
                for at, m in ((0, before), (n - 1, after))
            )
        case "reflect":
            left, right = part(before, before, -1), part(n - 2, after, -1)
        case "symmetric":
            left, right = part(before - 1, before, -1), part(n - 1, after, -1)
        case _:
            left, right = part(n - before, before, 1), part(0, after, 1)
    parts = [left] * (before > 0) + [x] + [right] * (after > 0)
    return concat(parts, axis=axis)


# ---- repeating -----------------------------------------------------------------------


@named()
def tile(x: Any, repetitions: int | Sequence[int], /) -> EagerTensor:
    """`x` laid out several times along each axis.

    Args:
        x: a value.
        repetitions: how often, for each axis; missing leading ones are 1, and
            additional leading ones make new axes.

    Raises:
        InvalidArgumentError: a negative count.
        DTypeError: a count is no integer.

    Cost: one fresh output; the derivative is one sum.
    """
    x = as_tensor(x)
    given = repetitions if isinstance(repetitions, tuple | list) else (repetitions,)
    reps = _counts("tile", "repetitions", given)
    if len(reps) > x.ndim:
        x = expand_dims(x, axis=tuple(range(len(reps) - x.ndim)))
    reps = (1,) * (x.ndim - len(reps)) + reps
    return HANDLES.tile(x, reps)  # type: ignore[no-any-return]


@named()
def repeat(x: Any, repeats: Any, /, *, axis: Axes | None = None) -> EagerTensor:
    """Each element `repeats` times along `axis` (by default of the flattened value).

    Args:
        x: a value.
        repeats: a count for all elements, or integers, one for each of them.
        axis: the axis.

    Raises:
        DTypeError: a count is no integer.
        InvalidArgumentError: a count is negative.
        ShapeError: not as many counts as elements along the axis.

    Cost: one fresh output; the derivative is one sum. A count for each element is read
        where it is (waits for it), and makes a few more outputs, its indices.
    """
    x = as_tensor(x)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    at = axis_of("repeat", axis, x.ndim)
    if not hasattr(repeats, "__index__") or getattr(repeats, "ndim", 0) != 0:
        counts = as_tensor(repeats, x.device)
        if counts.ndim == 1 and counts.dtype.kind in "iu" and counts.size != 1:
            return _repeat_each(x, counts, at)
        repeats = counts.item()
    (count,) = _counts("repeat", "repeats", (repeats,))
    reps = tuple(count if k == at else 1 for k in range(x.ndim))
    return HANDLES.repeat(x, reps)  # type: ignore[no-any-return]


def _repeat_each(x: EagerTensor, counts: EagerTensor, at: int) -> EagerTensor:
    if counts.size != x.shape[at]:
        raise ShapeError(
            operation="repeat",
            argument="repeats",
            found=f"{counts.size} counts for axis {at} of shape {x.shape}",
            fix="give one count, or one for each element",
        )
    seen = host_elements(counts._record, "repeat")
    if seen.size:
        _counts("repeat", "repeats", (seen.min(),))
    total = int(seen.sum())
    ends = HANDLES.cumulative_sum(counts, 0, False)
    places = arange(total, dtype=ends.dtype, device=x.device)
    return HANDLES.take(x, HANDLES.searchsorted(ends, places, "right"), at)  # type: ignore[no-any-return]


def _counts(operation: str, argument: str, given: Sequence[Any]) -> tuple[int, ...]:
    counts = tuple(int_of(operation, argument, r) for r in given)
    if any(r < 0 for r in counts):
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"{counts}",
            fix="use counts from 0 on",
        )
    return counts
