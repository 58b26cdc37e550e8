"""Public norms, traces and cross products of linear algebra.

Norms have slope 0 where they are 0; extrema share the slope among ties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ..errors import InvalidArgumentError, ShapeError, named
from ._axes import axes_of, axis_of, int_of, reduced_axes
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._fn_linalg import as_matrices, svdvals
from ._fn_solve import inv
from ._make import as_tensor, cast, tensors
from ._numbers import real_of

__all__ = [
    "cond",
    "cross",
    "last_diagonal",
    "matrix_norm",
    "matrix_rank",
    "norm",
    "trace",
    "vector_norm",
]

F = HANDLES
Order = float | Literal["fro", "nuc"]


def _floating(x: Any) -> EagerTensor:
    x = as_tensor(x)
    if x.dtype.kind in "biu":
        x = F.astype(x, np.dtype(np.float64))
    return x  # type: ignore[no-any-return]


# ---- norms ---------------------------------------------------------------------------


def vector_norm(
    x: Any,
    /,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    ord: float = 2,
) -> EagerTensor:
    """The norm of order `ord` of the elements along `axis`, all of them by default.

    Args:
        x: the elements.
        axis: an axis, several, or None.
        keepdims: keep reduced axes with length 1.
        ord: a number; inf is the largest modulus, -inf the smallest, 0 counts elements
            that are not 0.

    Raises:
        IndexRangeError, InvalidArgumentError: bad axes; no elements for an extremum.

    Cost: one allocation of the result's size for finite positive orders, which keep `x`
        and the result; moduli besides for the others.
    """
    x = _floating(x)
    axes = reduced_axes("vector_norm", axis, x.ndim)
    keep, order = bool(keepdims), real_of("vector_norm", "ord", ord)
    if order == math.inf:
        return F.max(F.abs(x), axes, keep)  # type: ignore[no-any-return]
    if order == -math.inf:
        return F.min(F.abs(x), axes, keep)  # type: ignore[no-any-return]
    if order == 0:
        count = F.count_nonzero(x, axes, keep)
        return F.astype(count, np.dtype(x.dtype.char.lower()))  # type: ignore[no-any-return]
    if order == 1:
        return F.sum(F.abs(x), axes, keep)  # type: ignore[no-any-return]
    if order < 0:
        powers = F.pow(F.abs(x), order)
        return F.pow(F.sum(powers, axes, keep), 1 / order)  # type: ignore[no-any-return]
    return F.vector_norm(x, order, axes, keep)  # type: ignore[no-any-return]


def matrix_norm(
    x: Any, /, *, keepdims: bool = False, ord: Order | None = "fro"
) -> EagerTensor:
    """A norm of the matrices in the last two axes.

    Args:
        x: shape `(..., M, N)`.
        keepdims: keep the last two axes with length 1.
        ord: "fro" (root of the sum of squares), "nuc" (sum of singular values), 2 and
            -2 (largest and smallest of them), 1, -1, inf, -inf (largest or smallest sum
            of moduli of a column or row).

    Raises:
        ShapeError: fewer than two axes. InvalidArgumentError: another order.

    Cost: "nuc", 2 and -2 one singular value decomposition, kept; else as `vector_norm`.
    """
    x = as_matrices("matrix_norm", x)
    n = x.ndim
    match ord:
        case "fro" | None:
            return vector_norm(x, axis=(n - 2, n - 1), keepdims=keepdims)
        case "nuc":
            found = F.sum(svdvals(x), (n - 2,), False)
        case 2:
            found = F.max(svdvals(x), (n - 2,), False)
        case -2:
            found = F.min(svdvals(x), (n - 2,), False)
        case int() | float() if abs(ord) in (1, math.inf):
            sums = F.sum(F.abs(x), (n - 2 if abs(ord) == 1 else n - 1,), False)
            found = (F.max if ord > 0 else F.min)(sums, (n - 2,), False)
        case _:
            raise InvalidArgumentError(
                operation="matrix_norm",
                argument="ord",
                found=f"{ord!r}",
                fix='use "fro", "nuc", 1, -1, 2, -2, inf or -inf',
            )
    return F.reshape(found, (*found.shape, 1, 1)) if keepdims else found  # type: ignore[no-any-return]


def norm(
    x: Any,
    /,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    ord: Order | None = None,
) -> EagerTensor:
    """A vector norm along one axis, or a matrix norm of two, as `numpy.linalg.norm`.

    Without `ord` it is the root of the sum of squares along `axis` (all axes for None).

    Raises: as `vector_norm` and `matrix_norm`; ShapeError: another number of axes.

    Cost: that of `vector_norm` or `matrix_norm`.
    """
    x = _floating(x)
    if ord is None:
        return vector_norm(x, axis=axis, keepdims=keepdims)
    axes = tuple(range(x.ndim)) if axis is None else axes_of("norm", axis, x.ndim)
    if len(axes) == 1 and not isinstance(ord, str):
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=ord)
    if len(axes) != 2:
        raise ShapeError(
            operation="norm",
            argument="axis",
            found=f"{len(axes)} axes for order {ord!r}",
            fix="name one axis for a vector norm, two for a matrix norm",
        )
    rest = tuple(k for k in range(x.ndim) if k not in axes)
    found = matrix_norm(F.permute_dims(x, (*rest, *axes)), ord=ord)
    if not keepdims:
        return found
    shape = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
    return F.reshape(found, shape)  # type: ignore[no-any-return]


def cond(x: Any, /, *, ord: Order | None = None) -> EagerTensor:
    """The condition number: for `None`, 2 and -2 a ratio of singular values, else the
    norm of the matrix times that of its inverse.

    Raises:
        ShapeError: not matrices, or not square where the inverse is taken.

    Cost: one decomposition, kept.
    """
    if ord is None or ord in (2, -2):
        s = svdvals(as_matrices("cond", x))
        last = (s.ndim - 1,)
        large, small = F.max(s, last, False), F.min(s, last, False)
        return F.div(small, large) if ord == -2 else F.div(large, small)  # type: ignore[no-any-return]
    x = as_matrices("cond", x, square=True)
    return F.mul(matrix_norm(x, ord=ord), matrix_norm(inv(x), ord=ord))  # type: ignore[no-any-return]


def matrix_rank(x: Any, /, *, rtol: float | None = None) -> EagerTensor:
    """How many singular values exceed `rtol` times the largest, as int64.

    Raises:
        ShapeError: not a matrix or a stack of matrices.
        InvalidArgumentError: the iteration does not converge: NaN or infinity.

    Cost: one singular value decomposition; never tracked.
    """
    x = as_matrices("matrix_rank", x)
    if rtol is None:
        rtol = max(x.shape[-2:]) * float(np.finfo(x.dtype).eps)
    rtol = real_of("matrix_rank", "rtol", rtol)
    s = svdvals(F.stop_gradient(x))
    last = (s.ndim - 1,)
    if not s.shape[-1]:
        return F.count_nonzero(s, last, False)  # type: ignore[no-any-return]
    above = F.greater(s, F.mul(F.max(s, last, True), rtol))
    return F.count_nonzero(above, last, False)  # type: ignore[no-any-return]


# ---- diagonals and cross products ----------------------------------------------------


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> EagerTensor:
    """The sum along diagonal `offset` of the last two axes.

    Raises:
        ShapeError: fewer than two axes.

    Cost: one allocation of the result's size; retains nothing.
    """
    x = cast("trace", x, dtype)
    diagonal = _diagonal("trace", x, offset)
    return F.sum(diagonal, (x.ndim - 2,), False)  # type: ignore[no-any-return]


@named("diagonal")
def last_diagonal(x: Any, /, *, offset: int = 0) -> EagerTensor:
    """Diagonal `offset` of the last two axes (`linalg.diagonal` of the standard).

    Raises:
        ShapeError: fewer than two axes.

    Cost: a view; the derivative places it into zeros, one fresh output.
    """
    return _diagonal("diagonal", x, offset)


def _diagonal(operation: str, x: Any, offset: int) -> EagerTensor:
    x = as_tensor(x)
    if x.ndim < 2:
        raise ShapeError(
            operation=operation,
            argument="x",
            found=f"shape {x.shape}",
            fix="pass a matrix or a stack of matrices",
        )
    k = int_of(operation, "offset", offset)
    return F.diagonal(x, k, x.ndim - 2, x.ndim - 1)  # type: ignore[no-any-return]


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> EagerTensor:
    """The cross product of vectors of length 3 along `axis`; other axes broadcast.

    Raises:
        ShapeError: another length.

    Cost: four rolled operands, two products and their difference.
    """
    x1, x2 = tensors(x1, x2)
    k = int_of("cross", "axis", axis)
    for name, x in (("x1", x1), ("x2", x2)):
        if x.shape[axis_of("cross", k, x.ndim)] != 3:
            raise ShapeError(
                operation="cross",
                argument=name,
                found=f"shape {x.shape}, with axis {axis} not of length 3",
                fix="name the axis of the vectors with `axis`",
            )

    def rolled(x: EagerTensor, by: int) -> EagerTensor:
        shifts = [0] * x.ndim
        shifts[k] = by
        return F.roll(x, tuple(shifts))  # type: ignore[no-any-return]

    ahead = F.mul(rolled(x1, 2), rolled(x2, 1))
    return F.sub(ahead, F.mul(rolled(x1, 1), rolled(x2, 2)))  # type: ignore[no-any-return]
