"""Samples of the rows of linear algebra.

Matrices are well conditioned and their spectra have gaps; degenerate ones are in
`test_linalg.py`. Vectors of complex decompositions are samples of values and first
derivatives only: their phase is a choice of LAPACK, so second derivatives are compared
there for losses that do not depend on it. Rows on LU factors take them as constants:
the factors of a moved matrix are others, so `test_linalg.py` tests these rows through
the public functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from .samples import Array, Drawer, Sample, outside, row

F8, F4, C16, C8 = np.float64, np.float32, np.complex128, np.complex64
ANY = outside(0.2, 2.0)
Shape = tuple[int, ...]


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def hermitian(x: Any) -> Any:
    return (x + adjoint(x)) / 2


# ---- drawing -------------------------------------------------------------------------


def spectral(draws: Drawer, shape: Shape, dtype: Any, gap: float = 0.7) -> Array:
    """Singular values 1, 1 + gap, ..., so that every decomposition is well behaved."""
    *lead, m, n = shape
    k = min(m, n)
    if 0 in shape:
        return np.zeros(shape, dtype)
    wide = np.result_type(dtype, F8)
    u = np.linalg.qr(draws((*lead, m, m), wide))[0][..., :k]
    v = np.linalg.qr(draws((*lead, n, n), wide))[0][..., :k]
    values = 1 + gap * np.arange(k) + 0.1 * draws.rng.uniform(size=(*lead, k))
    return np.asarray((u * values[..., None, :]) @ adjoint(v), dtype)


def definite(draws: Drawer, shape: Shape, dtype: Any) -> Array:
    x = spectral(draws, shape, dtype)
    return np.asarray(hermitian(x @ adjoint(x)), dtype)


def symmetric(draws: Drawer, shape: Shape, dtype: Any) -> Array:
    """Eigenvalues of both signs."""
    x = definite(draws, shape, dtype)
    return np.asarray(x - 3 * np.eye(shape[-1]), dtype)


def view_of(x: Array) -> Array:
    """The same values under other strides."""
    base = np.repeat(x, 2, -1)[..., ::-1].copy()
    return base[..., ::-2]


Make = Callable[[Drawer, Shape, Any], Array]


def stacks(
    name: str,
    make: Make,
    shapes: list[Shape],
    params: tuple[Any, ...] = (),
    *,
    kinds: tuple[Any, ...] = (F8, F4, C16),
    heavy: bool = False,
) -> list[Sample]:
    """Each shape in float64, the first one in every dtype and as a view.

    Args:
        heavy: no second derivatives for complex operands.
    """
    draws = Drawer(name, ANY)
    found = [Sample(f"{s} {params}", (make(draws, s, F8),), params) for s in shapes]
    first = shapes[0]
    for kind in kinds[1:]:
        label = f"{np.dtype(kind).name} {params}"
        slow = heavy and np.dtype(kind).kind == "c"
        found.append(Sample(label, (make(draws, first, kind),), params, heavy=slow))
    found.append(Sample(f"view {params}", (view_of(make(draws, first, F8)),), params))
    return found


SQUARE: list[Shape] = [(3, 3), (2, 3, 3), (1, 1), (0, 3, 3), (2, 0, 0)]
ANY_SHAPE: list[Shape] = [(3, 3), (4, 3), (3, 4), (2, 4, 2), (1, 1), (0, 3, 2)]


# ---- references with the gauge of the sample -----------------------------------------


def steady(samples: list[Sample], at: int, fn: Callable[..., Any]) -> Any:
    """`fn` for difference quotients: each vector with the phase that keeps it parallel
    to the one at the nearest sample."""
    bases = [s.operands[0] for s in samples]

    def reference(x: Any, *params: Any) -> Any:
        near = min(
            (b for b in bases if b.shape == x.shape and b.dtype.kind == x.dtype.kind),
            key=lambda b: float(np.linalg.norm(b - x)) if b.size else 0.0,
        )
        parts, first = list(fn(x, *params)), fn(near, *params)
        product = np.sum(np.conj(first[at]) * parts[at], -2, keepdims=True)
        phase = np.where(product == 0, 1, product / np.abs(product))
        parts[at] = parts[at] / phase
        if len(parts) == 3 and x.size:  # `svd`: `u` keeps what it is to `vh`
            v = adjoint(parts[2])
            old = adjoint(first[2])
            product = np.sum(np.conj(old) * v, -2, keepdims=True)
            phase = product / np.abs(product)
            parts[2] = adjoint(v / phase)
            s = np.maximum(parts[1], 1e-300)[..., None, :]
            u = x @ adjoint(parts[2]) / s
            parts[0] = u
        return tuple(parts)

    return reference


def _eigh(x: Any, gap: float) -> Any:
    return tuple(np.linalg.eigh(hermitian(x)))


def _svd(x: Any, full: bool, gap: float) -> Any:
    return tuple(np.linalg.svd(x, full_matrices=full))


def _eig(x: Any, gap: float) -> Any:
    wide = np.result_type(x, np.complex64)
    return tuple(y.astype(wide) for y in np.linalg.eig(x))


_found = stacks("eigh", symmetric, SQUARE, (4.0,), heavy=True)
row("eigh", _eigh, _found, keeps={"x": "w v"}, smooth=steady(_found, 1, _eigh))
_found = stacks("svd", spectral, ANY_SHAPE, (False, 4.0), heavy=True)
_found += stacks("svd", spectral, SQUARE[:1], (True, 4.0), kinds=(F8,))
row("svd", _svd, _found, keeps={"x": "u s vh"}, smooth=steady(_found, 0, _svd))


def _distinct(draws: Drawer, shape: Shape, dtype: Any) -> Array:
    """Eigenvalues 1, 2, ... of a matrix that is not normal."""
    if 0 in shape:
        return np.zeros(shape, dtype)
    *lead, n, _ = shape
    basis = spectral(draws, shape, dtype, 0.4)
    values = np.broadcast_to(1.0 + np.arange(n), (*lead, n))
    return np.asarray((basis * values[..., None, :]) @ np.linalg.inv(basis), dtype)


_draws = Drawer("eig", ANY)
_PAIR = np.array([[1.0, -2.0, 0.3], [1.5, 0.7, 0.1], [0.2, 0.4, 3.0]])
_found = [
    Sample(f"{np.dtype(t).name} {s}", (_distinct(_draws, s, t),), (4.0,), heavy=True)
    for s in SQUARE[:3]
    for t in (F8, C16, F4)
]
_found.append(Sample("conjugate pair", (_PAIR,), (4.0,), heavy=True))
row("eig", _eig, _found, keeps={"x": "w v"}, smooth=steady(_found, 1, _eig))


# ---- QR, Cholesky, triangles ---------------------------------------------------------


def _qr(x: Any, complete: bool) -> Any:
    return tuple(np.linalg.qr(x, "complete" if complete else "reduced"))


row(
    "qr",
    _qr,
    stacks("qr", spectral, ANY_SHAPE, (False,))
    + stacks("qr", spectral, [(3, 4)], (True,), kinds=(F8,)),
    keeps={"x": "q r"},
)
row(
    "cholesky",
    lambda x: np.linalg.cholesky(hermitian(x)),
    stacks("cholesky", definite, SQUARE),
    keeps={"x": "out"},
)


def _triangle(a: Any, upper: bool, adj: bool, unit: bool) -> Any:
    a = np.triu(a) if upper else np.tril(a)
    if unit:
        n = a.shape[-1]
        a = a - a * np.eye(n) + np.eye(n)
    return adjoint(a) if adj else a


def _solve_triangular(a: Any, b: Any, *how: Any) -> Any:
    return np.linalg.solve(_triangle(a, *how), b)


def _triangular() -> list[Sample]:
    draws = Drawer("solve_triangular", outside(0.6, 1.2))
    found = []
    for upper in (False, True):
        for adj in (False, True):
            for unit in (False, True):
                how = (upper, adj, unit)
                a, b = draws((3, 3)), draws((3, 2))
                found.append(Sample(f"{how}", (a, b), how))
                a, b = draws((3, 3), C16), draws((3, 2), C16)
                found.append(Sample(f"complex {how}", (a, b), how))
    how = (True, False, False)
    a, b = draws((2, 3, 3)), draws((2, 3, 1))
    found.append(Sample("stack", (a, b), how))
    found.append(Sample("float32", (draws((3, 3), F4), draws((3, 2), F4)), how))
    found.append(Sample("views", (view_of(draws((3, 3))), view_of(draws((3, 2)))), how))
    found.append(Sample("no matrices", (draws((0, 3, 3)), draws((0, 3, 2))), how))
    found.append(Sample("no columns", (draws((3, 3)), draws((3, 0))), how))
    return found


row(
    "solve_triangular",
    _solve_triangular,
    _triangular(),
    keeps={"a": "a out", "b": "a"},
)


# ---- LU factors ----------------------------------------------------------------------


def _lu_factor(x: Any, dtype: Any = None) -> Any:
    lu, order = np.empty_like(x), np.empty(x.shape[:-1], np.int64)
    for i in np.ndindex(x.shape[:-2]):
        rows, low, up = scipy.linalg.lu(x[i], p_indices=True)
        n = x.shape[-1]
        lu[i] = np.pad(np.tril(low, -1), ((0, 0), (0, n - low.shape[1])))
        lu[i][: len(up)] += up
        order[i] = np.argsort(rows)
    return lu, order


def _with_factors(name: str, shapes: list[Shape], columns: int | None = None) -> Any:
    draws = Drawer(name, ANY)
    found = []
    for kind in (F8, F4, C16):
        for shape in shapes if kind is F8 else shapes[:1]:
            a = spectral(draws, shape, kind)
            lu, order = _lu_factor(a)
            b = () if columns is None else (draws((*shape[:-1], columns), kind),)
            found.append((f"{np.dtype(kind).name} {shape}", (a, *b, lu, order)))
    return found


row(
    "lu_factor",
    _lu_factor,
    [
        Sample(s.label, s.operands, (s.operands[0].dtype,))
        for s in stacks("lu_factor", spectral, ANY_SHAPE)
    ],
)
row(
    "lu_solve",
    lambda a, b, lu, rows, adj: np.linalg.solve(adjoint(a) if adj else a, b),
    [
        Sample(f"{label} {adj}", operands, (adj,))
        for label, operands in _with_factors("lu_solve", SQUARE[:4], 2)
        for adj in (False, True)
    ],
)


def _cofactors(a: Any, lu: Any = None, rows: Any = None) -> Any:
    if not a.size:
        return a
    return np.linalg.det(a)[..., None, None] * np.swapaxes(np.linalg.inv(a), -1, -2)


def _cofactors_moved(a: Any, t: Any, lu: Any, rows: Any) -> Any:
    c = _cofactors(a)
    scale = np.sum(c * t, (-2, -1), keepdims=True)
    moved = scale * c - c @ np.swapaxes(t, -1, -2) @ c
    return moved / np.linalg.det(a)[..., None, None] if a.size else a


for _name, _reference in {
    "det": lambda a, lu, rows: np.asarray(np.linalg.det(a)),
    "slogdet": lambda a, lu, rows: tuple(map(np.asarray, np.linalg.slogdet(a))),
    "cofactors": _cofactors,
}.items():
    row(
        _name,
        _reference,
        [Sample(*case) for case in _with_factors(_name, SQUARE[:4])],
    )
row(
    "cofactors_moved",
    _cofactors_moved,
    [
        Sample(*case)
        for n in (3,)
        for case in _with_factors("cofactors_moved", [(3, 3), (2, 3, 3)], n)
    ],
)
row("inv", np.linalg.inv, stacks("inv", spectral, SQUARE), keeps={"x": "out"})


# ---- functions of matrices -----------------------------------------------------------


def _expm(x: Any) -> Any:
    return scipy.linalg.expm(x) if x.size else x


row(
    "expm",
    _expm,
    stacks("expm", lambda d, s, t: spectral(d, s, t) * np.asarray(0.4, t), SQUARE),
    keeps={"x": "x"},
)


def _pinv(x: Any, rtol: float) -> Any:
    return np.linalg.pinv(x, rtol=rtol)


row(
    "pinv",
    _pinv,
    stacks("pinv", spectral, [(4, 3), (3, 4), (2, 3, 3), (0, 3, 2)], (1e-10,)),
    keeps={"x": "x out"},
)


def _vector_norm(x: Any, order: float, axes: Any, keepdims: bool) -> Any:
    size = np.sum(np.abs(x) ** order, axis=axes, keepdims=keepdims)
    return np.asarray(size ** (1 / order)).astype(x.real.dtype)


def _norms() -> list[Sample]:
    draws = Drawer("vector_norm", ANY)
    found = []
    for order in (2.0, 3.0, 1.5):
        for axes, keepdims in [((0,), False), ((1,), True), ((0, 1), False)]:
            how = (order, axes, keepdims)
            found.append(Sample(f"{how}", (draws((3, 4)),), how))
        how = (order, (1,), False)
        for kind in (F4, C16, C8):
            label = f"{np.dtype(kind).name} {order}"
            found.append(Sample(label, (draws((2, 3), kind),), how))
        found.append(Sample(f"view {order}", (draws.flipped((2, 3)),), how))
        found.append(Sample(f"empty {order}", (draws((2, 0)),), how, heavy=True))
    return found


row("vector_norm", _vector_norm, _norms(), keeps={"x": "x out"})
