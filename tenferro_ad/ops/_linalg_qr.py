"""The QR row and its derivative, for matrices of full column rank.

The diagonal of `r` is real, as LAPACK gives it, and stays so. Of a wide matrix the
leading square is factored; the other columns follow linearly. A rank-deficient matrix
has no derivative: the triangular solution refuses a zero on the diagonal of `r`.

Source: M. Seeger and others, "Auto-differentiating linear algebra" (2017).
"""

from __future__ import annotations

from typing import Any

from .._aval import Aval
from ..errors import NoRuleError
from . import _lapack
from ._batching import leading
from ._lapack import Array, need_matrix
from ._matrices import adjoint, diagonal, on_diagonal, plus, zeros
from ._op import Call, Evaluator, Op, Write, register


def _infer(x: Aval, complete: bool) -> list[tuple[Any, Any]]:
    need_matrix("qr", x)
    *lead, m, n = x.shape
    k = m if complete else min(m, n)
    return [((*lead, m, k), x.dtype), ((*lead, k, n), x.dtype)]


def _need_reduced(call: Call) -> None:
    """Refuse a derivative of columns that only complete a basis: they are arbitrary."""
    m, n = call.ins[0].shape[-2:]
    if call.complete and m > n:
        raise NoRuleError(
            operation="qr",
            argument="x",
            found="no rule for the columns that complete a basis, which are arbitrary",
            fix='pass `mode="reduced"`',
        )


def _qr(call: Call, outs: list[Array], ins: list[Array]) -> None:
    found = _lapack.geqrf(ins[0], complete=call.complete)
    for out, part in zip(outs, found, strict=True):
        out[...] = part


def _scratch(call: Call) -> int:
    rows, cols = call.ins[0].shape[-2:]
    one = max(rows, cols, 16) ** 2 * call.ins[0].dtype.itemsize
    return 3 * call.ins[0].nbytes + 2 * sum(y.nbytes for y in call.outs) + 8 * one


def _columns(F: Evaluator, v: Any, start: int, count: int) -> Any:
    key = (*[(0, n, 1) for n in v.aval.shape[:-1]], (start, count, 1))
    return F.slice(v, key)


def _imag_diagonal(F: Evaluator, v: Any) -> Any:
    return on_diagonal(F, F.mul(F.imag(diagonal(F, v)), 1j))


def _over(F: Evaluator, v: Any, r: Any, *, adj: bool) -> Any:
    """`v r^-1`, or `v r^-H`."""
    found = F.solve_triangular(r, adjoint(F, v), True, not adj, False)
    return adjoint(F, found)


def _back(F: Evaluator, cts: tuple[Any, Any], call: Call, *, q: Any, r: Any) -> Any:
    _need_reduced(call)
    by_q, by_r = cts
    *_, m, n = call.ins[0].shape
    if not call.ins[0].size or (by_q is None and by_r is None):
        return zeros(F, call.ins[0])
    tail = None
    if n > m:
        rest = _columns(F, r, m, n - m)
        if by_r is not None:
            tail = F.matmul(q, by_rest := _columns(F, by_r, m, n - m))
            by_q = plus(F, by_q, F.matmul_nt(F.matmul(q, rest), by_rest))
            by_r = _columns(F, by_r, 0, m)
        r = _columns(F, r, 0, m)
    # The part that turns `q`: see `_push`.
    turn: Any = None if by_q is None else F.matmul_tn(q, by_q)
    if by_r is not None:
        moved = F.matmul_nt(F.triu(by_r, 0), r)
        turn = F.neg(moved) if turn is None else F.sub(turn, moved)
    inner = F.sub(F.tril(F.sub(turn, adjoint(F, turn)), -1), turn)
    if turn.aval.dtype.kind == "c":
        inner = F.add(inner, _imag_diagonal(F, turn))
    found = _over(F, plus(F, by_q, F.matmul(q, inner)), r, adj=True)
    if n <= m:
        return found
    if tail is None:
        shape = call.ins[0].shape
        key = (*[(0, d, 1) for d in shape[:-1]], (0, m, 1))
        return F.place(found, shape, key, 0)
    return F.concat([found, tail], found.aval.ndim - 1)


def _push(F: Evaluator, t: Any, call: Call, *, q: Any, r: Any) -> Any:
    _need_reduced(call)
    *_, m, n = call.ins[0].shape
    if not call.ins[0].size:
        return None
    rest = moved = None
    if n > m:
        rest, moved = _columns(F, r, m, n - m), _columns(F, t, m, n - m)
        r, t = _columns(F, r, 0, m), _columns(F, t, 0, m)
    by_r = _over(F, t, r, adj=False)
    inner = F.matmul_tn(q, by_r)
    lower = F.tril(inner, -1)
    turn = F.sub(lower, adjoint(F, lower))
    if inner.aval.dtype.kind == "c":
        turn = F.add(turn, _imag_diagonal(F, inner))
    dq = F.add(by_r, F.matmul(q, F.sub(turn, inner)))
    dr = F.triu(F.matmul(F.sub(inner, turn), r), 0)
    if rest is None:
        return dq, dr
    # r = q^H x in the other columns, where x = q rest.
    other = F.add(F.matmul_tn(dq, F.matmul(q, rest)), F.matmul_tn(q, moved))
    return dq, F.concat([dr, other], dr.aval.ndim - 1)


register(
    Op(
        "qr",
        ("x",),
        params=("complete",),
        outs=("q", "r"),
        infer=_infer,
        kernel=Write(_qr, _scratch),
        vjp={"x": _back},
        jvp={"x": _push},
        batch=leading(),
    )
)
