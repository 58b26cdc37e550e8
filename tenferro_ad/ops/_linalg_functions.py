"""Functions of matrices as rows: the exponential, the pseudo-inverse, vector norms.

Sources: R. Mathias, "A chain rule for matrix functions and applications" (1996), for
the exponential of a block matrix; G. Golub and V. Pereyra, "The differentiation of
pseudo-inverses and nonlinear least squares problems" (1973), at constant rank.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import scipy.linalg

from .._aval import Aval, real_dtype
from . import _conventions as say
from . import _forms_reductions as forms
from . import _lapack
from ._axes import (
    add_reduce,
    as_float,
    block_scratch,
    block_sum,
    in_blocks,
    kept,
    reduced_shape,
)
from ._batching import later, leading
from ._equations import wide
from ._expr import call as fn
from ._expr import conj, const, select, var
from ._lapack import Array, need_matrix
from ._matrices import adjoint
from ._op import Call, Evaluator, Op, Write, register
from ._scalar import elementwise

# ---- exponential ---------------------------------------------------------------------


def _expm_infer(x: Aval) -> tuple[Any, Any]:
    need_matrix("expm", x, square=True)
    return x.shape, x.dtype


def _expm(call: Call, outs: list[Array], ins: list[Array]) -> None:
    if ins[0].size:
        outs[0][...] = scipy.linalg.expm(ins[0])


def _along(F: Evaluator, x: Any, t: Any) -> Any:
    """The derivative of the exponential at x in direction t, as a block of
    `expm([[x, t], [0, x]])`."""
    *lead, n, _ = x.aval.shape
    if not x.aval.size:
        return t
    whole = tuple((0, d, 1) for d in lead)
    shape = (*lead, 2 * n, 2 * n)
    low, high = (0, n, 1), (n, n, 1)
    top = F.place(
        F.concat([x, t], len(lead) + 1), shape, (*whole, low, (0, 2 * n, 1)), 0
    )
    both = F.add(top, F.place(x, shape, (*whole, high, high), 0))
    return F.slice(F.expm(both), (*whole, low, high))


register(
    Op(
        "expm",
        ("x",),
        infer=_expm_infer,
        kernel=Write(
            _expm,
            lambda call: (
                2 * call.out.nbytes
                + 24 * max(call.out.shape[-1], 16) ** 2 * call.out.dtype.itemsize
            ),
        ),
        vjp={"x": lambda F, ct, call, *, x: _along(F, adjoint(F, x), ct)},
        jvp={"x": lambda F, t, call, *, x: _along(F, x, t)},
        batch=leading(),
    )
)


# ---- pseudo-inverse ------------------------------------------------------------------


def _pinv_infer(x: Aval, rtol: float) -> tuple[Any, Any]:
    need_matrix("pinv", x)
    *lead, m, n = x.shape
    return (*lead, n, m), x.dtype


def _pinv(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (x,), (out,) = ins, outs
    if not x.size:
        return
    u, s, vh = _lapack.gesdd(x)
    small = s <= call.rtol * s[..., :1]
    s[small] = 1
    inv = np.where(small, 0, 1 / s)
    vh *= inv[..., None]
    np.matmul(vh.conj().swapaxes(-1, -2), u.conj().swapaxes(-1, -2), out)


def _left_rest(F: Evaluator, x: Any, out: Any, v: Any) -> Any:
    """`(1 - x out) v`."""
    return F.sub(v, F.matmul(x, F.matmul(out, v)))


def _pinv_back(F: Evaluator, ct: Any, call: Call, *, x: Any, out: Any) -> Any:
    found = F.neg(F.matmul_tn(out, F.matmul_nt(ct, out)))
    bar = adjoint(F, ct)
    one = _left_rest(F, x, out, F.matmul_nt(F.matmul(bar, out), out))
    two = F.matmul_tn(out, F.matmul(out, bar))
    two = F.sub(two, F.matmul(F.matmul(two, out), x))
    return F.add(found, F.add(one, two))


def _pinv_push(F: Evaluator, t: Any, call: Call, *, x: Any, out: Any) -> Any:
    found = F.neg(F.matmul(out, F.matmul(t, out)))
    bar = adjoint(F, t)
    one = F.matmul(F.matmul_nt(out, out), bar)
    one = F.sub(one, F.matmul(F.matmul(one, x), out))
    two = F.matmul(bar, F.matmul_tn(out, out))
    two = F.sub(two, F.matmul(out, F.matmul(x, two)))
    return F.add(found, F.add(one, two))


register(
    Op(
        "pinv",
        ("x",),
        params=("rtol",),
        infer=_pinv_infer,
        kernel=Write(
            _pinv,
            lambda call: (
                6 * call.ins[0].nbytes
                + 24 * max(*call.ins[0].shape[-2:], 16) ** 2 * call.out.dtype.itemsize
            ),
        ),
        vjp={"x": _pinv_back},
        jvp={"x": _pinv_push},
        batch=leading(),
        kink=say.RANK,
    )
)


# ---- vector norms --------------------------------------------------------------------
# Finite positive orders; the others are sums and extrema of moduli. The slope is 0
# where the norm is 0.

_x, _out = var("x"), var("out")


@cache
def _slope(order: float, kind: str) -> Op:
    """d norm / d x: the element over the norm, to the power that the order asks for."""
    x = var("x", kind)
    at = _out
    if order == 2:
        return elementwise(
            "norm_slope", select(fn("equal", at, 0.0), 0.0, x / at), ("x", "out")
        )
    size = fn("abs", x)
    power = fn("pow", size / at, const(order - 1.0))
    outside = fn("logical_or", fn("equal", at, 0.0), fn("equal", size, 0.0))
    return elementwise(
        f"norm_slope_{order}", select(outside, 0.0, fn("sign", x) * power), ("x", "out")
    )


_PAIR: Final = elementwise(
    "real_pair", fn("real", conj(var("x", "c")) * var("t", "c")), ("x", "t")
)


def _norm_infer(x: Aval, order: float, axes: Any, keepdims: bool) -> tuple[Any, Any]:
    return reduced_shape(x.shape, axes, keepdims), real_dtype(as_float(x.dtype))


def _norm(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (x,), (out,) = ins, outs
    axes, order = call.axes, call.order
    size = np.abs(x).astype(wide(out.dtype), copy=False)
    top = np.max(size, axes, keepdims=True, initial=0)
    scale = np.where((top == 0) | ~np.isfinite(top), 1, top)
    size = np.asarray(size / scale)
    np.power(size, order, size)
    if in_blocks(size, axes, size.dtype):
        total = block_sum(size, axes)
    else:
        total = add_reduce(size, axes, None, None, True)
    found = scale * np.power(total, 1 / order)
    np.copyto(out, found.reshape(out.shape), casting="unsafe")


def _norm_scratch(call: Call) -> int:
    """Moduli and their powers, and what the sum of them takes."""
    x, item = call.ins[0], wide(call.out.dtype).itemsize
    return item * (3 * x.size + 192 + 5 * call.out.size) + block_scratch(call)


def _norm_slope(F: Evaluator, call: Call, x: Any, out: Any) -> Any:
    return F[_slope(call.order, "c" if x.aval.dtype.kind == "c" else "r")](x, out)


def _norm_back(F: Evaluator, ct: Any, call: Call, *, x: Any, out: Any) -> Any:
    slope = _norm_slope(F, call, x, kept(F, out, call))
    return F.mul(slope, kept(F, ct, call))


def _norm_push(F: Evaluator, t: Any, call: Call, *, x: Any, out: Any) -> Any:
    slope = _norm_slope(F, call, x, kept(F, out, call))
    return F.sum(F[_PAIR](slope, t), call.axes, call.keepdims)


register(
    Op(
        "vector_norm",
        ("x",),
        params=("order", "axes", "keepdims"),
        infer=_norm_infer,
        kernel=Write(
            _norm,
            _norm_scratch,
            form=forms.vector_norm,
        ),
        vjp={"x": _norm_back},
        jvp={"x": _norm_push},
        batch=leading(axes=later),
        kink=say.MAGNITUDE,
    )
)
