"""Rows on LU factors: factors once, then solutions, inverses and determinants.

`lu_factor` gives packed factors and the order of rows. Rows that take a matrix and its
factors are functions of the matrix: the factors say how to compute, they carry no
derivative, and rules hand them on. So a factorisation serves the value and every order
of derivative. `lu_solve` refines its solution once with the matrix itself.

Sources: M. Giles, "An extended collection of matrix derivative results" (2008); R.
Skeel, "Iterative refinement implies numerical stability for Gaussian elimination"
(1980).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._aval import Aval
from . import _conventions as say
from . import _lapack
from ._batching import leading
from ._lapack import Array, need_matrix
from ._linalg_triangular import by_columns, same_stack
from ._matrices import adjoint, column, identity, plus
from ._op import Call, Evaluator, Op, Write, expand, project, register

_ROWS_DTYPE = np.dtype(np.int64)


# ---- factors -------------------------------------------------------------------------


def _factor_infer(x: Aval, dtype: np.dtype[Any]) -> list[tuple[Any, Any]]:
    need_matrix("lu", x)
    return [(x.shape, dtype), (x.shape[:-1], _ROWS_DTYPE)]


def _factor(call: Call, outs: list[Array], ins: list[Array]) -> None:
    _lapack.getrf(ins[0].astype(call.dtype, copy=False), outs[0], outs[1])


def _one_nbytes(call: Call) -> int:
    rows, cols = call.ins[0].shape[-2:]
    return rows * cols * call.ins[0].dtype.itemsize + 64 * rows


def _triangles(F: Evaluator, lu: Any) -> tuple[Any, Any]:
    """Square factors; what the packed ones lack is the identity's."""
    *lead, m, n = lu.aval.shape
    k = min(m, n)
    low, up = lu, lu
    whole = tuple((0, d, 1) for d in lead)
    if n > k or n < m:
        key = (*whole, (0, m, 1), (0, k, 1))
        low = F.place(F.slice(lu, key), (*lead, m, m), key, 0)
    if m > k or m < n:
        key = (*whole, (0, k, 1), (0, n, 1))
        up = F.place(F.triu(F.slice(lu, key), 0), (*lead, n, n), key, 0)
        tail = F.full((n - k,), lu.aval.dtype, 1, lu.aval.device)
        ones = F.place(tail, (n,), ((k, n - k, 1),), 0)
        up = F.add(up, F.place_diagonal(ones, (n, n), 0, 0, 1))
    return low, up


def _along_rows(F: Evaluator, v: Any, rows: Any) -> Any:
    return F.broadcast_to(column(F, rows), v.aval.shape)


def _factor_back(
    F: Evaluator, cts: tuple[Any, Any], call: Call, *, lu: Any, rows: Any
) -> Any:
    ct = cts[0]
    if ct is None:
        return None
    low, up = _triangles(F, lu)
    z = F.add(
        F.tril(_low_adjoint_times(F, low, F.tril(ct, -1)), -1),
        F.triu(F.matmul_nt(F.triu(ct, 0), F.triu(up, 0)), 0),
    )
    z = F.solve_triangular(low, z, False, True, True)
    z = adjoint(F, F.solve_triangular(up, adjoint(F, z), True, False, False))
    *_, m, _ = z.aval.shape
    g = F.add_along_axis(z, _along_rows(F, z, rows), z.aval.ndim - 2, m)
    return project(F, g, call.ins[0])


def _low_adjoint_times(F: Evaluator, low: Any, v: Any) -> Any:
    return F.add(F.matmul_tn(F.tril(low, -1), v), v)


def _factor_push(F: Evaluator, t: Any, call: Call, *, lu: Any, rows: Any) -> Any:
    low, up = _triangles(F, lu)
    t = expand(F, t, call.out)
    z = F.take_along_axis(t, _along_rows(F, t, rows), t.aval.ndim - 2)
    z = F.solve_triangular(low, z, False, False, True)
    z = adjoint(F, F.solve_triangular(up, adjoint(F, z), True, True, False))
    strict = F.tril(z, -1)
    moved = F.add(F.matmul(F.tril(low, -1), strict), strict)
    return F.add(moved, F.matmul(F.triu(z, 0), F.triu(up, 0))), None


register(
    Op(
        "lu_factor",
        ("x",),
        params=("dtype",),  # of the factors: at least that of `x`
        outs=("lu", "rows"),
        infer=_factor_infer,
        kernel=Write(_factor, lambda call: call.outs[0].nbytes + 2 * _one_nbytes(call)),
        vjp={"x": _factor_back},
        jvp={"x": _factor_push},
        batch=leading(),
        kink=say.PIVOTS,
    )
)


# ---- solutions -----------------------------------------------------------------------


def _solve_infer(a: Aval, b: Aval, lu: Aval, rows: Aval, adj: bool) -> tuple[Any, Any]:
    need_matrix("solve", a, square=True)
    need_matrix("solve", b)
    same_stack("solve", a, b)
    return b.shape, np.result_type(a.dtype, b.dtype)


def _solve(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (a, b, lu, rows), (out,) = ins, outs
    dtype = out.dtype
    for i in np.ndindex(a.shape[:-2]):
        matrix, right = a[i].astype(dtype, copy=False), b[i].astype(dtype, copy=False)
        factors = lu[i].astype(dtype, copy=False)
        x = _lapack.getrs(factors, rows[i], right, adjoint=call.adj)
        used = matrix.conj().T if call.adj else matrix
        x += _lapack.getrs(factors, rows[i], right - used @ x, adjoint=call.adj)
        out[i] = x


def _solve_scratch(call: Call) -> int:
    n, k = call.ins[1].shape[-2:]
    size = call.out.dtype.itemsize
    return size * (4 * n * n + 5 * n * k)


def _solve_check(call: Call, ins: list[Array]) -> None:
    _lapack.need_diagonal("solve", ins[2])


def no_derivative(F: Evaluator, ct: Any, call: Call) -> None:
    """Factors carry no derivative."""


def _solve_a(
    F: Evaluator, ct: Any, call: Call, *, a: Any, lu: Any, rows: Any, out: Any
) -> Any:
    b = F.lu_solve(a, ct, lu, rows, not call.adj)
    return F.neg(F.matmul_nt(out, b) if call.adj else F.matmul_nt(b, out))


def _solve_b(F: Evaluator, ct: Any, call: Call, *, a: Any, lu: Any, rows: Any) -> Any:
    return F.lu_solve(a, ct, lu, rows, not call.adj)


def _push_a(
    F: Evaluator, t: Any, call: Call, *, a: Any, lu: Any, rows: Any, out: Any
) -> Any:
    moved = F.matmul_tn(t, out) if call.adj else F.matmul(t, out)
    return F.neg(F.lu_solve(a, moved, lu, rows, call.adj))


def _push_b(F: Evaluator, t: Any, call: Call, *, a: Any, lu: Any, rows: Any) -> Any:
    return F.lu_solve(a, t, lu, rows, call.adj)


register(
    Op(
        "lu_solve",
        ("a", "b", "lu", "rows"),
        params=("adj",),
        infer=_solve_infer,
        kernel=Write(_solve, _solve_scratch, check=_solve_check),
        vjp={"a": _solve_a, "b": _solve_b, "lu": no_derivative, "rows": no_derivative},
        jvp={"a": _push_a, "b": _push_b, "lu": no_derivative, "rows": no_derivative},
        batch=by_columns,
    )
)


# ---- inverse -------------------------------------------------------------------------


def _inv_infer(x: Aval) -> tuple[Any, Any]:
    need_matrix("inv", x, square=True)
    return x.shape, x.dtype


def _inv(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (x,), (out,) = ins, outs
    lu, rows = np.empty_like(x, subok=False), np.empty(x.shape[:-1], _ROWS_DTYPE)
    _lapack.getrf(x, lu, rows)
    _lapack.need_diagonal("inv", lu)
    eye = np.eye(x.shape[-1], dtype=x.dtype)
    for i in np.ndindex(x.shape[:-2]):
        out[i] = _lapack.getrs(lu[i], rows[i], eye, adjoint=False)


def _inv_back(F: Evaluator, ct: Any, call: Call, *, out: Any) -> Any:
    return F.neg(F.matmul_tn(out, F.matmul_nt(ct, out)))


register(
    Op(
        "inv",
        ("x",),
        infer=_inv_infer,
        kernel=Write(
            _inv,
            lambda call: call.out.nbytes + 8 * call.out.size + 7 * _one_nbytes(call),
        ),
        vjp={"x": _inv_back},
        jvp={"x": lambda F, t, call, *, out: F.neg(F.matmul(out, F.matmul(t, out)))},
        batch=leading(),
    )
)


# ---- logarithm of the determinant ----------------------------------------------------


def _slogdet_infer(a: Aval, lu: Aval, rows: Aval) -> list[tuple[Any, Any]]:
    need_matrix("slogdet", a, square=True)
    real = np.dtype(a.dtype.char.lower())
    return [(a.shape[:-2], a.dtype), (a.shape[:-2], real)]


def _slogdet(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (_, lu, rows), (sign, log) = ins, outs
    pivots = np.diagonal(lu, 0, -2, -1)
    size = np.abs(pivots)
    np.sum(np.log(size), -1, out=log)
    unit = np.where(size == 0, 0, pivots / size)
    for i in np.ndindex(sign.shape):
        sign[i] = _lapack.parity(rows[i]) * np.prod(unit[i])


def _inverse_adjoint(F: Evaluator, a: Any, lu: Any, rows: Any) -> Any:
    return F.lu_solve(a, identity(F, a.aval), lu, rows, True)


def _slogdet_back(
    F: Evaluator, cts: tuple[Any, Any], call: Call, *, a: Any, lu: Any, rows: Any
) -> Any:
    by_sign, weight = cts
    if by_sign is not None:
        weight = plus(F, weight, _by_phase(F, by_sign, a, lu, rows))
    if weight is None:
        return None
    scale = F.reshape(weight, (*weight.aval.shape, 1, 1))
    return F.mul(scale, _inverse_adjoint(F, a, lu, rows))


def _by_phase(F: Evaluator, ct: Any, a: Any, lu: Any, rows: Any) -> Any:
    """The sign of a complex determinant turns with it; a real one is constant."""
    if ct.aval.dtype.kind != "c":
        return None
    sign, _ = F.slogdet(a, lu, rows)
    turn = F.imag(F.mul(F.conj(sign), ct))
    return F.mul(turn, 1j)


def _slogdet_push(
    F: Evaluator, t: Any, call: Call, *, a: Any, lu: Any, rows: Any
) -> Any:
    rate = F.sum(
        F.mul(F.conj(_inverse_adjoint(F, a, lu, rows)), t),
        (a.aval.ndim - 2, a.aval.ndim - 1),
        False,
    )
    if a.aval.dtype.kind != "c":
        return None, rate
    sign, _ = F.slogdet(a, lu, rows)
    return F.mul(sign, F.mul(F.imag(rate), 1j)), F.real(rate)


register(
    Op(
        "slogdet",
        ("a", "lu", "rows"),
        outs=("sign", "logabsdet"),
        infer=_slogdet_infer,
        kernel=Write(
            _slogdet,
            lambda call: 8 * call.ins[0].dtype.itemsize * call.ins[2].size + 64,
        ),
        vjp={"a": _slogdet_back, "lu": no_derivative, "rows": no_derivative},
        jvp={"a": _slogdet_push, "lu": no_derivative, "rows": no_derivative},
        batch=leading(),
    )
)
