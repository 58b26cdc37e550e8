"""Rows for variance and for the log-sum-exp family. Kernels subtract a pivot or the
largest element before they sum, so that neither cancellation nor overflow spoils them.

Sources: T. Chan, G. Golub, R. LeVeque, "Algorithms for computing the sample variance"
(1983); P. Blanchard, D. Higham, N. Higham, "Accurately computing the log-sum-exp and
softmax functions" (2021).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._aval import Aval, real_dtype
from . import _conventions as say
from . import _forms_reductions as forms
from ._axes import (
    DOUBLE,
    HALF,
    SINGLE,
    Array,
    add_reduce,
    as_float,
    block_scratch,
    block_sum,
    count,
    divided,
    kept,
    max_reduce,
    need_real,
    reduced_shape,
    single,
)
from ._batching import later, leading
from ._expr import call as fn
from ._expr import conj, select, var
from ._op import Call, Evaluator, Op, Write, project, register
from ._scalar import elementwise

_t, _x, _m, _s, _out = (var(n) for n in ("t", "x", "m", "s", "out"))

# ---- variance ------------------------------------------------------------------------

_DEVIATION = elementwise("deviation_by", _t * (_x - _m), ("t", "x", "m"))
# Declared for complex operands: with real ones `conj` and `real` simplify away.
_tc, _xc, _mc = (var(n, "c") for n in ("t", "x", "m"))
_ALONG = elementwise(
    "along_deviation", fn("real", _tc * conj(_xc - _mc)), ("t", "x", "m")
)
_PER_STD = elementwise(
    "per_std", select(fn("equal", _out, 0.0), 0.0, _t / _out), ("t", "out")
)


def _variance_infer(
    x: Aval, axes: Any, correction: float, keepdims: bool
) -> tuple[Any, Any]:
    shape = reduced_shape(x.shape, axes, keepdims)
    return shape, real_dtype(as_float(x.dtype))


def _freedom(call: Call) -> float:
    return max(count(call) - float(call.correction), 0.0)


def _variance(call: Call, x: Array) -> Array:
    axes, n = call.axes, count(call)
    if not n:
        total = np.zeros(reduced_shape(x.shape, axes, True))
    else:
        # Equal elements give exactly zero: their distance from the first one is zero.
        first = tuple([slice(1) if k in axes else slice(None) for k in range(x.ndim)])
        pivot = x[(*first, ...)].astype(np.result_type(x.dtype, DOUBLE))
        shift = block_sum_of_distance(x, axes, pivot) / n
        centre = pivot + shift

        def squares(part: Array, at: Any) -> Any:
            d = np.asarray(part - centre[at])
            if d.dtype.kind == "c":
                np.multiply(d, d.conj(), d)
                return d.real
            return np.multiply(d, d, d)

        total = block_sum(x, axes, squares)
    return np.divide(total, _freedom(call), total)


def block_sum_of_distance(x: Array, axes: Any, pivot: Array) -> Array:
    if x.dtype.kind != "c":
        return block_sum(x, axes, lambda part, at: part - pivot[at])
    real = block_sum(x, axes, lambda part, at: (part - pivot[at]).real)
    imag = block_sum(x, axes, lambda part, at: (part - pivot[at]).imag)
    return np.asarray(real + 1j * imag)


def _variance_scratch(call: Call) -> int:
    """Blocks, and for complex numbers their centres as pairs."""
    more = 64 * call.out.size if call.ins[0].dtype.kind == "c" else 0
    return block_scratch(call) + more


def _var(call: Call, outs: list[Array], ins: list[Array]) -> None:
    found = _variance(call, ins[0])
    np.copyto(outs[0], found.reshape(outs[0].shape), casting="unsafe")


def _std(call: Call, outs: list[Array], ins: list[Array]) -> None:
    found = _variance(call, ins[0])
    np.sqrt(found, found)
    np.copyto(outs[0], found.reshape(outs[0].shape), casting="unsafe")


def _per_freedom(F: Evaluator, v: Any, call: Call, times: float) -> Any:
    n = _freedom(call)
    return divided(F, v, n / times if n else math.nan)


def _var_back(F: Evaluator, ct: Any, call: Call, *, x: Any) -> Any:
    share = _per_freedom(F, single(F, kept(F, ct, call)), call, 2.0)
    g = F[_DEVIATION](share, x, F.mean(x, call.axes, True))
    return project(F, g, call.ins[0])


def _covariance(F: Evaluator, t: Any, call: Call, x: Any) -> Any:
    """The sum of the products of tangents and distances from the mean."""
    t, x = single(F, t), single(F, x)
    along = F[_ALONG](t, x, F.mean(x, call.axes, True))
    return F.sum(along, call.axes, call.keepdims)


def _var_push(F: Evaluator, t: Any, call: Call, *, x: Any) -> Any:
    pushed = _per_freedom(F, _covariance(F, t, call, x), call, 2.0)
    return project(F, pushed, call.out)


def _std_back(F: Evaluator, ct: Any, call: Call, *, x: Any, out: Any) -> Any:
    share = F[_PER_STD](_per_freedom(F, single(F, ct), call, 1.0), out)
    g = F[_DEVIATION](kept(F, share, call), x, F.mean(x, call.axes, True))
    return project(F, g, call.ins[0])


def _std_push(F: Evaluator, t: Any, call: Call, *, x: Any, out: Any) -> Any:
    share = _per_freedom(F, _covariance(F, t, call, x), call, 1.0)
    return project(F, F[_PER_STD](share, out), call.out)


register(
    Op(
        "var",
        ("x",),
        params=("axes", "correction", "keepdims"),
        infer=_variance_infer,
        kernel=Write(_var, _variance_scratch, form=forms.variance(root=False)),
        vjp={"x": _var_back},
        jvp={"x": _var_push},
        batch=leading(axes=later),
    )
)
# Slope 0 where the deviation is 0.
register(
    Op(
        "std",
        ("x",),
        params=("axes", "correction", "keepdims"),
        infer=_variance_infer,
        kernel=Write(_std, _variance_scratch, form=forms.variance(root=True)),
        vjp={"x": _std_back},
        jvp={"x": _std_push},
        batch=leading(axes=later),
        kink=say.MAGNITUDE,
    )
)


# ---- log-sum-exp ---------------------------------------------------------------------

# The weight of an element in the sum. An element -inf has none, whatever the sum is.
_weight = select(fn("equal", _x, -math.inf), 0.0, fn("exp", _x - _out))
_WEIGHTED = elementwise("lse_weighted", _t * _weight, ("t", "x", "out"))
_SOFTMAX = elementwise("softmax_by", _out * (_t - _s), ("t", "out", "s"))
_LOG_BACK = elementwise(
    "log_softmax_back", _t - fn("exp", _out) * _s, ("t", "out", "s")
)
_BY_EXP = elementwise("by_exp", _t * fn("exp", _out), ("t", "out"))


def _lse_infer(x: Aval, axes: Any, keepdims: bool) -> tuple[Any, Any]:
    need_real("logsumexp", x)
    return reduced_shape(x.shape, axes, keepdims), as_float(x.dtype)


def _largest(x: Array, axes: Any) -> Any:
    """The largest elements, axes kept, 0 where they are not finite."""
    top = max_reduce(x, axes, None, None, True)
    dtype = SINGLE if x.dtype == HALF else as_float(x.dtype)
    top = top.astype(dtype, copy=False)
    return np.where(np.isfinite(top), top, top.dtype.type(0))


def _lse(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (x,), (out,), axes = ins, outs, call.axes
    if not count(call):
        out.fill(-math.inf)
        return
    top = _largest(x, axes)

    def exponentials(part: Array, at: Any) -> Any:
        d = np.asarray(part - top[at])
        return np.exp(d, d)

    total = block_sum(x, axes, exponentials)
    np.log(total, total)
    total += top
    np.copyto(out, total.reshape(out.shape), casting="unsafe")


def _lse_back(F: Evaluator, ct: Any, call: Call, *, x: Any, out: Any) -> Any:
    return F[_WEIGHTED](kept(F, ct, call), x, kept(F, out, call))


def _lse_push(F: Evaluator, t: Any, call: Call, *, x: Any, out: Any) -> Any:
    weighted = F[_WEIGHTED](single(F, t), single(F, x), kept(F, out, call))
    return project(F, F.sum(weighted, call.axes, call.keepdims), call.out)


register(
    Op(
        "logsumexp",
        ("x",),
        params=("axes", "keepdims"),
        infer=_lse_infer,
        kernel=Write(_lse, block_scratch, form=forms.logsumexp),
        vjp={"x": _lse_back},
        jvp={"x": _lse_push},
        batch=leading(axes=later),
    )
)


def _softmax_infer(name: str) -> Any:
    def infer(x: Aval, axes: Any) -> tuple[Any, Any]:
        need_real(name, x)
        return x.shape, as_float(x.dtype)

    return infer


def _softmax(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (x,), (out,), axes = ins, outs, call.axes
    if not out.size:
        return
    top = max_reduce(x, axes, None, None, True)
    np.subtract(x, top.astype(out.dtype, copy=False), out)
    np.exp(out, out)
    wide = SINGLE if out.dtype == HALF else None
    np.divide(out, add_reduce(out, axes, wide, None, True), out)


def _softmax_rule(F: Evaluator, t: Any, call: Call, *, out: Any) -> Any:
    return F[_SOFTMAX](t, out, F.sum(F.mul(t, out), call.axes, True))


def _log_softmax(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (x,), (out,), axes = ins, outs, call.axes
    if not out.size:
        return
    np.subtract(x, _largest(x, axes), out)
    total = block_sum(out, axes, lambda part, at: np.asarray(np.exp(part)))
    np.subtract(out, np.log(total, total), out)


def _log_softmax_back(F: Evaluator, ct: Any, call: Call, *, out: Any) -> Any:
    return F[_LOG_BACK](ct, out, F.sum(ct, call.axes, True))


def _log_softmax_push(F: Evaluator, t: Any, call: Call, *, out: Any) -> Any:
    wide = single(F, t)
    mean = F.sum(F[_BY_EXP](wide, single(F, out)), call.axes, True)
    return project(F, F.sub(wide, mean), call.out)


register(
    Op(
        "softmax",
        ("x",),
        params=("axes",),
        infer=_softmax_infer("softmax"),
        kernel=Write(
            _softmax,
            lambda call: 16 * call.out.size // max(count(call), 1),
            form=forms.softmax,
        ),
        vjp={"x": _softmax_rule},
        jvp={"x": _softmax_rule},
        batch=leading(axes=later),
    )
)
register(
    Op(
        "log_softmax",
        ("x",),
        params=("axes",),
        infer=_softmax_infer("log_softmax"),
        kernel=Write(_log_softmax, block_scratch, form=forms.log_softmax),
        vjp={"x": _log_softmax_back},
        jvp={"x": _log_softmax_push},
        batch=leading(axes=later),
    )
)
