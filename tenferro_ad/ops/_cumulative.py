"""Rows that accumulate along an axis: sums, products, log-sum-exps, linear recurrences.

The derivatives of products and log-sum-exps are linear recurrences
`y[k] = a[k] y[k-1] + b[k]`, which have a row of their own, closed under
differentiation. Nothing is divided by an element and no exponential can overflow, so
zeros among the factors and large differences among the exponents are points like any
other.

Reference: G. E. Blelloch, "Prefix sums and their applications", CMU-CS-90-190 (1990),
for recurrences as scans. Here they run in order, for reproducible rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .._aval import Aval
from ..errors import ShapeError
from . import _conventions as say
from . import _forms_scans as forms
from ._axes import HALF, SINGLE, as_float, need_real, single
from ._batching import later, leading
from ._op import Call, Evaluator, Op, Write, register
from ._place import Key, span

Array = np.ndarray[Any, Any]
_CHUNK: Final = 4096  # Python numbers alive at once in a recurrence of few lanes
_FEW: Final = 8  # lanes below which Python numbers are faster than short vectors
_BUFFER: Final = 1 << 18  # what NumPy may use to convert or to walk a view


# ---- one accumulation of NumPy -------------------------------------------------------


def _accumulate(fn: np.ufunc) -> Callable[..., None]:
    def kernel(call: Call, outs: list[Array], ins: list[Array]) -> None:
        (x,), (out,), axis = ins, outs, call.axis
        if call.reverse:
            x, out = np.flip(x, axis), np.flip(out, axis)
        if out.dtype == HALF:  # accumulate in single precision
            wide = fn.accumulate(x, axis, SINGLE)
            np.copyto(out, wide, casting="unsafe")
        else:
            fn.accumulate(x, axis, out.dtype, out)

    return kernel


def _scratch(call: Call) -> int:
    """Halves are accumulated apart; operands of another dtype are converted as a whole;
    views go through a buffer."""
    x, out = call.ins[0], call.out
    if out.dtype == HALF:
        return 4 * (x.size + out.size) + _BUFFER
    converted = 0 if x.dtype == out.dtype else out.nbytes
    return converted + min(_BUFFER, 2 * (x.nbytes + out.nbytes))


def _total(x: Aval, axis: int, reverse: bool) -> tuple[Any, Any]:
    dtype = x.dtype
    if dtype.kind in "bi" and dtype.itemsize < 8:
        dtype = np.dtype(np.int64)
    elif dtype.kind == "u" and dtype.itemsize < 8:
        dtype = np.dtype(np.uint64)
    return x.shape, dtype


register(
    Op(
        "cumulative_sum",
        ("x",),
        params=("axis", "reverse"),
        infer=_total,
        kernel=Write(_accumulate(np.add), _scratch, form=forms.cumulative_sum),
        vjp={
            "x": lambda F, ct, call: F.cumulative_sum(ct, call.axis, not call.reverse)
        },
        jvp={"x": lambda F, t, call: F.cumulative_sum(t, call.axis, call.reverse)},
        batch=leading(axis=later),
    )
)


# ---- shifting along an axis ----------------------------------------------------------


def _shifted(F: Evaluator, v: Any, axis: int, by: int, fill: float) -> Any:
    """`v[k - by]` at k, `fill` where there is none; `by` is 1 or -1."""
    shape = v.aval.shape
    if shape[axis] == 0:
        return v
    first, last = _without_end(shape, axis, 0), _without_end(shape, axis, 1)
    kept, target = (first, last) if by > 0 else (last, first)
    return F.place(F.slice(v, kept), shape, target, fill)


def _without_end(shape: tuple[int, ...], axis: int, start: int) -> Key:
    """All elements along `axis` but the last, or from `start` = 1 but the first."""
    return tuple(
        span(start, n - 1, 1) if k == axis else span(0, n, 1)
        for k, n in enumerate(shape)
    )


# ---- linear recurrences --------------------------------------------------------------


def _recurrence_infer(a: Aval, b: Aval, axis: int, reverse: bool) -> tuple[Any, Any]:
    if a.shape != b.shape:
        raise ShapeError(
            operation="linear_recurrence",
            argument="b",
            found=f"shapes {a.shape} and {b.shape}",
            fix="give both operands one shape (`broadcast_to`)",
        )
    return a.shape, as_float(np.result_type(a.dtype, b.dtype))


def _recurrence(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (a, b), (out,) = ins, outs
    a, b, out = (np.moveaxis(v, call.axis, 0) for v in (a, b, out))
    if call.reverse:
        a, b, out = a[::-1], b[::-1], out[::-1]
    if not out.size:
        return
    if out.dtype == HALF:  # accumulate in single precision
        last = np.array(b[0], SINGLE)
        out[0] = last
        for k in range(1, len(out)):
            np.multiply(a[k], last, last)
            np.add(last, b[k], last)
            out[k] = last
        return
    if out[0].size < _FEW:
        for lane in np.ndindex(out.shape[1:]):
            at = (slice(None), *lane)
            _lane(a[at], b[at], out[at])
        return
    out[0] = b[0]
    for k in range(1, len(out)):
        np.multiply(a[k], out[k - 1], out[k])
        np.add(out[k], b[k], out[k])


def _lane(a: Array, b: Array, out: Array) -> None:
    """One lane in Python numbers, which are doubles."""
    last: Any = 0.0
    for start in range(0, len(out), _CHUNK):
        part = slice(start, start + _CHUNK)
        pairs = list(zip(a[part].tolist(), b[part].tolist(), strict=True))
        found = []
        if start == 0:  # what precedes the first element does not exist
            last = pairs[0][1]
            found.append(last)
            pairs = pairs[1:]
        for factor, summand in pairs:
            last = factor * last + summand
            found.append(last)
        out[part] = found


def _recurrence_scratch(call: Call) -> int:
    n = min(_CHUNK, call.out.shape[call.axis])
    lanes = call.out.size // max(1, call.out.shape[call.axis])
    return int(n * 256 + min(_BUFFER, 4 * lanes * call.out.dtype.itemsize))


def _weights(F: Evaluator, ct: Any, call: Call, a: Any) -> Any:
    """The cotangent of `b`: the same recurrence, backwards, with shifted factors."""
    by = 1 if call.reverse else -1
    factors = _shifted(F, F.conj(a), call.axis, by, 0)
    return F.linear_recurrence(factors, ct, call.axis, not call.reverse)


def _to_aval(F: Evaluator, g: Any, target: Aval) -> Any:
    if g.aval.dtype.kind == "c" and target.dtype.kind != "c":
        g = F.real(g)
    return g if g.aval.dtype == target.dtype else F.astype(g, target.dtype)


def _previous(F: Evaluator, v: Any, call: Call, fill: float = 0) -> Any:
    return _shifted(F, v, call.axis, -1 if call.reverse else 1, fill)


def _recurrence_a(F: Evaluator, ct: Any, call: Call, *, a: Any, out: Any) -> Any:
    g = F.mul(_weights(F, ct, call, a), F.conj(_previous(F, out, call)))
    return _to_aval(F, g, call.ins[0])


def _recurrence_b(F: Evaluator, ct: Any, call: Call, *, a: Any) -> Any:
    return _to_aval(F, _weights(F, ct, call, a), call.ins[1])


def _recurrence_push(F: Evaluator, t: Any, call: Call, *, a: Any, out: Any) -> Any:
    t = F.mul(t, _previous(F, out, call))
    return F.linear_recurrence(a, t, call.axis, call.reverse)


def _recurrence_push_b(F: Evaluator, t: Any, call: Call, *, a: Any) -> Any:
    t = t if t.aval.dtype == call.out.dtype else F.astype(t, call.out.dtype)
    return F.linear_recurrence(a, t, call.axis, call.reverse)


register(
    Op(
        "linear_recurrence",
        ("a", "b"),
        params=("axis", "reverse"),
        infer=_recurrence_infer,
        kernel=Write(_recurrence, _recurrence_scratch, form=forms.linear_recurrence),
        vjp={"a": _recurrence_a, "b": _recurrence_b},
        jvp={"a": _recurrence_push, "b": _recurrence_push_b},
        batch=leading(axis=later),
    )
)


# ---- products ------------------------------------------------------------------------


def _product_pull(F: Evaluator, ct: Any, call: Call, *, x: Any, out: Any) -> Any:
    before = F.conj(_previous(F, out, call, 1))
    return F.mul(before, _weights(F, ct, call, x))


def _product_push(F: Evaluator, t: Any, call: Call, *, x: Any, out: Any) -> Any:
    t = F.mul(t, _previous(F, out, call, 1))
    return F.linear_recurrence(x, t, call.axis, call.reverse)


register(
    Op(
        "cumulative_prod",
        ("x",),
        params=("axis", "reverse"),
        infer=_total,
        kernel=Write(_accumulate(np.multiply), _scratch, form=forms.cumulative_prod),
        vjp={"x": _product_pull},
        jvp={"x": _product_push},
        batch=leading(axis=later),
        kink=say.FACTORS,
    )
)


# ---- log-sum-exps --------------------------------------------------------------------


def _logs_infer(x: Aval, axis: int, reverse: bool) -> tuple[Any, Any]:
    need_real("cumulative_logsumexp", x)
    return x.shape, as_float(x.dtype)


def _safe(F: Evaluator, out: Any) -> Any:
    """`out`, with 0 where it is minus infinity: all summands so far are zero there."""
    return F.select(F.equal(out, -math.inf), 0.0, out)


def _steps(F: Evaluator, out: Any, safe: Any, call: Call, *, at_later: bool) -> Any:
    """exp(out[k - 1] - out[k]) at k, or at k - 1; 0 where there is no pair.

    `out` does not decrease, so the exponents are at most 0, as is `x - out`.
    """
    shape, axis = out.aval.shape, call.axis
    if shape[axis] == 0:
        return out
    earlier, later = (_without_end(shape, axis, k) for k in (0, 1))
    if call.reverse:
        earlier, later = later, earlier
    steps = F.exp(F.sub(F.slice(out, earlier), F.slice(safe, later)))
    return F.place(steps, shape, later if at_later else earlier, 0)


def _logs_pull(F: Evaluator, ct: Any, call: Call, *, x: Any, out: Any) -> Any:
    safe = _safe(F, out)
    step = _steps(F, out, safe, call, at_later=False)
    sums = F.linear_recurrence(step, ct, call.axis, not call.reverse)
    return _to_aval(F, F.mul(F.exp(F.sub(x, safe)), sums), call.ins[0])


def _logs_push(F: Evaluator, t: Any, call: Call, *, x: Any, out: Any) -> Any:
    safe = _safe(F, out)
    step = _steps(F, out, safe, call, at_later=True)
    t = F.mul(F.exp(F.sub(x, safe)), single(F, t))
    pushed = F.linear_recurrence(step, t, call.axis, call.reverse)
    return _to_aval(F, pushed, call.out)


register(
    Op(
        "cumulative_logsumexp",
        ("x",),
        params=("axis", "reverse"),
        infer=_logs_infer,
        kernel=Write(
            _accumulate(np.logaddexp), _scratch, form=forms.cumulative_logsumexp
        ),
        vjp={"x": _logs_pull},
        jvp={"x": _logs_push},
        batch=leading(axis=later),
    )
)
