"""Public decompositions: names of the array API standard and SciPy.

All take stacks of matrices along leading axes, real and complex, in single and double
precision; integers are converted to float64. One factorisation serves the value and its
derivatives of every order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidArgumentError, ShapeError
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor

__all__ = [
    "EigResult",
    "EighResult",
    "LUResult",
    "QRResult",
    "SVDResult",
    "cholesky",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "lu",
    "qr",
    "svd",
    "svdvals",
]

F = HANDLES
# A difference of spectral values of so many units of rounding counts as none.
_GAP = 4.0


class EigResult(NamedTuple):
    eigenvalues: EagerTensor
    eigenvectors: EagerTensor


class EighResult(NamedTuple):
    eigenvalues: EagerTensor
    eigenvectors: EagerTensor


class QRResult(NamedTuple):
    Q: EagerTensor
    R: EagerTensor


class SVDResult(NamedTuple):
    U: EagerTensor
    S: EagerTensor
    Vh: EagerTensor


class LUResult(NamedTuple):
    rows: EagerTensor
    L: EagerTensor
    U: EagerTensor


def as_matrices(operation: str, x: Any, *, square: bool = False) -> EagerTensor:
    """A stack of matrices of floating dtype.

    Raises:
        ShapeError: fewer than two axes, or not square.
    """
    x = as_tensor(x)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        what = "square matrices" if square else "matrices"
        raise ShapeError(
            operation=operation,
            argument="x",
            found=f"shape {x.shape}, where it takes {what}",
            fix="make the last two axes the rows and columns",
        )
    if x.dtype.kind in "biu":
        x = F.astype(x, np.dtype(np.float64))
    return x  # type: ignore[no-any-return]


def adjoint_of(x: EagerTensor) -> EagerTensor:
    """The conjugate transpose: a view of real values."""
    n = x.ndim
    x = F.conj(x) if x.dtype.kind == "c" else x
    return F.permute_dims(x, (*range(n - 2), n - 1, n - 2))  # type: ignore[no-any-return]


# ---- decompositions ------------------------------------------------------------------


def cholesky(x: Any, /, *, upper: bool = False) -> EagerTensor:
    """The Cholesky factor: lower `L` with `x = L L^H`, or upper `U` with `x = U^H U`.

    The Hermitian part of `x` is factored, so gradients are Hermitian.

    Raises:
        InvalidArgumentError: not positive definite. ShapeError: not square.

    Cost: one factorisation; keeps the factor; the derivative takes two triangular
        solutions.
    """
    out = F.cholesky(as_matrices("cholesky", x, square=True))
    return adjoint_of(out) if upper else out


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """Orthonormal columns and an upper triangle with `x = Q R`.

    Args:
        x: shape `(..., M, N)`. Derivatives need full column rank of its leading
            `min(M, N)` columns.
        mode: "reduced" or "complete"; the latter has no derivative where `M > N`.

    Raises:
        InvalidArgumentError: another mode; a derivative at a rank-deficient matrix.

    Cost: one factorisation; keeps both factors.
    """
    if mode not in ("reduced", "complete"):
        raise InvalidArgumentError(
            operation="qr",
            argument="mode",
            found=f"{mode!r}",
            fix='pass "reduced" or "complete"',
        )
    return QRResult(*F.qr(as_matrices("qr", x), mode == "complete"))


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """Singular value decomposition `x = U diag(S) Vh`, values in descending order.

    Derivatives are right for losses that do not depend on the phases of the vectors, or
    on the basis that belongs to equal values; at equal and nearly equal values they are
    finite for those. With `full_matrices=True` a matrix that is not square has no
    derivative: the vectors that complete a basis are arbitrary.

    Raises:
        ShapeError: not a matrix or a stack of matrices.
        InvalidArgumentError: the iteration does not converge: NaN or infinity.

    Cost: one factorisation; keeps its three results.
    """
    x = as_matrices("svd", x)
    return SVDResult(*F.svd(x, bool(full_matrices), _GAP))


def svdvals(x: Any, /) -> EagerTensor:
    """Singular values in descending order; derivatives are finite at equal ones.

    Raises: as `svd`.

    Cost: one thin decomposition, kept.
    """
    return F.svd(as_matrices("svdvals", x), False, _GAP)[1]  # type: ignore[no-any-return]


def eigh(x: Any, /) -> EighResult:
    """Eigenvalues, ascending, and eigenvectors of the Hermitian part of `x`.

    Gradients are Hermitian; see `svd` for equal values and phases.

    Raises:
        ShapeError: not square.

    Cost: one factorisation; keeps both results.
    """
    return EighResult(*F.eigh(as_matrices("eigh", x, square=True), _GAP))


def eigvalsh(x: Any, /) -> EagerTensor:
    """Eigenvalues of the Hermitian part of `x`, ascending; derivatives are finite.

    Raises: as `eigh`.

    Cost: one decomposition with vectors, kept.
    """
    x = as_matrices("eigvalsh", x, square=True)
    return F.eigh(x, _GAP)[0]  # type: ignore[no-any-return]


def eig(x: Any, /) -> EigResult:
    """Eigenvalues and eigenvectors of norm 1 of a general matrix; always complex.

    Derivatives need different eigenvalues and a regular matrix of eigenvectors.

    Raises:
        ShapeError: not square.

    Cost: one factorisation; keeps both results; derivatives factor the eigenvectors.
    """
    return EigResult(*F.eig(as_matrices("eig", x, square=True), _GAP))


def eigvals(x: Any, /) -> EagerTensor:
    """Eigenvalues of a general matrix; always complex. See `eig`.

    Raises: as `eig`.

    Cost: one decomposition with vectors, kept.
    """
    x = as_matrices("eigvals", x, square=True)
    return F.eig(x, _GAP)[0]  # type: ignore[no-any-return]


def lu(x: Any, /) -> LUResult:
    """LU decomposition with row pivots: `x[rows] = L U`, `L` with unit diagonal.

    Args:
        x: shape `(..., M, N)`; derivatives need regular leading blocks, and hold the
            order of rows constant.

    Returns:
        `rows` of shape `(..., M)` (int64), `L` of shape `(..., M, K)` and `U` of shape
        `(..., K, N)`, where `K = min(M, N)`.

    Raises:
        ShapeError: not a matrix or a stack of matrices.

    Cost: one factorisation; keeps the packed factors and the rows.
    """
    x = as_matrices("lu", x)
    packed, rows = F.lu_factor(x, x.dtype)
    *lead, m, n = x.shape
    k = min(m, n)
    whole = tuple((0, d, 1) for d in lead)
    low = F.tril(F.slice(packed, (*whole, (0, m, 1), (0, k, 1))), -1)
    low = F.add(low, F.eye(m, k, 0, x.dtype, x.device))
    up = F.triu(F.slice(packed, (*whole, (0, k, 1), (0, n, 1))), 0)
    return LUResult(rows, low, up)
