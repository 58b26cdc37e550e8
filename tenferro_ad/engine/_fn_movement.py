"""Shape, order and arrangement of elements: array API manipulation functions.

Functions whose `Cost:` says "view" give a second descriptor on the bytes of their
argument: they allocate and copy nothing, forwards and in their derivatives. The others
write one fresh output. Only `reshape` can copy, and records it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgumentError, ShapeError, named
from ..ops import broadcast_shapes as common_shape
from ..ops import reshaped, span
from ..runtime import layout_of
from ._axes import Axes, axes_of, axis_of, int_of, shape_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor, tensors

__all__ = [
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "diag",
    "diagonal",
    "expand_dims",
    "flip",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "reshape",
    "roll",
    "squeeze",
    "swapaxes",
    "tril",
    "triu",
]


# ---- shape ---------------------------------------------------------------------------


def reshape(
    x: Any, /, shape: int | Sequence[int], *, copy: bool | None = None
) -> EagerTensor:
    """The same elements, in row-major order, under another shape.

    Args:
        x: a value.
        shape: the new lengths; one may be -1 and follows from the others.
        copy: None copies only where the strides of `x` cannot express the result, False
            never, True always.

    Raises:
        ShapeError: another number of elements.
        InvalidArgumentError: `copy=False` where a copy is needed.

    Cost: a view; one recorded `ExplicitDuplicate` where a copy is made.
    """
    x = as_tensor(x)
    given = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    lengths = tuple(int_of("reshape", "shape", n) for n in given)
    if -1 in lengths:
        lengths = _inferred(lengths, x)
    lengths = shape_of("reshape", lengths)
    if copy:
        x = HANDLES.duplicate(x)
    elif copy is False and _needs_copy(x, lengths):
        raise InvalidArgumentError(
            operation="reshape",
            argument="copy",
            found=f"`copy=False`, but the strides of this value of shape {x.shape} "
            f"cannot express {lengths}",
            fix="pass `copy=None` to let one duplicate be made and recorded",
        )
    return HANDLES.reshape(x, lengths)  # type: ignore[no-any-return]


def _needs_copy(x: EagerTensor, shape: tuple[int, ...]) -> bool:
    layout = layout_of(x.aval, x._record.array.strides)
    return x.size == math.prod(shape) and reshaped(layout, shape) is None


def _inferred(lengths: tuple[int, ...], x: EagerTensor) -> tuple[int, ...]:
    known = math.prod(n for n in lengths if n != -1)
    if lengths.count(-1) > 1 or known <= 0 or x.size % known:
        raise ShapeError(
            operation="reshape",
            argument="shape",
            found=f"{lengths} for a value of shape {x.shape}",
            fix="leave one length to be found (-1), and give others whose product "
            f"divides {x.size}",
        )
    return tuple(x.size // known if n == -1 else n for n in lengths)


def expand_dims(x: Any, /, axis: Axes = 0) -> EagerTensor:
    """New axes of length 1, at the positions `axis` of the result.

    Raises:
        IndexRangeError: a position is out of range.
        InvalidArgumentError: a position occurs twice.

    Cost: a view, and so is its derivative.
    """
    x = as_tensor(x)
    n = len(axis) if isinstance(axis, tuple | list | range) else 1
    at = axes_of("expand_dims", axis, x.ndim + n)
    lengths = iter(x.shape)
    key = tuple(
        None if k in at else span(0, next(lengths), 1) for k in range(x.ndim + n)
    )
    return HANDLES.slice(x, key)  # type: ignore[no-any-return]


def squeeze(x: Any, /, axis: Axes | None = None) -> EagerTensor:
    """Without the axes `axis`, which have length 1 (all such axes by default).

    Raises:
        ShapeError: an axis is longer.
        IndexRangeError: an axis is out of range.

    Cost: a view, and so is its derivative.
    """
    x = as_tensor(x)
    if axis is None:
        at = tuple(k for k, n in enumerate(x.shape) if n == 1)
    else:
        at = axes_of("squeeze", axis, x.ndim)
    for k in at:
        if x.shape[k] != 1:
            raise ShapeError(
                operation="squeeze",
                argument="axis",
                found=f"axis {k} of length {x.shape[k]} in shape {x.shape}",
                fix="squeeze axes of length 1; select from longer ones (`x[..., 0]`)",
            )
    key = tuple(0 if k in at else span(0, n, 1) for k, n in enumerate(x.shape))
    return HANDLES.slice(x, key)  # type: ignore[no-any-return]


# ---- order of axes -------------------------------------------------------------------


def permute_dims(x: Any, /, axes: Sequence[int]) -> EagerTensor:
    """Axes in the order `axes`.

    Raises:
        ShapeError: `axes` does not name every axis.
        IndexRangeError: an axis is out of range.

    Cost: a view, and so is its derivative.
    """
    x = as_tensor(x)
    order = axes_of("permute_dims", axes, x.ndim, "axes")
    if len(order) != x.ndim:
        raise ShapeError(
            operation="permute_dims",
            argument="axes",
            found=f"{axes} for a value of shape {x.shape}",
            fix=f"name each of the {x.ndim} axes once",
        )
    return HANDLES.permute_dims(x, order)  # type: ignore[no-any-return]


def matrix_transpose(x: Any, /) -> EagerTensor:
    """The last two axes exchanged.

    Raises:
        ShapeError: fewer than two axes.

    Cost: a view, and so is its derivative.
    """
    x = as_tensor(x)
    if x.ndim < 2:
        raise ShapeError(
            operation="matrix_transpose",
            argument="x",
            found=f"a value of shape {x.shape}",
            fix="pass a matrix or a stack of matrices",
        )
    return swapaxes(x, -1, -2)


def swapaxes(x: Any, /, axis1: int, axis2: int) -> EagerTensor:
    """Two axes exchanged.

    Raises:
        IndexRangeError: there is no such axis.
        DTypeError: an axis is no integer.

    Cost: a view, and so is its derivative.
    """
    x = as_tensor(x)
    a = axis_of("swapaxes", axis1, x.ndim, "axis1")
    b = axis_of("swapaxes", axis2, x.ndim, "axis2")
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    return HANDLES.permute_dims(x, tuple(order))  # type: ignore[no-any-return]


def moveaxis(x: Any, source: Axes, destination: Axes, /) -> EagerTensor:
    """Axes `source` moved to the positions `destination`; the others keep their order.

    Raises:
        InvalidArgumentError: different numbers of axes, or an axis named twice.

    Cost: a view, and so is its derivative.
    """
    x = as_tensor(x)
    origin = axes_of("moveaxis", source, x.ndim, "source")
    target = axes_of("moveaxis", destination, x.ndim, "destination")
    if len(origin) != len(target):
        raise InvalidArgumentError(
            operation="moveaxis",
            argument="destination",
            found=f"{len(target)} positions for {len(origin)} axes",
            fix="give one position for each axis",
        )
    order = [k for k in range(x.ndim) if k not in origin]
    for to, k in sorted(zip(target, origin, strict=True)):
        order.insert(to, k)
    return HANDLES.permute_dims(x, tuple(order))  # type: ignore[no-any-return]


# ---- broadcasting --------------------------------------------------------------------


def broadcast_to(x: Any, /, shape: int | Sequence[int]) -> EagerTensor:
    """`x` repeated along new leading axes and axes of length 1.

    Raises:
        ShapeError: the shape does not follow from that of `x`.

    Cost: a view; the derivative sums, one fresh output.
    """
    found = shape_of("broadcast_to", shape)
    return HANDLES.broadcast_to(as_tensor(x), found)  # type: ignore[no-any-return]


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that values of these shapes broadcast to; `()` for none.

    Raises:
        ShapeError: they have no common shape.
        DTypeError: a length is no integer. InvalidArgumentError: one is negative.

    Cost: no value is touched.
    """
    given = [shape_of("broadcast_shapes", s, "shapes") for s in shapes]
    return common_shape("broadcast_shapes", *given)


def broadcast_arrays(*arrays: Any) -> list[EagerTensor]:
    """All values broadcast to their common shape.

    Raises:
        ShapeError: they have none.

    Cost: views.
    """
    xs = tensors(*arrays)
    shape = common_shape("broadcast_arrays", *[x.shape for x in xs])
    return [broadcast_to(x, shape) for x in xs]


# ---- order of elements ---------------------------------------------------------------


def flip(x: Any, /, *, axis: Axes | None = None) -> EagerTensor:
    """Elements in reverse order along `axis` (along every axis by default).

    Raises:
        IndexRangeError: there is no such axis.
        DTypeError: an axis is no integer.

    Cost: a view, and so is its derivative.
    """
    x = as_tensor(x)
    at = range(x.ndim) if axis is None else axes_of("flip", axis, x.ndim)
    key = tuple(
        span(n - 1, n, -1) if k in at else span(0, n, 1) for k, n in enumerate(x.shape)
    )
    return HANDLES.slice(x, key)  # type: ignore[no-any-return]


def roll(x: Any, /, shift: Axes, *, axis: Axes | None = None) -> EagerTensor:
    """Elements moved by `shift` places along `axis`; those that leave come in again.

    Args:
        x: a value.
        shift: places, one for each axis, or one for all of them.
        axis: where to roll; by default over all elements in row-major order. An axis
            may occur several times: its shifts add up.

    Raises:
        InvalidArgumentError: different numbers of shifts and axes.

    Cost: one fresh output. Without `axis`, as `reshape` to one axis and back.
    """
    x = as_tensor(x)
    if axis is None:
        flat = reshape(x, (x.size,))
        return reshape(roll(flat, int_of("roll", "shift", shift), axis=0), x.shape)
    given = tuple(axis) if isinstance(axis, tuple | list | range) else (axis,)
    at = [axis_of("roll", a, x.ndim) for a in given]
    shifts = tuple(shift) if isinstance(shift, tuple | list) else (shift,) * len(at)
    if len(shifts) != len(at):
        raise InvalidArgumentError(
            operation="roll",
            argument="shift",
            found=f"{len(shifts)} shifts for {len(at)} axes",
            fix="give one shift for each axis, or a single one",
        )
    total = [0] * x.ndim
    for k, places in zip(at, shifts, strict=True):
        if x.shape[k]:
            total[k] = (total[k] + int_of("roll", "shift", places)) % x.shape[k]
    return HANDLES.roll(x, tuple(total))  # type: ignore[no-any-return]


# ---- triangles and diagonals ---------------------------------------------------------


def _matrix(operation: str, x: EagerTensor) -> EagerTensor:
    if x.ndim < 2:
        raise ShapeError(
            operation=operation,
            argument="x",
            found=f"a value of shape {x.shape}",
            fix="pass a matrix or a stack of matrices",
        )
    return x


def tril(x: Any, /, *, k: int = 0) -> EagerTensor:
    """The elements on and below diagonal `k` of each matrix, zero elsewhere.

    Raises:
        ShapeError: not a matrix or a stack of matrices.
        DTypeError: `k` is no integer.

    Cost: one fresh output, and a mask of one matrix as scratch.
    """
    x = _matrix("tril", as_tensor(x))
    return HANDLES.tril(x, int_of("tril", "k", k))  # type: ignore[no-any-return]


def triu(x: Any, /, *, k: int = 0) -> EagerTensor:
    """The elements on and above diagonal `k` of each matrix, zero elsewhere.

    Raises:
        ShapeError: not a matrix or a stack of matrices.
        DTypeError: `k` is no integer.

    Cost: one fresh output, and a mask of one matrix as scratch.
    """
    x = _matrix("triu", as_tensor(x))
    return HANDLES.triu(x, int_of("triu", "k", k))  # type: ignore[no-any-return]


@named(axis="axis1")
def diagonal(
    x: Any, /, *, offset: int = 0, axis1: int = 0, axis2: int = 1
) -> EagerTensor:
    """The elements `x[i, i + offset]` along two axes; the diagonal is the last axis.

    Raises:
        ShapeError: fewer than two axes.
        InvalidArgumentError: the two axes are the same.

    Cost: a view; the derivative places them into zeros, one fresh output.
    """
    x = _matrix("diagonal", as_tensor(x))
    a, b = axes_of("diagonal", (axis1, axis2), x.ndim)
    return HANDLES.diagonal(  # type: ignore[no-any-return]
        x, int_of("diagonal", "offset", offset), a, b
    )


def diag(x: Any, /, *, k: int = 0) -> EagerTensor:
    """Diagonal `k` of a matrix, or the matrix that has a given diagonal `k`.

    Raises:
        ShapeError: neither 1-d nor 2-d.

    Cost: a view of a matrix; one fresh output for a diagonal.
    """
    x = as_tensor(x)
    offset = int_of("diag", "k", k)
    if x.ndim == 2:
        return diagonal(x, offset=offset)
    if x.ndim != 1:
        raise ShapeError(
            operation="diag",
            argument="x",
            found=f"a value of shape {x.shape}",
            fix="pass a vector or a matrix; for stacks use `diagonal`",
        )
    n = x.size + abs(offset)
    return HANDLES.place_diagonal(x, (n, n), offset, 0, 1)  # type: ignore[no-any-return]
