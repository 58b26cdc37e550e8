"""Values that meet at indices: segments, rows of an axis, elements along an axis.

Repeated indices add up in the order in which they stand, so results are the same on
every run; a product, maximum or minimum takes all that meet, and of values that are set
at one place the last one stays. All are differentiable in the values, never in the
indices: factors need not be different from zero, those that are tied for a maximum
share the slope equally, and a value that another one replaced has slope 0.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ..errors import DTypeError, InvalidArgumentError, ShapeError, named
from ..ops import Key, exact
from ._axes import axis_of, int_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._fn_creation import number_of
from ._fn_elementwise import astype, pow
from ._fn_indexing import leading_part, whole_key
from ._fn_movement import broadcast_to
from ._known_indices import check_known
from ._make import as_tensor, tensors
from ._operands import plain

__all__ = [
    "index_add",
    "scatter",
    "scatter_add",
    "segment_max",
    "segment_min",
    "segment_prod",
    "segment_sum",
]

Reduce = Literal["set", "add", "multiply", "max", "min"]
_REDUCTIONS = ("set", "add", "multiply", "max", "min")


# ---- segments ------------------------------------------------------------------------


def _segments(
    operation: str, x: Any, segments: Any, num_segments: int, axis: int
) -> tuple[EagerTensor, EagerTensor, int, int]:
    """Rows, their segments, the number of segments and the axis."""
    known = segments
    x, segments = tensors(x, segments)
    at = axis_of(operation, axis, x.ndim)
    _one_for_each(operation, "segments", x, segments, at)
    count = int_of(operation, "num_segments", num_segments, 0)
    check_known(operation, known, x, at, count)
    return x, segments, count, at


def _spread(indices: EagerTensor, shape: tuple[int, ...], axis: int) -> EagerTensor:
    """A row of indices seen at all places of `shape` (a view)."""
    row = (1,) * axis + (indices.size,) + (1,) * (len(shape) - axis - 1)
    return broadcast_to(HANDLES.reshape(indices, row), shape)


@named(ct="x", indices="segments")
def segment_sum(
    x: Any, segments: Any, /, *, num_segments: int, axis: int = 0
) -> EagerTensor:
    """For each segment the sum of its rows.

    Args:
        x: rows along `axis`.
        segments: for each row the segment that it belongs to, in any order.
        num_segments: how many segments there are; those without rows are zero.
        axis: one axis.

    Raises:
        ShapeError: not one segment for each row.
        IndexRangeError: a segment out of range.
        DTypeError: segments that are not integers.
        InvalidArgumentError: a negative count.

    Cost: one allocation of the result's size; retains `segments`; work linear in `x`.
    """
    x, index, size, at = _segments("segment_sum", x, segments, num_segments, axis)
    return HANDLES.take_add(x, index, at, size)  # type: ignore[no-any-return]


@named(indices="segments")
def segment_prod(
    x: Any, segments: Any, /, *, num_segments: int, axis: int = 0
) -> EagerTensor:
    """For each segment the product of its rows; see `segment_sum`.

    Segments without rows are one. The derivative divides by nothing, so it is right
    where factors are zero.

    Raises:
        ShapeError, IndexRangeError, InvalidArgumentError, DTypeError: as `segment_sum`.

    Cost: one allocation of the result's size; retains both arguments; the derivative
        sorts `segments`.
    """
    x, index, size, at = _segments("segment_prod", x, segments, num_segments, axis)
    spread = _spread(index, x.shape, at)
    return HANDLES.multiply_along_axis(x, spread, at, size)  # type: ignore[no-any-return]


def _segment_extreme(
    operation: str, x: Any, segments: Any, num_segments: int, axis: int, largest: bool
) -> EagerTensor:
    x, index, size, at = _segments(operation, x, segments, num_segments, axis)
    shape = (*x.shape[:at], size, *x.shape[at + 1 :])
    none: Any
    match x.dtype.kind:
        case "f":
            none = "-inf" if largest else "inf"
        case "b":
            none = not largest
        case "c":
            none = 0
        case _:
            info = np.iinfo(x.dtype)
            none = int(info.min if largest else info.max)
    start = HANDLES.full(shape, x.dtype, none, x.device)
    spread = _spread(index, x.shape, at)
    return HANDLES.extreme_along_axis(start, x, spread, at, largest)  # type: ignore[no-any-return]


@named(indices="segments")
def segment_max(
    x: Any, segments: Any, /, *, num_segments: int, axis: int = 0
) -> EagerTensor:
    """For each segment the largest of its rows, element by element; see `segment_sum`.

    Segments without rows hold the least number of the dtype (-inf). Equal largest
    elements share the slope equally.

    Raises:
        ShapeError, IndexRangeError, InvalidArgumentError: as `segment_sum`.
        DTypeError: complex rows, or segments that are not integers.

    Cost: two allocations of the result's size; retains both arguments and both values.
    """
    return _segment_extreme("segment_max", x, segments, num_segments, axis, True)


@named(indices="segments")
def segment_min(
    x: Any, segments: Any, /, *, num_segments: int, axis: int = 0
) -> EagerTensor:
    """For each segment the smallest of its rows, element by element; see `segment_max`.

    Segments without rows hold the greatest number of the dtype (inf).

    Raises:
        ShapeError, IndexRangeError, InvalidArgumentError, DTypeError: as `segment_max`.

    Cost: as `segment_max`.
    """
    return _segment_extreme("segment_min", x, segments, num_segments, axis, False)


# ---- rows and elements ---------------------------------------------------------------


@named()
def index_add(x: Any, indices: Any, source: Any, /, *, axis: int = 0) -> EagerTensor:
    """`x` with row j of `source` added to row `indices[j]`.

    Args:
        x: rows along `axis`.
        indices: one for each row of `source`.
        source: of the shape of `x` but for the length of `axis`.
        axis: one axis.

    Raises:
        ShapeError: shapes do not fit.
        IndexRangeError: an index out of range.
        DTypeError: indices that are not integers.

    Cost: two allocations of the size of `x`; retains `indices`.
    """
    known = indices
    x, indices, source = tensors(x, indices, source)
    at = axis_of("index_add", axis, x.ndim)
    check_known("index_add", known, x, at)
    if source.ndim == x.ndim:
        _one_for_each("index_add", "indices", source, indices, at)
    want = (*x.shape[:at], indices.size, *x.shape[at + 1 :])
    _fits("index_add", source, want)
    placed = HANDLES.take_add(source, indices, at, x.shape[at])
    out: EagerTensor = HANDLES.add(x, placed)
    return out


@named(shape="source")
def scatter_add(x: Any, indices: Any, source: Any, /, *, axis: int = -1) -> EagerTensor:
    """`x` with each element of `source` added where `indices` says along `axis`.

    `scatter` with `reduce="add"`.

    Raises:
        ShapeError, IndexRangeError, DTypeError: as `scatter`.

    Cost: as `scatter`.
    """
    return scatter(x, indices, source, axis=axis, reduce="add")


@named(shape="source")
def scatter(
    x: Any,
    indices: Any,
    source: Any,
    /,
    *,
    axis: int = -1,
    reduce: Reduce = "set",
) -> EagerTensor:
    """`x` with each element of `source` put where `indices` says along `axis`.

    Args:
        x: the values to start from.
        indices: integers with the axes of `x`, nowhere longer but along `axis`.
        source: values that broadcast to the shape of `indices` and take the dtype of
            `x`.
        axis: one axis.
        reduce: how elements meet at one place, with the element of `x` among them:
            "add", "multiply", "max" or "min"; "set" takes the last one of `source`.

    Raises:
        ShapeError: shapes do not fit.
        IndexRangeError: an index or the axis out of range.
        DTypeError: `source` does not fit the dtype of `x`; indices are not integers.
        InvalidArgumentError: an unknown `reduce`.

    Cost: "add", "multiply": two allocations of the size of `x`, retains `indices` (and
        the factors). "max", "min": one, retains all. "set": seven. Where `indices` are
        shorter along other axes, three more, and a scalar.
    """
    x, index = tensors(x, indices)
    at = axis_of("scatter", axis, x.ndim)
    check_known("scatter", indices, x, at)
    if reduce not in _REDUCTIONS:
        raise InvalidArgumentError(
            operation="scatter",
            argument="reduce",
            found=f"{reduce!r}",
            fix=f"use one of {', '.join(map(repr, _REDUCTIONS))}",
        )
    part = leading_part("scatter", x, index.shape, at)
    values = broadcast_to(fitting("scatter", "source", source, x), index.shape)
    made = _met(reduce, part, index, values, at)
    return made if part is x else replaced(x, whole_key(part.shape), made)


def _met(
    how: str, x: EagerTensor, index: EagerTensor, v: EagerTensor, axis: int
) -> EagerTensor:
    """`x` with `v` put where `index`, of the same shape, says along `axis`."""
    size = x.shape[axis]
    if not v.size:
        return x
    out: Any
    match how:
        case "add":
            out = HANDLES.add(x, HANDLES.add_along_axis(v, index, axis, size))
        case "multiply":
            out = HANDLES.mul(x, HANDLES.multiply_along_axis(v, index, axis, size))
        case "set":
            last = _last(index, x.shape, axis)
            at = HANDLES.maximum(last, 0)
            chosen = HANDLES.take_along_axis(v, at, axis)
            out = HANDLES.select(HANDLES.greater_equal(last, 0), chosen, x)
        case _:
            out = HANDLES.extreme_along_axis(x, v, index, axis, how == "max")
    return out  # type: ignore[no-any-return]


def _last(index: EagerTensor, shape: tuple[int, ...], axis: int) -> EagerTensor:
    """Which element comes last to each place along `axis`; -1 where none does."""
    device, count = index.device, index.shape[axis]
    whole = np.dtype(np.int64)
    numbers = HANDLES.arange(0, count, 1, count, whole, device)
    none = HANDLES.full(shape, whole, -1, device)
    numbers = _spread(numbers, index.shape, axis)
    return HANDLES.extreme_along_axis(none, numbers, index, axis, True)  # type: ignore[no-any-return]


def put_rows(
    how: str, x: EagerTensor, index: EagerTensor, v: EagerTensor, axis: int
) -> EagerTensor:
    """`x` with row j of `v` combined into row `index[j]` along `axis`."""
    size = x.shape[axis]
    out: Any
    match how:
        case "add" | "subtract":
            combine = HANDLES.add if how == "add" else HANDLES.sub
            out = combine(x, HANDLES.take_add(v, index, axis, size))
        case "multiply" | "divide" | "power":
            index = _spread(index, v.shape, axis)
            product = HANDLES.multiply_along_axis(v, index, axis, size)
            if how == "power":
                return pow(x, product)
            out = (HANDLES.mul if how == "multiply" else HANDLES.div)(x, product)
        case "set" if v.size:
            last = _last(index, (size,), 0)
            chosen = HANDLES.take(v, HANDLES.maximum(last, 0), axis)
            hit = _spread(HANDLES.greater_equal(last, 0), x.shape, axis)
            out = HANDLES.select(hit, chosen, x)
        case "set":
            out = x
        case _:
            index = _spread(index, v.shape, axis)
            out = HANDLES.extreme_along_axis(x, v, index, axis, how == "max")
    return out  # type: ignore[no-any-return]


def replaced(x: EagerTensor, key: Key, v: EagerTensor) -> EagerTensor:
    """`x` with the elements at a basic key replaced by `v`, which has their shape."""
    yes = HANDLES.full((), np.dtype(np.bool_), True, x.device)
    mask = HANDLES.place(broadcast_to(yes, v.shape), x.shape, key, False)
    return HANDLES.select(mask, HANDLES.place(v, x.shape, key, 0), x)  # type: ignore[no-any-return]


def fitting(operation: str, argument: str, values: Any, x: EagerTensor) -> EagerTensor:
    """Values in the dtype of `x`; a Python number is weakly typed.

    Raises:
        DTypeError: the dtype of `x` cannot hold such values.
    """
    values = plain(values)
    if isinstance(values, bool | int | float | complex):
        dtype = np.result_type(x.dtype, values)
        if dtype == x.dtype:
            number = exact(number_of(operation, argument, values, dtype))
            return HANDLES.full((), dtype, number, x.device)  # type: ignore[no-any-return]
    else:
        values = as_tensor(values, x.device)
        dtype = values.dtype
        if np.can_cast(dtype, x.dtype, "same_kind"):
            return astype(values, x.dtype, copy=False)
    raise DTypeError(
        operation=operation,
        argument=argument,
        found=f"values of dtype {dtype} for one of dtype {x.dtype}",
        fix="convert one of them: `ta.astype(x, dtype)`",
    )


def _one_for_each(
    operation: str, argument: str, x: EagerTensor, indices: EagerTensor, at: int
) -> None:
    if indices.shape != (x.shape[at],):
        raise ShapeError(
            operation=operation,
            argument=argument,
            found=f"shape {indices.shape} for {x.shape[at]} rows",
            fix="pass one integer for each row",
        )


def _fits(operation: str, source: EagerTensor, want: tuple[int, ...]) -> None:
    if source.shape != want:
        raise ShapeError(
            operation=operation,
            argument="source",
            found=f"shape {source.shape}",
            fix=f"pass values of shape {want}",
        )
