"""Reading elements: `x[key]`, `take`, `take_along_axis`.

Basic keys (integers, slices, `...`, `None`) give views. Integer arrays give a fresh
output, whose derivative adds at repeated indices; masks are turned into integer arrays
by counting on concrete values.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..errors import (
    DTypeError,
    IndexRangeError,
    InvalidArgumentError,
    ShapeError,
    TracedConversionError,
    named,
)
from ..ops import Key, broadcast_shapes, span
from ..runtime import shown, traced_error
from ..storage import host_elements
from ._axes import axis_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._fn_joining import stack
from ._fn_movement import broadcast_to, expand_dims
from ._known_indices import check_known, is_traced
from ._make import as_tensor, asarray, outside

__all__ = ["gather", "getitem", "take", "take_along_axis"]

_INT64 = np.dtype(np.int64)


# ---- functions -----------------------------------------------------------------------


@named()
def take(x: Any, indices: Any, /, *, axis: int | None = None) -> EagerTensor:
    """Elements of `x` at `indices` along one axis.

    Args:
        x: a value.
        indices: integers of any shape, which takes the place of the axis. Negative ones
            count from the end.
        axis: the axis; may be left out for a 1-d value.

    Raises:
        IndexRangeError: an index or the axis is out of range; names axis, index, size.
        DTypeError: indices are not integers.

    Cost: one fresh output. The derivative keeps the indices only, and adds up the
        cotangents of repeated indices into one fresh output.
    """
    x = as_tensor(x)
    if axis is None:
        if x.ndim != 1:
            raise InvalidArgumentError(
                operation="take",
                argument="axis",
                found=f"no axis for a value of shape {x.shape}",
                fix="name the axis, or use `reshape(x, -1)`",
            )
        axis = 0
    at = axis_of("take", axis, x.ndim)
    check_known("take", indices, x, at)
    return HANDLES.take(x, _indices("take", indices, x.device), at)  # type: ignore[no-any-return]


@named()
def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> EagerTensor:
    """For each place of `indices`, the element of `x` at that index along `axis`.

    Args:
        x: a value.
        indices: integers with the axes of `x`; axes other than `axis` broadcast.
        axis: the axis.

    Raises:
        IndexRangeError: an index or the axis is out of range; names axis, index, size.
        ShapeError: axes other than `axis` do not broadcast.

    Cost: one fresh output. The derivative keeps the indices only, and adds up the
        cotangents of repeated indices into one fresh output.
    """
    x = as_tensor(x)
    index = _indices("take_along_axis", indices, x.device)
    if index.ndim != x.ndim:
        raise ShapeError(
            operation="take_along_axis",
            argument="indices",
            found=f"shape {index.shape} for a value of shape {x.shape}",
            fix="give the indices as many axes as the value",
        )
    at = axis_of("take_along_axis", axis, x.ndim)
    check_known("take_along_axis", indices, x, at)
    shape = broadcast_shapes(
        "take_along_axis", *[(*v.shape[:at], 1, *v.shape[at + 1 :]) for v in (x, index)]
    )
    x, index = (
        broadcast_to(v, (*shape[:at], v.shape[at], *shape[at + 1 :]))
        for v in (x, index)
    )
    return HANDLES.take_along_axis(x, index, at)  # type: ignore[no-any-return]


@named()
def gather(x: Any, indices: Any, /, *, axis: int = -1) -> EagerTensor:
    """For each place of `indices`, the element of `x` at that index along `axis`.

    Unlike `take_along_axis` it never broadcasts: indices that are shorter along other
    axes ask for the leading elements there, as `torch.gather` does.

    Args:
        x: a value.
        indices: integers with the axes of `x`, nowhere longer but along `axis`.
        axis: the axis.

    Raises:
        IndexRangeError: an index or the axis is out of range; names axis, index, size.
        ShapeError: the indices have other axes, or are longer along one of them.
        DTypeError: indices are not integers.

    Cost: one fresh output. The derivative keeps the indices only, and adds up the
        cotangents of repeated indices into one fresh output.
    """
    x = as_tensor(x)
    index = _indices("gather", indices, x.device)
    at = axis_of("gather", axis, x.ndim)
    check_known("gather", indices, x, at)
    x = leading_part("gather", x, index.shape, at)
    return HANDLES.take_along_axis(x, index, at)  # type: ignore[no-any-return]


def leading_part(
    operation: str, x: EagerTensor, shape: tuple[int, ...], axis: int
) -> EagerTensor:
    """`x` cut to `shape` along all axes but one: a view, itself where nothing is cut.

    Raises:
        ShapeError: another number of axes, or `shape` is longer somewhere.
    """
    fits = len(shape) == x.ndim and all(
        k == axis or a <= b for k, (a, b) in enumerate(zip(shape, x.shape, strict=True))
    )
    if not fits:
        raise ShapeError(
            operation=operation,
            argument="indices",
            found=f"shape {shape} for a value of shape {x.shape}",
            fix=f"give them as many axes, and at most those lengths but along {axis}",
        )
    want = tuple(
        b if k == axis else a
        for k, (a, b) in enumerate(zip(shape, x.shape, strict=True))
    )
    return x if want == x.shape else HANDLES.slice(x, whole_key(want))


@named("x[key]")
def getitem(x: Any, key: Any, /) -> EagerTensor:
    """`x[key]` with NumPy's meaning.

    Args:
        x: a value.
        key: one of these, or a tuple of them: an integer, a slice, `...`, `None` (a
            new axis), integers of any shape (tensor, array or list), or a boolean mask,
            which stands for the places where it holds. A 0-d integer tensor is an
            integer.

    Raises:
        IndexRangeError: an index is out of range (names axis, index, size), or there
            are more indices than axes.
        ShapeError: a mask has another shape than the axes it stands for, or index
            arrays do not broadcast.
        DTypeError: a key of another kind.

    Cost: basic keys give a view. Index arrays give one fresh output, and one more for
        several of them together; index data from outside comes in by `Transfer`. A mask
        is read where it is (waits for it) and makes one more output, its indices.
    """
    value = as_tensor(x)
    entries, basic, arrays = parsed(value, key)
    whole = basic == whole_key(value.shape)
    out: EagerTensor = value if arrays and whole else HANDLES.slice(value, basic)
    return _gathered(out, entries, arrays) if arrays else out


def parsed(x: EagerTensor, key: Any) -> tuple[list[Any], Key, list[int]]:
    """A key's entries, its basic part, and the axes behind that which arrays index."""
    entries = _expanded(x, list(key) if isinstance(key, tuple) else [key])
    return entries, *_parted(x, entries)


def whole_key(shape: tuple[int, ...]) -> Key:
    """The key that takes all of a value."""
    return tuple([span(0, n, 1) for n in shape])


# ---- reading a key -------------------------------------------------------------------


def _indices(operation: str, indices: Any, device: Any) -> EagerTensor:
    if isinstance(indices, list | tuple) and not len(indices):
        return asarray(np.empty(0, np.int64), device=device)
    found = as_tensor(indices, device)
    if found.dtype.kind not in "iu":
        raise DTypeError(
            operation=operation,
            argument="indices",
            found=f"indices of dtype {found.dtype}",
            fix="pass integers",
        )
    return found


def _entry(entry: Any) -> Any:
    """One entry as an int, slice, `None`, `...`, mask or index array."""
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return entry
    if isinstance(entry, bool | np.bool):
        return np.asarray(entry)
    if isinstance(entry, list):
        entry = (
            outside(entry, None, "x[key]", "key") if entry else np.empty(0, np.int64)
        )
    if isinstance(entry, EagerTensor | np.ndarray):
        kind = entry.dtype.kind
        if kind == "b" or (kind in "iu" and (entry.ndim or _is_operand(entry))):
            return entry
    try:
        return operator.index(entry)
    except TypeError:
        raise DTypeError(
            operation="x[key]",
            argument="key",
            found=f"an index of type `{type(entry).__name__}`"
            + (f" and dtype {entry.dtype}" if hasattr(entry, "dtype") else ""),
            fix="use integers, slices, `...`, `None`, integer arrays or masks",
        ) from None


def _is_operand(entry: Any) -> bool:
    """A traced integer has no value to be an int, and one that a region computes is
    computed again: they stay operands."""
    return is_traced(entry) or (isinstance(entry, EagerTensor) and entry.is_tracked)


def _expanded(x: EagerTensor, key: list[Any]) -> list[Any]:
    """Entries with masks replaced by index arrays and `...` by full slices."""
    entries: list[Any] = []
    used = 0
    dots = None
    for given in key:
        entry = _entry(given)
        if entry is Ellipsis:
            if dots is not None:
                raise InvalidArgumentError(
                    operation="x[key]",
                    argument="key",
                    found="`...` twice",
                    fix="use it once",
                )
            dots = len(entries)
            continue
        if _is_mask(entry):
            used += entry.ndim
        elif entry is not None:
            used += 1
        entries.append(entry)
    if used > x.ndim:
        raise IndexRangeError(
            operation="x[key]",
            argument="key",
            found=f"{used} indices for a value with {x.ndim} axes",
            fix="use at most one index for each axis",
        )
    at = len(entries) if dots is None else dots
    entries[at:at] = [slice(None)] * (x.ndim - used)
    # Axes that masks stand for are known only now.
    out: list[Any] = []
    axis = 0
    for entry in entries:
        if _is_mask(entry):
            out += _unmasked(x, entry, axis)
            axis += entry.ndim
        else:
            out.append(entry)
            axis += entry is not None
    return out


def _is_mask(entry: Any) -> bool:
    return isinstance(entry, EagerTensor | np.ndarray) and entry.dtype.kind == "b"


def _is_array(entry: Any) -> bool:
    return isinstance(entry, EagerTensor | np.ndarray | _Row)


class _Row:
    """Row `row` of the places of a mask; `None` stands for a new axis to index."""

    __slots__ = ("places", "row")

    def __init__(self, places: EagerTensor, row: int | None) -> None:
        self.places, self.row = places, row


def _unmasked(x: EagerTensor, mask: Any, axis: int) -> list[Any]:
    want = x.shape[axis : axis + mask.ndim]
    if mask.shape != want:
        raise ShapeError(
            operation="x[key]",
            argument="key",
            found=f"a mask of shape {mask.shape} for axes of shape {want}",
            fix="give the mask the shape of the axes that it stands for",
        )
    if mask.ndim == 0:  # a new axis, of length 1 or 0
        none = np.zeros((1, int(bool(mask))), np.int64)
        return [_Row(asarray(none, device=x.device), None)]
    if is_traced(mask):
        error = traced_error("x[key]", mask._record.array)
        if isinstance(error, TracedConversionError):
            error = TracedConversionError(
                operation="x[key]",
                argument="key",
                found=f"a mask that is {error.found}",
                fix="keep the shape: `ta.where(mask, x, 0)`",
            )
        raise error
    if isinstance(mask, EagerTensor):
        count = int(np.count_nonzero(host_elements(mask._record, "x[key]")))
        places = HANDLES.mask_indices(mask, count)
    else:
        places = asarray(np.stack(np.nonzero(mask)), device=x.device)
    return [_Row(places, k) for k in range(mask.ndim)]


# ---- views first, then arrays --------------------------------------------------------


def _parted(x: EagerTensor, entries: list[Any]) -> tuple[Key, list[int]]:
    """The basic part of the key, and the axes after it that index arrays stand for."""
    key: list[Any] = []
    arrays: list[int] = []
    axis = kept = 0
    for entry in entries:
        if entry is None:
            key.append(None)
            kept += 1
            continue
        if _is_array(entry):
            arrays.append(kept)
            kept += 1
            if isinstance(entry, _Row) and entry.row is None:
                key.append(None)
                continue
            key.append(span(0, x.shape[axis], 1))
        elif isinstance(entry, slice):
            start, stop, step = _bounds(entry, x.shape[axis])
            key.append(span(start, len(range(start, stop, step)), step))
            kept += 1
        else:
            key.append(_in_range(entry, axis, x.shape[axis]))
        axis += 1
    return tuple(key), arrays


def _bounds(entry: slice, size: int) -> tuple[int, int, int]:
    try:
        return entry.indices(size)
    except TracedConversionError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            operation="x[key]",
            argument="key",
            found=f"{entry} ({error})",
            fix="use integers, and a step other than zero",
        ) from None


def _in_range(index: int, axis: int, size: int) -> int:
    if not -size <= index < size:
        raise IndexRangeError(
            operation="x[key]",
            argument="key",
            found=f"index {shown(index)} for axis {axis}, which has size {size}",
            fix=f"use an index from {-size} to {size - 1}"
            if size
            else "the axis is empty",
        )
    return index + size if index < 0 else index


def _gathered(x: EagerTensor, entries: list[Any], axes: list[int]) -> EagerTensor:
    found = [e for e in entries if _is_array(e)]
    for entry, axis in zip(found, axes, strict=True):
        if isinstance(entry, np.ndarray):
            check_known("x[key]", entry, x, axis)
    at = _position(entries)
    if len(found) == 1 and at == axes[0]:
        return HANDLES.take(x, index_tensor(found[0], x.device), at)  # type: ignore[no-any-return]
    return HANDLES.gather(x, _stacked(found, x.device), tuple(axes), at)  # type: ignore[no-any-return]


def _stacked(found: list[Any], device: Any) -> EagerTensor:
    """Index arrays, broadcast together, as one operand."""
    if len(found) == 1:
        return expand_dims(index_tensor(found[0], device), axis=0)
    places = {id(e.places) if isinstance(e, _Row) else None for e in found}
    first = found[0]
    if isinstance(first, _Row) and len(places) == 1:
        whole = first.places
        if len(found) == whole.shape[0]:
            return whole
    if all(isinstance(e, np.ndarray) for e in found):
        shape = broadcast_shapes("x[key]", *[e.shape for e in found])
        columns = [np.broadcast_to(e, shape).astype(_INT64) for e in found]
        return asarray(np.stack(columns), device=device)
    rows = [index_tensor(e, device) for e in found]
    rows = [r if r.dtype == _INT64 else HANDLES.astype(r, _INT64) for r in rows]
    shape = broadcast_shapes("x[key]", *[r.shape for r in rows])
    return stack([broadcast_to(r, shape) for r in rows])


def index_tensor(entry: Any, device: Any) -> EagerTensor:
    """An index array of a key as a tensor."""
    if isinstance(entry, _Row):
        key = (entry.row or 0, span(0, entry.places.shape[1], 1))
        return HANDLES.slice(entry.places, key)  # type: ignore[no-any-return]
    return as_tensor(entry, device)


def _position(entries: list[Any]) -> int:
    """Where the axes of index arrays stand in the result: in place of the arrays if
    these (and integers) are neighbours in the key, else in front."""
    fancy = [
        k for k, e in enumerate(entries) if not (e is None or isinstance(e, slice))
    ]
    if fancy[-1] - fancy[0] + 1 != len(fancy):
        return 0
    return fancy[0]
