"""Derivatives of determinants of any order without dividing by what may be zero.

The determinant of `a + e1 t1 + ... + ek tk` is a polynomial in the numbers e. Its part
that is linear in each of them is the k-th derivative of the determinant in the
directions t. Numbers, vectors and matrices here are such polynomials with squares of an
e dropped: lists of 2**k coefficients, place `m` that of the product of the e in the
bits of `m`, None where it is zero.

What is divided by is the part of the matrix that is safely regular: all of it by its LU
factors, or the space of the large singular values. The rest, usually of one dimension,
is a Schur complement, whose adjugate comes from its characteristic polynomial, where
only counts divide.

Sources: G. Stewart, "On the adjugate matrix" (1998); U. Leverrier and D. Faddeev's
method, in F. Gantmacher, "The Theory of Matrices", volume 1, chapter 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import _lapack
from ._lapack import Array

Jet = list[Any]
"""Coefficients by bits."""


def cofactors_along(a: Array, ts: list[Array], lu: Array, rows: Array) -> Array:
    """The derivative of the matrix of cofactors of `a` in the directions `ts`."""
    # Each direction loses as many digits as the inverse has, and a third of all may go.
    small = float(np.finfo(lu.dtype).eps) ** (1 / (3 * max(len(ts), 1)))
    if _is_regular(lu, small):
        eye = np.eye(len(lu), dtype=lu.dtype)
        inverse = _lapack.getrs(lu, rows, eye, adjoint=True).conj().T
        inverses = _inverses(inverse, ts)
        sizes = _determinants(det_of(lu, rows), inverses, ts)
        return np.ascontiguousarray(_last(sizes, inverses, np.multiply).T)
    return _taken_apart(a, ts, small)


def det_of(lu: Array, rows: Array) -> Any:
    return np.prod(np.diagonal(lu)) * _lapack.parity(rows)


def _is_regular(lu: Array, small: float) -> bool:
    """Whether no pivot is small beside the largest element of the factors."""
    size = np.abs(np.diagonal(lu))
    return bool(size.min() > small * np.abs(lu).max())


# ---- polynomials ---------------------------------------------------------------------


def _parts(m: int) -> Iterator[tuple[int, int]]:
    """Each way to share the bits of `m`."""
    part = m
    while True:
        yield part, m ^ part
        if not part:
            return
        part = (part - 1) & m


def _at(m: int, xs: Jet, ys: Jet, times: Callable[[Any, Any], Any]) -> Any:
    """One coefficient of the product."""
    total = None
    for i, j in _parts(m):
        if xs[i] is not None and ys[j] is not None:
            term = times(xs[i], ys[j])
            total = term if total is None else total + term
    return total


def _times(xs: Jet, ys: Jet, times: Callable[[Any, Any], Any] = np.matmul) -> Jet:
    return [_at(m, xs, ys, times) for m in range(len(xs))]


def _last(xs: Jet, ys: Jet, times: Callable[[Any, Any], Any] = np.matmul) -> Any:
    return _at(len(xs) - 1, xs, ys, times)


def _plus(xs: Jet, ys: Jet, sign: int = 1) -> Jet:
    def both(x: Any, y: Any) -> Any:
        if y is None:
            return x
        return sign * y if x is None else x + sign * y

    return [both(x, y) for x, y in zip(xs, ys, strict=True)]


def _linear(first: Any, ts: list[Any]) -> Jet:
    """`first + e1 t1 + ... + ek tk`."""
    found: Jet = [None] * (1 << len(ts))
    found[0] = first
    for j, t in enumerate(ts):
        found[1 << j] = t
    return found


def _inverses(inverse: Array, ts: list[Array]) -> Jet:
    """The inverse of the matrix that `inverse` inverts, moved by `ts`."""
    found: Jet = [inverse]
    for m in range(1, 1 << len(ts)):
        terms = [t @ found[m ^ (1 << j)] for j, t in enumerate(ts) if m >> j & 1]
        found.append(-(inverse @ sum(terms[1:], terms[0])))
    return found


def _determinants(det: Any, inverses: Jet, ts: list[Array]) -> Jet:
    """The determinant, by the trace of the inverse times each direction."""
    found: Jet = [det]
    for m in range(1, 1 << len(ts)):
        j = m.bit_length() - 1
        found.append(
            sum(
                found[p] * np.sum(inverses[q] * ts[j].T)
                for p, q in _parts(m ^ (1 << j))
            )
        )
    return found


def _adjugate(xs: Jet, n: int, dtype: Any) -> tuple[Jet, Jet]:
    """The adjugate and the determinant of small matrices: `adj(x) = +-(x m + c 1)` by
    the coefficients c of the characteristic polynomial."""
    eye = np.eye(n, dtype=dtype)
    found: Jet = [None] * len(xs)
    found[0] = eye
    for j in range(1, n + 1):
        product = _times(xs, found)
        coefficients = [None if p is None else -np.trace(p) / j for p in product]
        if j < n:
            constants = [None if c is None else c * eye for c in coefficients]
            found = _plus(product, constants)
    if n % 2:
        return found, [None if c is None else -c for c in coefficients]
    return [None if p is None else -p for p in found], coefficients


# ---- singular matrices ---------------------------------------------------------------


def _taken_apart(a: Array, ts: list[Array], small: float) -> Array:
    u, s, vh = _lapack.gesdd(a)
    # What is singular to rounding is singular.
    s[s <= 2 * len(s) * np.finfo(s.dtype).eps * s[0]] = 0
    r = int(np.count_nonzero(s > small * s[0]))
    n, k, dtype = len(s), len(ts), a.dtype
    if n - r - 1 > k and not s[r:].any():
        return np.zeros_like(a)  # every term has a factor that is exactly zero
    turned = [u.conj().T @ t @ vh.conj().T for t in ts]
    inverses = _inverses(np.diag(1 / s[:r]).astype(dtype), [t[:r, :r] for t in turned])
    sizes = _determinants(np.prod(s[:r]), inverses, [t[:r, :r] for t in turned])
    if r == n:
        inner = _last(sizes, inverses, np.multiply)
    else:
        inner = np.zeros((n, n), dtype)
        right = _times(inverses, _linear(None, [t[:r, r:] for t in turned]))
        low = _linear(None, [t[r:, :r] for t in turned])
        rest = _linear(np.diag(s[r:]).astype(dtype), [t[r:, r:] for t in turned])
        rest = _plus(rest, _times(low, right), -1)
        adjugate, det = _adjugate(rest, n - r, dtype)
        left = _times(low, inverses)
        beside = _times(right, adjugate)
        for rows, cols, part, sign in (
            (slice(r), slice(r), _times(det, inverses, np.multiply), 1),
            (slice(r), slice(r), _times(beside, left), 1),
            (slice(r), slice(r, n), beside, -1),
            (slice(r, n), slice(r), _times(adjugate, left), -1),
            (slice(r, n), slice(r, n), adjugate, 1),
        ):
            found = _last(sizes, part, np.multiply)
            if found is not None:
                inner[rows, cols] += sign * found
    phase = np.linalg.det(u) * np.linalg.det(vh)
    return np.asarray(phase * (u.conj() @ inner.T @ vh.conj()), dtype)
