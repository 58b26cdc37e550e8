"""Public functions that order, search and select: array API names, and `topk`.

Order: ascending with NaN last, complex numbers by real part and then imaginary part.
Values carry derivatives along the permutation that sorts; positions carry none. Where
the number of results depends on data, it is counted before anything is allocated.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidArgumentError
from ..ops import span
from ..storage import host_elements
from ._axes import axis_of, int_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._fn_indexing import take
from ._make import as_tensor, tensors

__all__ = [
    "sort",
    "argsort",
    "topk",
    "searchsorted",
    "isin",
    "nonzero",
    "argwhere",
    "UniqueAll",
    "UniqueCounts",
    "UniqueInverse",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]


# ---- sorting -------------------------------------------------------------------------


def sort(
    x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> EagerTensor:
    """The elements along an axis in order.

    Args:
        x: the elements.
        axis: one axis.
        descending: the largest (and NaN) first.
        stable: keep the order of equal elements, which shows in zeros of both signs.

    Raises:
        IndexRangeError: not an axis of `x`.

    Cost: one allocation of the result's size; retains `x`; the derivative sorts again.
    """
    x = as_tensor(x)
    at = axis_of("sort", axis, x.ndim)
    out: EagerTensor = HANDLES.sort(x, at, bool(descending), bool(stable))
    return out


def argsort(
    x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> EagerTensor:
    """The positions of the elements along an axis in order; see `sort`.

    Raises: as `sort`.

    Cost: one allocation of the result's size, int64; never tracked.
    """
    x = as_tensor(x)
    at = axis_of("argsort", axis, x.ndim)
    out: EagerTensor = HANDLES.argsort(x, at, bool(descending), bool(stable))
    return out


def topk(
    x: Any, k: int, /, *, axis: int = -1, largest: bool = True
) -> tuple[EagerTensor, EagerTensor]:
    """The `k` largest or smallest elements along an axis in order, and their positions.

    Args:
        x: the elements; NaN counts as largest, of equal ones the first are taken.
        k: how many, from 0 to the length of the axis.
        axis: one axis.
        largest: the largest in descending order, else the smallest in ascending order.

    Raises:
        IndexRangeError: not an axis of `x`. InvalidArgumentError: `k` out of range.

    Cost: sorts the axis; allocates positions of the size of `x` and the values; retains
        the positions.
    """
    x = as_tensor(x)
    at = axis_of("topk", axis, x.ndim)
    count = int_of("topk", "k", k)
    if not 0 <= count <= x.shape[at]:
        raise InvalidArgumentError(
            operation="topk",
            argument="k",
            found=f"{count} for an axis of length {x.shape[at]}",
            fix="pass a number from 0 to the length of the axis",
        )
    order = HANDLES.argsort(x, at, bool(largest), True)
    key = tuple(span(0, count if j == at else n, 1) for j, n in enumerate(x.shape))
    order = HANDLES.slice(order, key)
    return HANDLES.take_along_axis(x, order, at), order


# ---- searching -----------------------------------------------------------------------


def searchsorted(
    x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None
) -> EagerTensor:
    """Where to insert the elements of `x2` into `x1` so that it stays in order.

    Args:
        x1: one axis in ascending order, or in the order that `sorter` gives.
        x2: what to find.
        side: "left" of equal elements, or "right".
        sorter: positions that sort `x1`, as of `argsort`.

    Raises:
        ShapeError: `x1` has other than one axis.
        InvalidArgumentError: an unknown `side`.

    Cost: one allocation of int64 of the shape of `x2`; never tracked.
    """
    if side not in ("left", "right"):
        raise InvalidArgumentError(
            operation="searchsorted",
            argument="side",
            found=f"{side!r}",
            fix='pass "left" or "right"',
        )
    x1, x2 = tensors(x1, x2)
    if sorter is not None:
        x1 = take(x1, sorter, axis=0)
    out: EagerTensor = HANDLES.searchsorted(x1, x2, side)
    return out


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> EagerTensor:
    """Whether each element of `x1` occurs in `x2`; NaN never does.

    Args:
        x1: the elements, of any shape.
        x2: what to look for, of any shape.
        invert: whether it does not occur.

    Raises:
        DTypeError: not made of numbers.

    Cost: sorts `x2`; allocates a few values of the sizes of both; never tracked.
    """
    x1, x2 = tensors(x1, x2)
    if x2.size == 0:
        none: EagerTensor = HANDLES.full(
            x1.shape, np.dtype(np.bool_), bool(invert), x1.device
        )
        return none
    ordered = HANDLES.sort(_flat(x2), 0, False, False)
    at = HANDLES.searchsorted(ordered, x1, "left")
    at = HANDLES.minimum(at, x2.size - 1)
    compare = HANDLES.not_equal if invert else HANDLES.equal
    out: EagerTensor = compare(HANDLES.take(ordered, at, 0), x1)
    return out


def _places(x: Any) -> EagerTensor:
    """A row of positions for each axis, in row-major order."""
    x = as_tensor(x)
    if x.ndim == 0:
        raise InvalidArgumentError(
            operation="nonzero",
            argument="x",
            found="a 0-d value",
            fix="reshape it to one axis: `ta.reshape(x, (1,))`",
        )
    mask = x if x.dtype.kind == "b" else HANDLES.not_equal(x, 0)
    count = int(np.count_nonzero(host_elements(mask._record, "nonzero")))
    out: EagerTensor = HANDLES.mask_indices(mask, count)
    return out


def nonzero(x: Any, /) -> tuple[EagerTensor, ...]:
    """The positions of elements that are not zero, one value for each axis.

    Args:
        x: at least one axis.

    Raises:
        InvalidArgumentError: a 0-d value.

    Cost: one allocation of int64 for all positions (and the comparison with zero);
        never tracked.
    """
    x = as_tensor(x)
    places = _places(x)
    whole = span(0, places.shape[1], 1)
    return tuple(HANDLES.slice(places, (k, whole)) for k in range(x.ndim))


def argwhere(x: Any, /) -> EagerTensor:
    """The positions of elements that are not zero, one row for each; see `nonzero`.

    Raises: as `nonzero`.

    Cost: one allocation of int64 (and the comparison with zero); never tracked.
    """
    out: EagerTensor = HANDLES.permute_dims(_places(x), (1, 0))
    return out


# ---- distinct elements ---------------------------------------------------------------


class UniqueAll(NamedTuple):
    """What `unique_all` gives."""

    values: EagerTensor
    indices: EagerTensor
    inverse_indices: EagerTensor
    counts: EagerTensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` gives."""

    values: EagerTensor
    counts: EagerTensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` gives."""

    values: EagerTensor
    inverse_indices: EagerTensor


def _flat(x: EagerTensor) -> EagerTensor:
    if x.ndim == 1:
        return x
    out: EagerTensor = HANDLES.regroup(x, (math.prod(x.shape),))
    return out


class _Groups:
    """Equal elements of a value side by side: runs of its sorted elements."""

    def __init__(self, x: EagerTensor) -> None:
        self.x = x
        self.flat = flat = _flat(x)
        n = self.n = flat.shape[0]
        self.order = HANDLES.argsort(flat, 0, False, True)
        self.ordered = HANDLES.take(flat, self.order, 0)
        truth = np.dtype(np.bool_)
        if n == 0:
            self.first = HANDLES.full((0,), truth, False, x.device)
        else:
            below = HANDLES.slice(self.ordered, (span(0, n - 1, 1),))
            above = HANDLES.slice(self.ordered, (span(1, n - 1, 1),))
            new = HANDLES.not_equal(below, above)
            self.first = HANDLES.place(new, (n,), (span(1, n - 1, 1),), True)
        self.size = int(np.count_nonzero(host_elements(self.first._record, "unique")))
        places = HANDLES.mask_indices(self.first, self.size)
        self.starts = HANDLES.slice(places, (0, span(0, self.size, 1)))

    def values(self) -> EagerTensor:
        out: EagerTensor = HANDLES.take(self.ordered, self.starts, 0)
        return out

    def indices(self) -> EagerTensor:
        out: EagerTensor = HANDLES.take(self.order, self.starts, 0)
        return out

    def inverse(self) -> EagerTensor:
        ones = HANDLES.astype(self.first, np.dtype(np.int64))
        rank = HANDLES.sub(HANDLES.cumulative_sum(ones, 0, False), 1)
        placed = HANDLES.take_add(rank, self.order, 0, self.n)
        out: EagerTensor = HANDLES.regroup(placed, self.x.shape)
        return out

    def counts(self) -> EagerTensor:
        k = self.size
        edges = HANDLES.place(self.starts, (k + 1,), (span(0, k, 1),), self.n)
        ends = HANDLES.slice(edges, (span(1, k, 1),))
        out: EagerTensor = HANDLES.sub(ends, self.starts)
        return out


def unique_values(x: Any, /) -> EagerTensor:
    """The distinct elements in ascending order; each NaN is one of its own.

    Args:
        x: the elements, of any shape.

    Raises:
        DTypeError: not made of numbers.

    Cost: sorts; allocates a few values of the size of `x`. The derivative of a distinct
        element goes to its first occurrence.
    """
    return _Groups(as_tensor(x)).values()


def unique_counts(x: Any, /) -> UniqueCounts:
    """The distinct elements and how often each occurs; see `unique_values`.

    Raises: as `unique_values`.

    Cost: sorts; allocates a few values of the size of `x`.
    """
    found = _Groups(as_tensor(x))
    return UniqueCounts(found.values(), found.counts())


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The distinct elements and for each element which one it is; see `unique_values`.

    Raises: as `unique_values`.

    Cost: sorts; allocates a few values of the size of `x`.
    """
    found = _Groups(as_tensor(x))
    return UniqueInverse(found.values(), found.inverse())


def unique_all(x: Any, /) -> UniqueAll:
    """All that is known of distinct elements; see `unique_values`.

    First occurrences are positions in the flattened value.

    Raises: as `unique_values`.

    Cost: sorts; allocates a few values of the size of `x`.
    """
    found = _Groups(as_tensor(x))
    return UniqueAll(found.values(), found.indices(), found.inverse(), found.counts())
