"""Products of matrices and vectors, and contractions over pairs of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgumentError, ShapeError, named
from ..ops import OPS
from ._axes import axes_of, axis_of, int_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import several, tensors

__all__ = ["kron", "matmul", "multi_dot", "outer", "tensordot", "vecdot"]

F = HANDLES

_matmul = HANDLES[OPS["matmul"]]


@named(x="x1", y="x2")
def matmul(x1: Any, x2: Any, /) -> EagerTensor:
    """Matrix product over stacks of matrices; 1-d operands are rows and columns.

    Args:
        x1: shape `(..., M, K)` or `(K,)`.
        x2: shape `(..., K, N)` or `(K,)`; leading axes broadcast.

    Returns:
        Shape `(..., M, N)`, without the axes of 1-d operands.

    Raises:
        ShapeError: an operand is 0-d, or the inner axes differ.

    Cost: one allocation, one GEMM for each matrix; keeps both operands if both are
        tracked, else the untracked one. Backward makes no transposed copies.
    """
    return _matmul(x1, x2)  # type: ignore[no-any-return]


def outer(x1: Any, x2: Any, /) -> EagerTensor:
    """All products of elements of two vectors, as a matrix.

    Raises:
        ShapeError: not 1-d.

    Cost: one allocation; keeps the operands that the tracked ones need.
    """
    x1, x2 = tensors(x1, x2)
    for name, x in (("x1", x1), ("x2", x2)):
        if x.ndim != 1:
            raise ShapeError(
                operation="outer",
                argument=name,
                found=f"shape {x.shape}",
                fix="pass vectors, or use `tensordot(x1, x2, axes=0)`",
            )
    return F.mul(F.reshape(x1, (*x1.shape, 1)), x2)  # type: ignore[no-any-return]


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> EagerTensor:
    """The sum of `conj(x1) * x2` along `axis`, a negative number counting from the end.

    Raises:
        IndexRangeError: `axis` is out of range of an operand.

    Cost: one product of the broadcast size, and its sum.
    """
    x1, x2 = tensors(x1, x2)
    k = int_of("vecdot", "axis", axis)
    for x in (x1, x2):
        axis_of("vecdot", k, x.ndim)
    bar = F.conj(x1) if x1.dtype.kind == "c" else x1
    product = F.mul(bar, x2)
    return F.sum(product, (axis_of("vecdot", k, product.ndim),), False)  # type: ignore[no-any-return]


@named(axis="axes", x="x1", y="x2")
def tensordot(
    x1: Any, x2: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> EagerTensor:
    """The sum of products over pairs of axes: the last `axes` of `x1` with the first of
    `x2`, or those named by two sequences.

    Raises:
        ShapeError: paired axes differ. IndexRangeError: there is no such axis.
        InvalidArgumentError: a negative number, or something else than a pair.

    Cost: one matrix product; an operand whose strides do not allow the matrix form is
        written out once.
    """
    x1, x2 = tensors(x1, x2)
    if isinstance(axes, tuple | list):
        if len(axes) != 2:
            raise InvalidArgumentError(
                operation="tensordot",
                argument="axes",
                found=f"{len(axes)} sequences of axes",
                fix="give the axes of `x1` and those of `x2`, or a number of them",
            )
        one = axes_of("tensordot", axes[0], x1.ndim)
        two = axes_of("tensordot", axes[1], x2.ndim)
    else:
        count = int_of("tensordot", "axes", axes, 0)
        one = axes_of("tensordot", tuple(range(-count, 0)), x1.ndim)
        two = axes_of("tensordot", tuple(range(count)), x2.ndim)
    sizes = [x1.shape[k] for k in one]
    if sizes != [x2.shape[k] for k in two]:
        raise ShapeError(
            operation="tensordot",
            argument="axes",
            found=f"axes {one} of shape {x1.shape} and {two} of shape {x2.shape}",
            fix="pair axes of equal length",
        )
    rest1 = tuple(k for k in range(x1.ndim) if k not in one)
    rest2 = tuple(k for k in range(x2.ndim) if k not in two)
    n = math.prod(sizes)
    shape = (*(x1.shape[k] for k in rest1), *(x2.shape[k] for k in rest2))
    rows = math.prod(x1.shape[k] for k in rest1)
    cols = math.prod(x2.shape[k] for k in rest2)
    a = F.regroup(F.permute_dims(x1, (*rest1, *one)), (rows, n))
    b = F.regroup(F.permute_dims(x2, (*two, *rest2)), (n, cols))
    return F.reshape(F.matmul(a, b), shape)  # type: ignore[no-any-return]


def kron(x1: Any, x2: Any, /) -> EagerTensor:
    """The Kronecker product: blocks of `x2`, each times one element of `x1`.

    Raises:
        DTypeError: not made of numbers.

    Cost: one allocation; keeps the operands that the tracked ones need.
    """
    x1, x2 = tensors(x1, x2)
    n = max(x1.ndim, x2.ndim)
    one = (1,) * (n - x1.ndim) + x1.shape
    two = (1,) * (n - x2.ndim) + x2.shape
    wide = tuple(d for k in one for d in (k, 1))
    fine = tuple(d for k in two for d in (1, k))
    product = F.mul(F.regroup(x1, wide), F.regroup(x2, fine))
    shape = tuple(a * b for a, b in zip(one, two, strict=True))
    return F.reshape(product, shape)  # type: ignore[no-any-return]


def multi_dot(arrays: Sequence[Any], /) -> EagerTensor:
    """The product of several matrices in the order of multiplication that is cheapest.

    Args:
        arrays: at least two; the first and the last may be vectors.

    Raises:
        InvalidArgumentError: fewer than two. ShapeError: they do not chain.

    Source: T. Cormen and others, "Introduction to Algorithms", matrix chains.

    Cost: one matrix product fewer than operands; keeps what their derivatives need.
    """
    xs = several("multi_dot", arrays, 2)
    for k, x in enumerate(xs):
        if x.ndim != 2 and not (x.ndim == 1 and k in (0, len(xs) - 1)):
            raise ShapeError(
                operation="multi_dot",
                argument="arrays",
                found=f"shape {x.shape} at position {k}",
                fix="pass matrices; the first and the last may be vectors",
            )
    sizes = [x.shape[0] if x.ndim == 2 else 1 for x in xs[:1]]
    sizes += [x.shape[0] for x in xs[1:]]
    sizes.append(xs[-1].shape[1] if xs[-1].ndim == 2 else 1)
    cuts = _chain(sizes)

    def product(i: int, j: int) -> EagerTensor:
        if i == j:
            return xs[i]
        cut = cuts[i, j]
        return F.matmul(product(i, cut), product(cut + 1, j))  # type: ignore[no-any-return]

    return product(0, len(xs) - 1)


def _chain(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to cut each part of a chain of matrices."""
    n = len(sizes) - 1
    cost = {(i, i): 0 for i in range(n)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i, j], cuts[i, j] = min(
                (
                    cost[i, k]
                    + cost[k + 1, j]
                    + sizes[i] * sizes[k + 1] * sizes[j + 1],
                    k,
                )
                for k in range(i, j)
            )
    return cuts
