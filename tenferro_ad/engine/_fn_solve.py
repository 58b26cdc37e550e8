"""Public solutions, inverses, determinants and functions of matrices.

One factorisation serves the value and its derivatives of every order. See `_fn_linalg`
for what all of them take.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import ShapeError, named
from ._axes import int_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._fn_linalg import adjoint_of, as_matrices
from ._make import as_tensor
from ._numbers import real_of
from ._pytrees import stop_gradient

__all__ = [
    "SlogdetResult",
    "cho_solve",
    "det",
    "expm",
    "inv",
    "lstsq",
    "matrix_power",
    "pinv",
    "slogdet",
    "solve",
    "solve_triangular",
]

F = HANDLES


class SlogdetResult(NamedTuple):
    sign: EagerTensor
    logabsdet: EagerTensor


def _like(x: EagerTensor, dtype: np.dtype[Any], lead: tuple[int, ...]) -> EagerTensor:
    """The matrices in that dtype and under those leading axes (a view)."""
    x = x if x.dtype == dtype else F.astype(x, dtype)
    shape = (*lead, *x.shape[-2:])
    return x if x.shape == shape else F.broadcast_to(x, shape)


def _pair(operation: str, a: EagerTensor, b: Any) -> tuple[EagerTensor, Any, bool]:
    """Matrices and right-hand sides under common leading axes, in a common dtype; and
    whether the right-hand side is one vector, which stands as a column."""
    b = as_tensor(b, a.device)
    is_vector = b.ndim == 1
    if is_vector:
        b = F.reshape(b, (b.shape[0], 1))
    b = as_matrices(operation, b)
    if a.shape[-2] != b.shape[-2]:
        raise ShapeError(
            operation=operation,
            argument="b",
            found=f"{b.shape[-2]} rows for matrices of shape {a.shape}",
            fix="make the rows equal",
        )
    try:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ShapeError(
            operation=operation,
            argument="b",
            found=f"leading axes {b.shape[:-2]} for those of {a.shape}",
            fix="make them equal, or 1",
        ) from None
    dtype = np.result_type(a.dtype, b.dtype)
    return _like(a, dtype, lead), _like(b, dtype, lead), is_vector


def _settled(x: EagerTensor, *, is_vector: bool) -> EagerTensor:
    return F.reshape(x, x.shape[:-1]) if is_vector else x


# ---- solutions -----------------------------------------------------------------------


def _factors(a: EagerTensor) -> tuple[EagerTensor, EagerTensor]:
    """Factors that say how to compute: constants for every level of differentiation."""
    return F.lu_factor(stop_gradient(a), a.dtype)  # type: ignore[no-any-return]


@named(x="x1", a="x1", b="x2")
def solve(x1: Any, x2: Any, /) -> EagerTensor:
    """The solution of `x1 @ x = x2` for square matrices, refined once.

    Args:
        x1: shape `(..., M, M)`.
        x2: shape `(M,)` for one vector, else `(..., M, K)`; leading axes broadcast.

    Raises:
        InvalidArgumentError: an exactly singular matrix. ShapeError: shapes do not fit.

    Cost: one LU factorisation for the value and all derivatives; keeps the matrices,
        their factors and the solution; a derivative takes O(M^2 K).
    """
    a = as_matrices("solve", x1, square=True)
    a, b, is_vector = _pair("solve", a, x2)
    return _settled(F.lu_solve(a, b, *_factors(a), False), is_vector=is_vector)


@named(x="x1", a="x1", b="x2")
def solve_triangular(
    x1: Any,
    x2: Any,
    /,
    *,
    upper: bool = False,
    adjoint: bool = False,
    unit_diagonal: bool = False,
) -> EagerTensor:
    """The solution of `x1 @ x = x2` with one triangle of `x1`, or with its adjoint.

    Raises:
        InvalidArgumentError: a zero on the diagonal. ShapeError: shapes do not fit.

    Cost: one allocation; keeps `x1` and the solution; no factorisation at all.
    """
    a = as_matrices("solve_triangular", x1, square=True)
    a, b, is_vector = _pair("solve_triangular", a, x2)
    out = F.solve_triangular(a, b, bool(upper), bool(adjoint), bool(unit_diagonal))
    return _settled(out, is_vector=is_vector)


@named(x="factor", a="factor")
def cho_solve(factor: Any, b: Any, /, *, upper: bool = False) -> EagerTensor:
    """The solution of `a @ x = b` from the Cholesky factor of `a` (see `cholesky`).

    Raises:
        InvalidArgumentError: a zero on the diagonal. ShapeError: shapes do not fit.

    Cost: two triangular solutions.
    """
    low, b, is_vector = _pair(
        "cho_solve", as_matrices("cho_solve", factor, square=True), b
    )
    y = F.solve_triangular(low, b, bool(upper), bool(upper), False)
    out = F.solve_triangular(low, y, bool(upper), not upper, False)
    return _settled(out, is_vector=is_vector)


def inv(x: Any, /) -> EagerTensor:
    """The inverse.

    Raises:
        InvalidArgumentError: an exactly singular matrix. ShapeError: not square.

    Cost: one LU factorisation; keeps the inverse only.
    """
    return F.inv(as_matrices("inv", x, square=True))  # type: ignore[no-any-return]


def pinv(x: Any, /, *, rtol: float | None = None) -> EagerTensor:
    """The Moore-Penrose inverse; derivatives hold the rank constant.

    Args:
        x: shape `(..., M, N)`.
        rtol: singular values up to `rtol` times the largest count as 0; by default
            `max(M, N)` units of rounding.

    Raises:
        ShapeError: not a matrix or a stack of matrices.
        InvalidArgumentError: the iteration does not converge: NaN or infinity.

    Cost: one singular value decomposition; keeps `x` and the result.
    """
    x = as_matrices("pinv", x)
    if rtol is None:
        rtol = max(x.shape[-2:]) * float(np.finfo(x.dtype).eps)
    return F.pinv(x, real_of("pinv", "rtol", rtol))  # type: ignore[no-any-return]


@named(x="a")
def lstsq(a: Any, b: Any, /) -> EagerTensor:
    """The least-squares solution of `a @ x = b` at full rank: of least residual for
    tall matrices, of least norm for wide ones.

    Raises:
        InvalidArgumentError: rank-deficient (an exact zero in the triangle).

    Cost: one QR factorisation for the value and all derivatives.
    """
    a, b, is_vector = _pair("lstsq", as_matrices("lstsq", a), b)
    if a.shape[-2] >= a.shape[-1]:
        q, r = F.qr(a, False)
        out = F.solve_triangular(r, F.matmul_tn(q, b), True, False, False)
    else:
        q, r = F.qr(adjoint_of(a), False)
        out = F.matmul(q, F.solve_triangular(r, b, True, True, False))
    return _settled(out, is_vector=is_vector)


# ---- determinants and functions ------------------------------------------------------


def det(x: Any, /) -> EagerTensor:
    """The determinant. Its first two derivatives are right at singular matrices too.

    Raises:
        ShapeError: not square.

    Cost: one LU factorisation; keeps `x` and its factors. Derivatives at nearly
        singular matrices take a singular value decomposition.
    """
    a = as_matrices("det", x, square=True)
    return F.det(a, *_factors(a))  # type: ignore[no-any-return]


def slogdet(x: Any, /) -> SlogdetResult:
    """Sign (or phase) and logarithm of the modulus of the determinant.

    A singular matrix gives 0 and -inf; it has no derivative.

    Raises:
        ShapeError: not square. InvalidArgumentError: a derivative at a singular matrix.

    Cost: one LU factorisation for the value and all derivatives; keeps `x` and factors.
    """
    a = as_matrices("slogdet", x, square=True)
    return SlogdetResult(*F.slogdet(a, *_factors(a)))


def expm(x: Any, /) -> EagerTensor:
    """The exponential of a matrix.

    Raises:
        ShapeError: not square.

    Cost: one Pade approximation; keeps `x`; the derivative takes the exponential of a
        matrix of twice the size.
    """
    return F.expm(as_matrices("expm", x, square=True))  # type: ignore[no-any-return]


def matrix_power(x: Any, n: int, /) -> EagerTensor:
    """The product of `n` factors `x`; of `-n` inverses for negative `n`.

    Raises:
        ShapeError: not square. InvalidArgumentError: singular, for negative `n`.

    Cost: about `2 log2 |n|` products, each kept; one inverse for negative `n`.
    """
    base = as_matrices("matrix_power", x, square=True)
    n = int_of("matrix_power", "n", n)
    if n == 0:
        eye = F.eye(base.shape[-1], base.shape[-1], 0, base.dtype, base.device)
        return F.broadcast_to(eye, base.shape)  # type: ignore[no-any-return]
    if n < 0:
        base, n = F.inv(base), -n
    out = None
    while True:
        if n & 1:
            out = base if out is None else F.matmul(out, base)
        n >>= 1
        if not n:
            return out  # type: ignore[return-value]
        base = F.matmul(base, base)
