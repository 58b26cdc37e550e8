"""The determinant and its derivatives, right at singular matrices too.

A determinant is a polynomial: its gradient is the conjugate of the matrix of cofactors,
whose derivatives in directions are polynomials again. One operation for each number of
directions, each the derivative of the one before, so every order is right everywhere;
`_cofactors.py` computes them.
"""

from __future__ import annotations

from functools import cache
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from .._aval import Aval
from . import _conventions as say
from ._batching import leading
from ._cofactors import cofactors_along, det_of
from ._lapack import Array, need_matrix
from ._linalg_lu import no_derivative
from ._op import Call, Evaluator, Op, Write, register


def _det_infer(a: Aval, lu: Aval, rows: Aval) -> tuple[Any, Any]:
    need_matrix("det", a, square=True)
    return a.shape[:-2], a.dtype


def _det(call: Call, outs: list[Array], ins: list[Array]) -> None:
    _, lu, rows = ins
    for i in np.ndindex(outs[0].shape):
        outs[0][i] = det_of(lu[i], rows[i])


def _cofactors_infer(a: Aval, *others: Aval) -> tuple[Any, Any]:
    need_matrix("det", a, square=True)
    return a.shape, a.dtype


def _cofactors(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (a, *ts, lu, rows), (out,) = ins, outs
    if a.size:
        for i in np.ndindex(a.shape[:-2]):
            out[i] = cofactors_along(a[i], [t[i] for t in ts], lu[i], rows[i])


def _scratch(call: Call) -> int:
    n, k = call.out.shape[-1], len(call.ins) - 3
    return int(16 * 3**k * call.out.dtype.itemsize * (n * n + 8 * n))


# ---- rules ---------------------------------------------------------------------------


def _scaled(F: Evaluator, v: Any, matrix: Any) -> Any:
    return F.mul(F.reshape(v, (*v.aval.shape, 1, 1)), matrix)


def _det_back(F: Evaluator, ct: Any, call: Call, *, a: Any, lu: Any, rows: Any) -> Any:
    return _scaled(F, ct, F.conj(F.cofactors(a, lu, rows)))


def _det_push(F: Evaluator, t: Any, call: Call, *, a: Any, lu: Any, rows: Any) -> Any:
    n = t.aval.ndim
    return F.sum(F.mul(F.cofactors(a, lu, rows), t), (n - 2, n - 1), False)


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
        kink=say.ADJUGATE,
    )
)


# ---- cofactors and their derivatives -------------------------------------------------


def _directions(k: int) -> tuple[str, ...]:
    return ("t",) if k == 1 else tuple(f"t{j}" for j in range(k))


def _rule(k: int, arg: str, *, pull: bool) -> Any:
    """The rule of one argument of the operation with `k` directions.

    The matrix takes one direction more, a direction another one in its place. The
    derivative is symmetric in its directions, so it is its own transpose.
    """
    others = [t for t in _directions(k) if t != arg]

    def rule(F: Evaluator, ct: Any, call: Call, /, **saved: Any) -> Any:
        along = F.conj(ct) if pull else ct
        op = _moved(len(others) + 1)
        ts = [saved[name] for name in others]
        found = F[op](saved["a"], *ts, along, saved["lu"], saved["rows"])
        return F.conj(found) if pull else found

    kept = [
        Parameter(name, Parameter.KEYWORD_ONLY) for name in ("a", *others, "lu", "rows")
    ]
    given = [Parameter(n, Parameter.POSITIONAL_ONLY) for n in ("F", "ct", "call")]
    # What a rule keeps are its keyword-only parameters.
    rule.__signature__ = Signature([*given, *kept])  # type: ignore[attr-defined]
    return rule


@cache
def _moved(k: int) -> Op:
    """The derivative of the cofactors in `k` directions, as an operation."""
    directions = _directions(k)
    name = ("cofactors", "cofactors_moved")[k] if k < 2 else f"cofactors_moved{k}"
    rules = [
        {arg: _rule(k, arg, pull=pull) for arg in ("a", *directions)} | _CONSTANT
        for pull in (True, False)
    ]
    return Op(
        name,
        ("a", *directions, "lu", "rows"),
        infer=_cofactors_infer,
        kernel=Write(_cofactors, _scratch),
        vjp=rules[0],
        jvp=rules[1],
        batch=leading(),
    )


register(_moved(0))
register(_moved(1))
