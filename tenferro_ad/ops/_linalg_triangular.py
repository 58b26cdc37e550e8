"""Triangular rows: Cholesky factors and solving with one triangle.

`cholesky` is a function of the Hermitian part of its argument, so its gradient is
Hermitian. Source: I. Murray, "Differentiation of the Cholesky decomposition" (2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._aval import Aval
from ..errors import ShapeError
from . import _lapack
from ._batching import apply, leading, moved
from ._lapack import Array, need_matrix
from ._matrices import adjoint, diagonal, hermitian, on_diagonal, real
from ._op import Call, Evaluator, Op, Write, register

# ---- solving with a triangle ---------------------------------------------------------


def _solve_infer(
    a: Aval, b: Aval, upper: bool, adj: bool, unit: bool
) -> tuple[Any, Any]:
    need_matrix("solve_triangular", a, square=True)
    need_matrix("solve_triangular", b)
    same_stack("solve_triangular", a, b)
    return b.shape, np.result_type(a.dtype, b.dtype)


def same_stack(operation: str, a: Aval, b: Aval) -> None:
    """Refuse a right-hand side that does not belong to the matrices.

    Raises:
        ShapeError: names the operation and both shapes.
    """
    if a.shape[:-1] != b.shape[:-1]:
        raise ShapeError(
            operation=operation,
            argument="b",
            found=f"shape {b.shape} for matrices of shape {a.shape}",
            fix="make the rows and the leading axes equal",
        )


def _solve(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (a, b), (out,) = ins, outs
    for i in np.ndindex(a.shape[:-2]):
        out[i] = _lapack.trsm(
            a[i].astype(out.dtype, copy=False),
            b[i].astype(out.dtype, copy=False),
            lower=not call.upper,
            adjoint=call.adj,
            unit=call.unit,
        )


def _solve_check(call: Call, ins: list[Array]) -> None:
    if not call.unit:
        _lapack.need_diagonal("solve_triangular", ins[0])


def _matrix_nbytes(call: Call, *which: int) -> int:
    """Bytes of single matrices of the stacks, in the result's dtype."""
    sizes = [x.shape[-1] * x.shape[-2] for x in call.ins]
    return sum(sizes[k] for k in which) * call.outs[0].dtype.itemsize


def _triangle(F: Evaluator, v: Any, call: Call) -> Any:
    if call.upper:
        return F.triu(v, 1 if call.unit else 0)
    return F.tril(v, -1 if call.unit else 0)


def _solved(F: Evaluator, a: Any, b: Any, call: Call, *, flip: bool = False) -> Any:
    return F.solve_triangular(a, b, call.upper, call.adj != flip, call.unit)


def _solve_a(F: Evaluator, ct: Any, call: Call, *, a: Any, out: Any) -> Any:
    b = _solved(F, a, ct, call, flip=True)
    g = F.matmul_nt(out, b) if call.adj else F.matmul_nt(b, out)
    return F.neg(_triangle(F, g, call))


def _solve_b(F: Evaluator, ct: Any, call: Call, *, a: Any) -> Any:
    return _solved(F, a, ct, call, flip=True)


def _push_a(F: Evaluator, t: Any, call: Call, *, a: Any, out: Any) -> Any:
    t = _triangle(F, t, call)
    moved = F.matmul_tn(t, out) if call.adj else F.matmul(t, out)
    return F.neg(_solved(F, a, moved, call))


def by_columns(
    F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> Any:
    """Batching of `op(a, b, ...)`: right-hand sides of the same matrices are columns of
    one system, so that factors are shared."""
    if [k for k, b in enumerate(batched) if b] != [1]:
        return leading()(F, call, size, xs, batched)
    *lead, n, k = call.ins[1].shape
    at = len(lead) + 1
    columns = F.regroup(moved(F, xs[1], 0, at), (*lead, n, size * k))
    found = apply(F, call, (xs[0], columns, *xs[2:]), call.params)
    return moved(F, F.regroup(found, (*lead, n, size, k)), at, 0)


# Both operands have the result's dtype and the same leading axes.
register(
    Op(
        "solve_triangular",
        ("a", "b"),
        params=("upper", "adj", "unit"),
        infer=_solve_infer,
        kernel=Write(
            _solve,
            lambda call: _matrix_nbytes(call, 0, 1, 1, 1),
            check=_solve_check,
        ),
        vjp={"a": _solve_a, "b": _solve_b},
        jvp={"a": _push_a, "b": lambda F, t, call, *, a: _solved(F, a, t, call)},
        batch=by_columns,
    )
)


# ---- Cholesky ------------------------------------------------------------------------


def _cholesky_infer(x: Aval) -> tuple[Any, Any]:
    need_matrix("cholesky", x, square=True)
    return x.shape, x.dtype


def _cholesky(call: Call, outs: list[Array], ins: list[Array]) -> None:
    outs[0][...] = _lapack.potrf(_lapack.hermitian_part(ins[0]))


def _cholesky_scratch(call: Call) -> int:
    # NumPy factors in double precision whatever the dtype is.
    is_single = call.out.dtype.char in "fF"
    return (6 if is_single else 3) * call.out.nbytes


def _lower_half(F: Evaluator, v: Any) -> Any:
    """The lower triangle with half of the real diagonal."""
    half = F.mul(real(F, diagonal(F, v)), 0.5)
    found = on_diagonal(F, half)
    return F.add(F.tril(v, -1), found)


def _cholesky_back(F: Evaluator, ct: Any, call: Call, *, out: Any) -> Any:
    p = _lower_half(F, F.matmul_tn(out, F.tril(ct, 0)))
    s = F.solve_triangular(out, p, False, True, False)
    s = adjoint(F, F.solve_triangular(out, adjoint(F, s), False, True, False))
    return hermitian(F, s)


def _cholesky_push(F: Evaluator, t: Any, call: Call, *, out: Any) -> Any:
    s = F.solve_triangular(out, hermitian(F, t), False, False, False)
    s = F.solve_triangular(out, adjoint(F, s), False, False, False)
    return F.matmul(out, _lower_half(F, s))


register(
    Op(
        "cholesky",
        ("x",),
        infer=_cholesky_infer,
        kernel=Write(_cholesky, _cholesky_scratch),
        vjp={"x": _cholesky_back},
        jvp={"x": _cholesky_push},
        batch=leading(),
    )
)
