"""Host linear algebra on stacks of matrices: one library call for each matrix or stack.

Every factorisation of the package is one of the functions `getrf`, `potrf`, `geqrf`,
`heevd`, `gesdd` and `geev` of this module, so that a test can count them. Kernels copy
library results into their outputs: the library's buffers are scratch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg.blas as blas
import scipy.linalg.lapack as lapack

from .._aval import Aval
from ..errors import DTypeError, InvalidArgumentError, ShapeError

Array = np.ndarray[Any, Any]


# ---- checks --------------------------------------------------------------------------


def need_matrix(operation: str, x: Aval, *, square: bool = False) -> None:
    """Refuse what is no stack of (square) matrices in single or double precision.

    Raises:
        ShapeError, DTypeError: name the operation and what was found.
    """
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        what = "a square matrix" if square else "a matrix"
        raise ShapeError(
            operation=operation,
            argument="x",
            found=f"shape {x.shape}, where it takes {what} or a stack of them",
            fix="make the last two axes the rows and columns",
        )
    if x.dtype.char not in "fdFD":
        raise DTypeError(
            operation=operation,
            argument="x",
            found=f"dtype {x.dtype}, which LAPACK does not have",
            fix="convert it: `ta.astype(x, ta.float32)` or `ta.float64`",
        )


def failed(operation: str, found: str, fix: str) -> InvalidArgumentError:
    return InvalidArgumentError(operation=operation, argument="x", found=found, fix=fix)


def need_diagonal(operation: str, a: Array) -> None:
    """Refuse a factor with a zero on its diagonal.

    Raises:
        InvalidArgumentError: the matrix is singular.
    """
    if a.size and not np.all(np.diagonal(a, 0, -2, -1)):
        raise failed(
            operation,
            "a singular matrix (an exact zero among the pivots)",
            "use `linalg.pinv` or `linalg.lstsq`, or change the matrix",
        )


# ---- factorisations ------------------------------------------------------------------


def hermitian_part(x: Array) -> Array:
    found = x + x.conj().swapaxes(-1, -2)
    found *= 0.5
    return found


def potrf(x: Array) -> Array:
    """Lower Cholesky factors.

    Raises:
        InvalidArgumentError: a matrix is not positive definite.
    """
    try:
        return np.linalg.cholesky(x)
    except np.linalg.LinAlgError:
        raise failed(
            "cholesky",
            "a matrix that is not positive definite",
            "add a positive number to its diagonal, or use `linalg.eigh`",
        ) from None


def heevd(x: Array) -> tuple[Array, Array]:
    """Eigenvalues in ascending order, eigenvectors as columns; NaN for a matrix that is
    not finite, where LAPACK may give numbers that have nothing to do with it."""
    found = converged("eigh", np.linalg.eigh, x)
    lost = ~np.isfinite(x).all((-2, -1))
    if lost.any():
        found.eigenvalues[lost] = found.eigenvectors[lost] = np.nan
    return found.eigenvalues, found.eigenvectors


def converged(operation: str, fn: Any, *args: Any) -> Any:
    """What an iteration of LAPACK gives.

    Raises:
        InvalidArgumentError: it does not converge (NaN or infinity among the elements).
    """
    try:
        return fn(*args)
    except np.linalg.LinAlgError:
        raise failed(
            operation,
            "a matrix for which the iteration does not converge",
            "look for NaN and infinity among its elements",
        ) from None


def gesdd(x: Array, *, full: bool = False) -> tuple[Array, Array, Array]:
    found = converged("svd", np.linalg.svd, x, full)
    return found.U, found.S, found.Vh


def geqrf(x: Array, *, complete: bool = False) -> tuple[Array, Array]:
    found = np.linalg.qr(x, "complete" if complete else "reduced")
    return found.Q, found.R


def geev(x: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of norm 1; always complex."""
    found = converged("eig", np.linalg.eig, x)
    return found.eigenvalues, found.eigenvectors


def getrf(x: Array, lu: Array, rows: Array) -> None:
    """Packed factors into `lu`, and the order of the rows: `x[rows] = L U`."""
    (fn,) = lapack.get_lapack_funcs(("getrf",), (x,))
    m = x.shape[-2]
    for i in np.ndindex(x.shape[:-2]):
        order = np.arange(m)
        if x.size:
            factors, pivots, _ = fn(x[i])
            lu[i] = factors
            for k, p in enumerate(pivots):
                order[k], order[p] = order[p], order[k]
        rows[i] = order


# ---- solving with factors ------------------------------------------------------------


def trsm(a: Array, b: Array, *, lower: bool, adjoint: bool, unit: bool) -> Array:
    """Solve with one triangle of a matrix, or with its adjoint; a fresh array."""
    if not b.size:
        return np.empty_like(b)
    (fn,) = blas.get_blas_funcs(("trsm",), (a, b))
    turned = np.ascontiguousarray(a).T  # Fortran order: the other triangle
    if not adjoint:
        found = fn(1.0, turned, b, lower=not lower, trans_a=1, diag=unit)
    else:
        bar = b.conj() if b.dtype.kind == "c" else b
        found = fn(1.0, turned, bar, lower=not lower, trans_a=0, diag=unit)
        if b.dtype.kind == "c":
            np.conj(found, found)
    return found  # type: ignore[no-any-return]


def getrs(lu: Array, rows: Array, b: Array, *, adjoint: bool) -> Array:
    """Solve with the factors of one matrix, or with its adjoint; a fresh array."""
    if not adjoint:
        y = trsm(lu, b[rows], lower=True, adjoint=False, unit=True)
        return trsm(lu, y, lower=False, adjoint=False, unit=False)
    y = trsm(lu, b, lower=False, adjoint=True, unit=False)
    y = trsm(lu, y, lower=True, adjoint=True, unit=True)
    found = np.empty_like(y)
    found[rows] = y
    return found


def parity(rows: Array) -> int:
    """The sign of a permutation."""
    seen = np.zeros(len(rows), np.bool_)
    cycles = 0
    for start in range(len(rows)):
        if not seen[start]:
            cycles += 1
            while not seen[start]:
                seen[start] = True
                start = int(rows[start])
    return -1 if (len(rows) - cycles) % 2 else 1
