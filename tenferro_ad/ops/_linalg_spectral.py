"""Spectral rows: `eigh`, `svd`, `eig`.

`eigh` is a function of the Hermitian part of its argument. Values alone never touch the
differences of values, so their derivatives are finite wherever values coincide. Those
of vectors divide by differences: a difference that is rounding, or a numerator that is
rounding beside a small difference, counts as none. So results are finite at equal and
nearly equal values, and right for losses that do not depend on the basis of the space
that belongs to them. Second derivatives of values would divide differences of their
cotangents by differences of the values: between equal values that is a limit which no
cotangent tells, and it is left out; between values 1e-8 apart it is right to as many
digits. `gap` is the difference that counts as rounding, in units of
rounding of the largest value. Vectors move orthogonally to themselves: the phase is not
moved, except that `svd` keeps the phase of `vh` fixed and lets `u` turn against it.

Sources: M. Giles, "An extended collection of matrix derivative results" (2008); Z. Wan
and S. Zhang, "Automatic differentiation for complex valued SVD" (2019).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._aval import Aval
from ..errors import NoRuleError
from . import _conventions as say
from . import _lapack
from ._batching import leading
from ._lapack import Array, need_matrix
from ._matrices import (
    adjoint,
    column,
    diagonal,
    gaps,
    hermitian,
    matmuls,
    on_diagonal,
    over_gaps,
    plus,
    real,
    reciprocal,
    row,
    zeros,
)
from ._op import Call, Evaluator, Op, Write, register


def _real(x: Aval) -> np.dtype[Any]:
    return np.dtype(x.dtype.char.lower())


def _matrix_nbytes(call: Call) -> int:
    rows, cols = call.ins[0].shape[-2:]
    return max(rows, cols, 16) ** 2 * np.dtype(call.ins[0].dtype).itemsize


def _results(call: Call) -> int:
    return sum(y.nbytes for y in call.outs)


# ---- Hermitian eigenvalues -----------------------------------------------------------


def _eigh_infer(x: Aval, gap: float) -> list[tuple[Any, Any]]:
    need_matrix("eigh", x, square=True)
    return [(x.shape[:-1], _real(x)), (x.shape, x.dtype)]


def _eigh(call: Call, outs: list[Array], ins: list[Array]) -> None:
    outs[0][...], outs[1][...] = _lapack.heevd(_lapack.hermitian_part(ins[0]))


def _eigh_back(
    F: Evaluator, cts: tuple[Any, Any], call: Call, *, w: Any, v: Any
) -> Any:
    by_w, by_v = cts
    inner = None if by_w is None else on_diagonal(F, by_w)
    if by_v is not None and v.aval.size:
        g = F.matmul_tn(v, by_v)
        skew = F.mul(F.sub(g, adjoint(F, g)), 0.5)
        inner = plus(F, inner, over_gaps(F, skew, gaps(F, w), w, g, call.gap))
    if inner is None:
        return zeros(F, call.ins[0])
    return hermitian(F, F.matmul_nt(F.matmul(v, inner), v))


def _eigh_push(F: Evaluator, t: Any, call: Call, *, w: Any, v: Any) -> Any:
    if not v.aval.size:
        return None
    m = matmuls(F, F.matmul_tn(v, hermitian(F, t)), v)
    moved = F.matmul(v, over_gaps(F, m, gaps(F, w), w, m, call.gap))
    return real(F, diagonal(F, m)), moved


register(
    Op(
        "eigh",
        ("x",),
        params=("gap",),
        outs=("w", "v"),
        infer=_eigh_infer,
        kernel=Write(
            _eigh,
            lambda call: (
                3 * call.ins[0].nbytes + _results(call) + 8 * _matrix_nbytes(call)
            ),
        ),
        vjp={"x": _eigh_back},
        jvp={"x": _eigh_push},
        batch=leading(),
        kink=say.SPECTRUM,
    )
)


# ---- singular values -----------------------------------------------------------------


def _svd_infer(x: Aval, full: bool, gap: float) -> list[tuple[Any, Any]]:
    need_matrix("svd", x)
    *lead, m, n = x.shape
    k = min(m, n)
    rows, cols = (m, n) if full else (k, k)
    return [
        ((*lead, m, rows), x.dtype),
        ((*lead, k), _real(x)),
        ((*lead, cols, n), x.dtype),
    ]


def _need_thin(call: Call) -> None:
    """Refuse a derivative of vectors that only complete a basis: they are arbitrary."""
    m, n = call.ins[0].shape[-2:]
    if call.full and m != n:
        raise NoRuleError(
            operation="svd",
            argument="x",
            found="no rule for the vectors that complete a basis, which are arbitrary",
            fix="pass `full_matrices=False`",
        )


def _svd(call: Call, outs: list[Array], ins: list[Array]) -> None:
    found = _lapack.gesdd(ins[0], full=call.full)
    for out, part in zip(outs, found, strict=True):
        out[...] = part


def _sums(F: Evaluator, s: Any) -> Any:
    return F.add(row(F, s), column(F, s))


def _split(F: Evaluator, x: Any, y: Any, s: Any, terms: Any, gap: float) -> Any:
    """`(x[i, j] s[j] + y[i, j] s[i]) / (s[j] ** 2 - s[i] ** 2)` without cancellation:
    what turns both bases alike divides by a difference, the rest by a sum."""
    alike = F.mul(F.add(x, y), 0.5)
    apart = F.mul(F.sub(x, y), 0.5)
    return F.add(
        over_gaps(F, alike, gaps(F, s), s, terms, gap),
        over_gaps(F, apart, _sums(F, s), s, terms, gap),
    )


def _svd_back(
    F: Evaluator,
    cts: tuple[Any, Any, Any],
    call: Call,
    *,
    u: Any,
    s: Any,
    vh: Any,
) -> Any:
    _need_thin(call)
    by_u, by_s, by_vh = cts
    if not s.aval.size:
        return zeros(F, call.ins[0])
    inner = None if by_s is None else on_diagonal(F, by_s)
    left = right = None
    inv = reciprocal(F, s)
    gu: Any = None if by_u is None else F.matmul_tn(u, by_u)
    gv: Any = None if by_vh is None else F.matmul_nt(vh, by_vh)
    if gu is not None or gv is not None:
        none = zeros(F, (gu if gu is not None else gv).aval)
        x = none if gu is None else F.sub(gu, adjoint(F, gu))
        y = none if gv is None else F.sub(gv, adjoint(F, gv))
        terms = gu if gv is None else gv if gu is None else _both(F, gu, gv)
        inner = plus(F, inner, _split(F, x, y, s, terms, call.gap))
    m, n = call.ins[0].shape[-2:]
    if inner is not None and inner.aval.dtype.kind == "c":
        # The phase that both bases share turns `u` alone: see `_svd_push`.
        phases = [F.imag(diagonal(F, g)) for g in (gu, gv) if g is not None]
        turn = F.mul(phases[0] if len(phases) == 1 else F.add(*phases), inv)
        inner = F.add(inner, on_diagonal(F, F.mul(turn, 0.5j)))
    if gu is not None and m > n:
        left = F.mul(F.sub(by_u, F.matmul(u, gu)), row(F, inv))
    if gv is not None and n > m:
        rest = F.sub(by_vh, F.matmul(adjoint(F, gv), vh))
        right = F.mul(rest, column(F, inv))
    found = None
    if inner is not None:
        body = F.matmul(u, inner)
        found = F.matmul(body if left is None else F.add(body, left), vh)
    if right is not None:
        found = plus(F, found, F.matmul(u, right))
    return zeros(F, call.ins[0]) if found is None else found


def _both(F: Evaluator, x: Any, y: Any) -> Any:
    return F.maximum(F.abs(F.stop_gradient(x)), F.abs(F.stop_gradient(y)))


def _svd_push(F: Evaluator, t: Any, call: Call, *, u: Any, s: Any, vh: Any) -> Any:
    _need_thin(call)
    if not s.aval.size:
        return None
    m, n = call.ins[0].shape[-2:]
    tv = F.matmul_nt(t, vh)
    inner = F.matmul_tn(u, tv)
    bar = adjoint(F, inner)
    even, odd = F.mul(F.add(inner, bar), 0.5), F.mul(F.sub(inner, bar), 0.5)
    alike = over_gaps(F, even, gaps(F, s), s, inner, call.gap)
    apart = over_gaps(F, odd, _sums(F, s), s, inner, call.gap)
    inv = reciprocal(F, s)
    turn_u, turn_v = F.add(alike, apart), F.sub(alike, apart)
    if inner.aval.dtype.kind == "c":
        # On the diagonal both halves of the phase belong to `u`.
        own = on_diagonal(F, diagonal(F, apart))
        turn_u, turn_v = F.add(turn_u, own), F.add(turn_v, own)
    du = F.matmul(u, turn_u)
    dvh = F.matmul(adjoint(F, turn_v), vh)
    if m > n:
        rest = F.sub(tv, F.matmul(u, inner))
        du = F.add(du, F.mul(rest, row(F, inv)))
    if n > m:
        rest = F.sub(F.matmul_tn(u, t), F.matmul(inner, vh))
        dvh = F.add(dvh, F.mul(rest, column(F, inv)))
    return du, real(F, diagonal(F, inner)), dvh


def _svd_scratch(call: Call) -> int:
    return call.ins[0].nbytes + _results(call) + 16 * _matrix_nbytes(call)


register(
    Op(
        "svd",
        ("x",),
        params=("full", "gap"),
        outs=("u", "s", "vh"),
        infer=_svd_infer,
        kernel=Write(_svd, _svd_scratch),
        vjp={"x": _svd_back},
        jvp={"x": _svd_push},
        batch=leading(),
        kink=say.SPECTRUM,
    )
)

# ---- general eigenvalues -------------------------------------------------------------


def _eig_infer(x: Aval, gap: float) -> list[tuple[Any, Any]]:
    need_matrix("eig", x, square=True)
    dtype = np.result_type(x.dtype, np.complex64)
    return [(x.shape[:-1], dtype), (x.shape, dtype)]


def _eig(call: Call, outs: list[Array], ins: list[Array]) -> None:
    outs[0][...], outs[1][...] = _lapack.geev(ins[0])


def _eig_scratch(call: Call) -> int:
    """NumPy takes complex numbers in double precision, and rounds what it gives."""
    x = call.ins[0]
    doubles = 16 * (x.size + sum(y.size for y in call.outs))
    return doubles + _results(call) + 8 * _matrix_nbytes(call)


def _eig_back(F: Evaluator, cts: tuple[Any, Any], call: Call, *, w: Any, v: Any) -> Any:
    by_w, by_v = cts
    if not v.aval.size or (by_w is None and by_v is None):
        return zeros(F, call.ins[0])
    inner = None if by_w is None else on_diagonal(F, by_w)
    if by_v is not None:
        g = F.matmul_tn(v, by_v)
        rest = F.sub(g, F.mul(F.matmul_tn(v, v), row(F, diagonal(F, g))))
        inner = plus(
            F, inner, over_gaps(F, rest, F.conj(gaps(F, w)), _sizes(F, w), g, call.gap)
        )
    inverse = F.inv(v)
    found = F.matmul_tn(inverse, F.matmul_nt(inner, v))
    return found if call.ins[0].dtype.kind == "c" else F.real(found)


def _sizes(F: Evaluator, w: Any) -> Any:
    return F.abs(F.stop_gradient(w))


def _eig_push(F: Evaluator, t: Any, call: Call, *, w: Any, v: Any) -> Any:
    if not v.aval.size:
        return None
    m = matmuls(F, F.inv(v), t, v)
    turn = F.matmul(v, over_gaps(F, m, gaps(F, w), _sizes(F, w), m, call.gap))
    along = F.sum(F.mul(F.conj(v), turn), (v.aval.ndim - 2,), True)
    return diagonal(F, m), F.sub(turn, F.mul(v, along))


register(
    Op(
        "eig",
        ("x",),
        params=("gap",),
        outs=("w", "v"),
        infer=_eig_infer,
        kernel=Write(_eig, _eig_scratch),
        vjp={"x": _eig_back},
        jvp={"x": _eig_push},
        batch=leading(),
    )
)
