"""Random vectors and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import errors
from ..engine import HANDLES, EagerTensor, int_of, shape_of
from ..errors import named
from ..linalg import cholesky, diagonal, qr
from ..ops import broadcast_shapes
from ._draws import Shape, dtype_of, normal
from ._parameters import converted


@named(x="cov")
def multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: Shape = (), *, dtype: Any = None
) -> EagerTensor:
    """Normal vectors of the given mean and covariance.

    Args:
        key: two words.
        mean: (..., n); differentiable.
        cov: (..., n, n), symmetric and positive definite; differentiable.
        shape: how many draws; the result has the shape (*shape, ..., n).
        dtype: a real floating dtype; None means that of the parameters.

    Raises:
        ShapeError: not a key, or parameters do not fit.
        InvalidArgumentError: not a shape, or `cov` is not positive definite.
        DTypeError: another dtype.

    Cost: a Cholesky factorisation, and a few allocations of the result's size.
    """
    wanted, (centre, square) = converted(
        "multivariate_normal", key, dtype, mean=mean, cov=cov
    )
    n = square.shape[-1] if square.ndim > 1 else 0
    if square.shape[-2:] != (n, n) or centre.shape[-1:] != (n,):
        raise errors.ShapeError(
            operation="multivariate_normal",
            argument="cov",
            found=f"shape {square.shape} for a mean of shape {centre.shape}",
            fix="pass a mean (..., n) and a covariance (..., n, n)",
        )
    lead = broadcast_shapes("multivariate_normal", centre.shape[:-1], square.shape[:-2])
    where = (*shape_of("multivariate_normal", shape), *lead, n)
    z = HANDLES.reshape(normal(key, where, dtype=wanted), (*where, 1))
    moved = HANDLES.reshape(HANDLES.matmul(cholesky(square), z), where)
    return HANDLES.add(moved, centre)  # type: ignore[no-any-return]


@named()
def orthogonal(
    key: Any, n: int, shape: Shape = (), *, dtype: Any = np.float64
) -> EagerTensor:
    """Orthogonal (or unitary) matrices, no direction more likely than another.

    Args:
        key: two words.
        n: rows and columns.
        shape: how many draws; the result has the shape (*shape, n, n).
        dtype: a real floating dtype, or a complex one, of single precision at least.

    Raises:
        ShapeError: not a key. DTypeError: another dtype, or `n` is no integer.
        InvalidArgumentError: not a shape, or a negative `n`.

    Cost: a QR factorisation, and a few allocations of the result's size.

    Source: F. Mezzadri, Notices Amer. Math. Soc. 54 (2007).
    """
    wanted = dtype_of("orthogonal", dtype, "dfDF")
    size = int_of("orthogonal", "n", n, 0)
    where = (*shape_of("orthogonal", shape), size, size)
    q, r = qr(normal(key, where, dtype=wanted))
    signs = HANDLES.sign(diagonal(r))
    return HANDLES.mul(q, HANDLES.reshape(signs, (*where[:-2], 1, size)))  # type: ignore[no-any-return]
