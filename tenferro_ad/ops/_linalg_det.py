"""The determinant and its derivatives, right at singular matrices too.

A determinant is a polynomial: its gradient is the conjugate of the matrix of cofactors,
whose derivative in a direction is a polynomial again. Regular matrices use their LU
factors. Nearly singular ones are taken apart once more by the singular value
decomposition, in which cofactors and their derivatives are products of singular values
without a division. From the third derivative on, rules divide by the determinant.

Source: G. Stewart, "On the adjugate matrix" (1998).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._aval import Aval
from . import _lapack
from ._batching import leading
from ._lapack import Array, need_matrix
from ._linalg_lu import no_derivative
from ._matrices import matmuls, turned
from ._op import Call, Evaluator, Op, Write, register


def _det_infer(a: Aval, lu: Aval, rows: Aval) -> tuple[Any, Any]:
    need_matrix("det", a, square=True)
    return a.shape[:-2], a.dtype


def _det_of(lu: Array, rows: Array) -> Any:
    return np.prod(np.diagonal(lu)) * _lapack.parity(rows)


def _det(call: Call, outs: list[Array], ins: list[Array]) -> None:
    _, lu, rows = ins
    for i in np.ndindex(outs[0].shape):
        outs[0][i] = _det_of(lu[i], rows[i])


# ---- cofactors -----------------------------------------------------------------------


def _is_regular(lu: Array) -> bool:
    """Whether no pivot is small beside the largest: a factor of `eps ** (1 / 3)`."""
    size = np.abs(np.diagonal(lu))
    eps = float(np.finfo(lu.dtype).eps)
    return bool(size.min() > eps ** (1 / 3) * np.abs(lu).max())


def _regular_cofactors(lu: Array, rows: Array) -> Array:
    eye = np.eye(len(lu), dtype=lu.dtype)
    found = _lapack.getrs(lu, rows, eye, adjoint=True).conj()
    found *= _det_of(lu, rows)
    return found


def _others(s: Array) -> Array:
    """Products of all numbers but one."""
    n = len(s)
    table = np.broadcast_to(s, (n, n)).copy()
    np.fill_diagonal(table, 1)
    return np.prod(table, 1)  # type: ignore[no-any-return]


def _others_by_two(s: Array) -> Array:
    """Products of all numbers but two, as a matrix with a zero diagonal."""
    n = len(s)
    found = np.zeros((n, n), s.dtype)
    for i in range(n):
        rest = s.copy()
        rest[i] = 1
        found[i] = _others(rest)
    np.fill_diagonal(found, 0)
    return found


def _taken_apart(a: Array) -> tuple[Array, Array, Array, Any]:
    u, s, vh = _lapack.gesdd(a)
    # Factors that are singular to rounding are singular.
    s[s <= 2 * len(s) * np.finfo(s.dtype).eps * s[0]] = 0
    return u, s, vh, np.linalg.det(u) * np.linalg.det(vh)


def _cofactors(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (a, lu, rows), (out,) = ins, outs
    if not a.size:
        return
    for i in np.ndindex(a.shape[:-2]):
        if _is_regular(lu[i]):
            out[i] = _regular_cofactors(lu[i], rows[i])
        else:
            u, s, vh, phase = _taken_apart(a[i])
            out[i] = phase * ((u.conj() * _others(s)) @ vh.conj())


def _cofactors_moved(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (a, t, lu, rows), (out,) = ins, outs
    if not a.size:
        return
    for i in np.ndindex(a.shape[:-2]):
        if _is_regular(lu[i]):
            c = _regular_cofactors(lu[i], rows[i])
            moved = np.sum(c * t[i]) * c
            moved -= c @ t[i].T @ c
            out[i] = moved / _det_of(lu[i], rows[i])
        else:
            u, s, vh, phase = _taken_apart(a[i])
            inner = u.conj().T @ t[i] @ vh.conj().T
            rest = _others_by_two(s)
            moved = np.diag(rest @ np.diagonal(inner)) - rest * inner.T
            out[i] = phase * (u.conj() @ moved @ vh.conj())


def _scratch(call: Call) -> int:
    n = call.out.shape[-1]
    return 16 * call.out.dtype.itemsize * (n * n + 8 * n)


# ---- rules ---------------------------------------------------------------------------


def _scaled(F: Evaluator, v: Any, matrix: Any) -> Any:
    return F.mul(F.reshape(v, (*v.aval.shape, 1, 1)), matrix)


def _det_back(F: Evaluator, ct: Any, call: Call, *, a: Any, lu: Any, rows: Any) -> Any:
    return _scaled(F, ct, F.conj(F.cofactors(a, lu, rows)))


def _det_push(F: Evaluator, t: Any, call: Call, *, a: Any, lu: Any, rows: Any) -> Any:
    return _dot(F, F.cofactors(a, lu, rows), t)


def _dot(F: Evaluator, x: Any, y: Any) -> Any:
    n = x.aval.ndim
    return F.sum(F.mul(x, y), (n - 2, n - 1), False)


# The derivative of the cofactors in direction t is the gradient of a symmetric bilinear
# form: it is its own transpose.
def _cofactors_back(
    F: Evaluator, ct: Any, call: Call, *, a: Any, lu: Any, rows: Any
) -> Any:
    return F.conj(F.cofactors_moved(a, F.conj(ct), lu, rows))


def _cofactors_push(
    F: Evaluator, t: Any, call: Call, *, a: Any, lu: Any, rows: Any
) -> Any:
    return F.cofactors_moved(a, t, lu, rows)


def _second(F: Evaluator, t: Any, h: Any, a: Any, lu: Any, rows: Any) -> Any:
    """The second derivative of the cofactors in the directions t and h."""
    c = F.cofactors(a, lu, rows)
    by_t, by_h = F.cofactors_moved(a, t, lu, rows), F.cofactors_moved(a, h, lu, rows)
    turn = turned(F, t)
    found = F.add(_scaled(F, _dot(F, by_h, t), c), _scaled(F, _dot(F, c, t), by_h))
    found = F.sub(found, matmuls(F, by_h, turn, c))
    found = F.sub(found, matmuls(F, c, turn, by_h))
    found = F.sub(found, _scaled(F, _dot(F, c, h), by_t))
    return _scaled(F, F.reciprocal(F.det(a, lu, rows)), found)


def _moved_by_a(
    F: Evaluator, ct: Any, call: Call, *, a: Any, t: Any, lu: Any, rows: Any
) -> Any:
    return F.conj(_second(F, t, F.conj(ct), a, lu, rows))


def _moved_by_t(
    F: Evaluator, ct: Any, call: Call, *, a: Any, lu: Any, rows: Any
) -> Any:
    return F.conj(F.cofactors_moved(a, F.conj(ct), lu, rows))


def _push_a(
    F: Evaluator, dt: Any, call: Call, *, a: Any, t: Any, lu: Any, rows: Any
) -> Any:
    return _second(F, t, dt, a, lu, rows)


def _push_t(F: Evaluator, dt: Any, call: Call, *, a: Any, lu: Any, rows: Any) -> Any:
    return F.cofactors_moved(a, dt, lu, rows)


_CONSTANT = {"lu": no_derivative, "rows": no_derivative}
register(
    Op(
        "det",
        ("a", "lu", "rows"),
        infer=_det_infer,
        kernel=Write(_det, lambda call: 256 + 64 * call.ins[0].shape[-1]),
        vjp={"a": _det_back, **_CONSTANT},
        jvp={"a": _det_push, **_CONSTANT},
        batch=leading(),
    )
)
register(
    Op(
        "cofactors",
        ("a", "lu", "rows"),
        infer=lambda a, lu, rows: (a.shape, a.dtype),
        kernel=Write(_cofactors, _scratch),
        vjp={"a": _cofactors_back, **_CONSTANT},
        jvp={"a": _cofactors_push, **_CONSTANT},
        batch=leading(),
    )
)
register(
    Op(
        "cofactors_moved",
        ("a", "t", "lu", "rows"),
        infer=lambda a, t, lu, rows: (a.shape, a.dtype),
        kernel=Write(_cofactors_moved, _scratch),
        vjp={"a": _moved_by_a, "t": _moved_by_t, **_CONSTANT},
        jvp={"a": _push_a, "t": _push_t, **_CONSTANT},
        batch=leading(),
    )
)
