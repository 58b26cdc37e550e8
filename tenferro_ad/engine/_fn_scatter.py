"""Sums at indices: segments, rows of an axis, elements along an axis.

Repeated indices add up in the order in which they stand, so results are the same on
every run. All are differentiable in the values, never in the indices.
"""

from __future__ import annotations

from typing import Any

from ..errors import InvalidArgumentError, ShapeError
from ._axes import axis_of, int_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor

__all__ = ["segment_sum", "index_add", "scatter_add"]


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
        IndexRangeError: a segment out of range. InvalidArgumentError: a negative count.

    Cost: one allocation of the result's size; retains `segments`; work linear in `x`.
    """
    x, segments = as_tensor(x), as_tensor(segments)
    at = axis_of("segment_sum", axis, x.ndim)
    _one_for_each("segment_sum", "segments", x, segments, at)
    size = int_of("segment_sum", "num_segments", num_segments)
    if size < 0:
        raise InvalidArgumentError(
            operation="segment_sum",
            argument="num_segments",
            found=f"{size}",
            fix="pass a number from 0 on",
        )
    out: EagerTensor = HANDLES.take_add(x, segments, at, size)
    return out


def index_add(x: Any, indices: Any, source: Any, /, *, axis: int = 0) -> EagerTensor:
    """`x` with row j of `source` added to row `indices[j]`.

    Args:
        x: rows along `axis`.
        indices: one for each row of `source`.
        source: of the shape of `x` but for the length of `axis`.
        axis: one axis.

    Raises:
        ShapeError: shapes do not fit. IndexRangeError: an index out of range.

    Cost: two allocations of the size of `x`; retains `indices`.
    """
    x, indices, source = as_tensor(x), as_tensor(indices), as_tensor(source)
    at = axis_of("index_add", axis, x.ndim)
    if source.ndim == x.ndim:
        _one_for_each("index_add", "indices", source, indices, at)
    want = (*x.shape[:at], indices.size, *x.shape[at + 1 :])
    _fits("index_add", source, want)
    placed = HANDLES.take_add(source, indices, at, x.shape[at])
    out: EagerTensor = HANDLES.add(x, placed)
    return out


def scatter_add(x: Any, indices: Any, source: Any, /, *, axis: int = -1) -> EagerTensor:
    """`x` with each element of `source` added where `indices` says along `axis`.

    Args:
        x: the values to add to.
        indices: of the shape of `source`.
        source: of the shape of `x` but for the length of `axis`.
        axis: one axis.

    Raises:
        ShapeError: shapes do not fit. IndexRangeError: an index out of range.

    Cost: two allocations of the size of `x`; retains `indices`.
    """
    x, indices, source = as_tensor(x), as_tensor(indices), as_tensor(source)
    at = axis_of("scatter_add", axis, x.ndim)
    _fits("scatter_add", source, indices.shape)
    if source.ndim == x.ndim:
        want = (*x.shape[:at], source.shape[at], *x.shape[at + 1 :])
    else:
        want = x.shape
    _fits("scatter_add", source, want)
    placed = HANDLES.add_along_axis(source, indices, at, x.shape[at])
    out: EagerTensor = HANDLES.add(x, placed)
    return out


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
