"""Rows of network functions: activations as single expressions, and cross-entropy.

An activation is one expression, so it is one kernel and keeps its argument only.
Cross-entropy keeps logits and targets: its derivative computes the probabilities again
instead of keeping them.

Sources: D. Hendrycks, K. Gimpel, arXiv:1606.08415 (gelu); S. Elfwing, E. Uchibe,
K. Doya, arXiv:1702.03118 (silu).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._aval import Aval
from ..errors import DTypeError, IndexRangeError, ShapeError
from . import _forms_reductions as forms
from ._axes import single
from ._batching import later, leading
from ._equations import wide
from ._expr import call as fn
from ._expr import const, var
from ._op import Call, Evaluator, Op, Write, project, register
from ._scalar import elementwise, of_kinds

Array = np.ndarray[Any, Any]

# ---- activations ---------------------------------------------------------------------
_x = var("x")
# Beyond 10 the tanh is 1 in every precision, where a cube and its slope could overflow.
_near = fn("clip", _x, const(-10.0), const(10.0))
_cubic = math.sqrt(2 / math.pi) * (_near + 0.044715 * (_near * _near * _near))
for _name, _expr in {
    "gelu": 0.5 * _x * (fn("erf", _x * math.sqrt(0.5)) + 1.0),
    "gelu_tanh": 0.5 * _x * (fn("tanh", _cubic) + 1.0),
    "silu": _x * fn("sigmoid", _x),
}.items():
    _op = register(elementwise(_name, _expr, ("x",)))
    _op.infer = of_kinds(_name, ("x",), "biuf", _op.infer)


# ---- cross-entropy -------------------------------------------------------------------


def _loss_infer(x: Aval, target: Aval, axis: int) -> tuple[Any, Any]:
    if x.dtype.kind != "f":
        raise DTypeError(
            operation="cross_entropy",
            argument="logits",
            found=f"dtype {x.dtype}",
            fix="pass real floating logits",
        )
    if target.dtype.kind not in "iu":
        raise DTypeError(
            operation="cross_entropy",
            argument="target",
            found=f"dtype {target.dtype}",
            fix="pass class numbers (integers), or probabilities of the logits' shape",
        )
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    if target.shape != shape or not x.shape[axis]:
        raise ShapeError(
            operation="cross_entropy",
            argument="target",
            found=f"shape {target.shape} for logits of shape {x.shape}, axis {axis}",
            fix=f"give it the shape {shape}, with at least one class",
        )
    return shape, x.dtype


def _target_check(call: Call, ins: list[Array]) -> None:
    x, target = ins[-2:]
    n = x.shape[call.axis]
    if target.size and (target.min() < 0 or target.max() >= n):
        raise IndexRangeError(
            operation="cross_entropy",
            argument="target",
            found=f"classes from {target.min()} to {target.max()} of {n}",
            fix=f"use class numbers from 0 to {n - 1}",
        )


def _classes(call: Call, x: Array, target: Array) -> tuple[Array, Array]:
    """Logits with the class axis last, and targets to index them."""
    return _classes_last(call, x), target[..., None]


def _classes_last(call: Call, x: Array) -> Array:
    return x if call.axis == x.ndim - 1 else np.moveaxis(x, call.axis, -1)


def _cross_entropy(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (out,), (x, index) = outs, _classes(call, *ins)
    top = np.maximum.reduce(x, axis=-1, keepdims=True)
    shifted = np.subtract(x, top)
    np.negative(np.take_along_axis(shifted, index, -1)[..., 0], out)
    np.exp(shifted, shifted)
    total = np.add.reduce(shifted, axis=-1, dtype=wide(out.dtype))
    np.add(out, np.log(total), out)


def _cross_entropy_input(call: Call, outs: list[Array], ins: list[Array]) -> None:
    x, index = _classes(call, *ins[1:])
    out = _classes_last(call, outs[0])
    np.subtract(x, np.maximum.reduce(x, axis=-1, keepdims=True), out)
    np.exp(out, out)
    total = np.add.reduce(out, axis=-1, dtype=wide(out.dtype), keepdims=True)
    np.divide(out, total, out)
    if out.flags.c_contiguous:
        rows = out.reshape(-1, out.shape[-1])
        rows[np.arange(len(rows)), index.reshape(-1)] -= 1
    else:
        chosen = np.take_along_axis(out, index, -1)
        np.put_along_axis(out, index, chosen - chosen.dtype.type(1), -1)
    np.multiply(out, ins[0][..., None], out)


def _rows(call: Call) -> int:
    """A handful of numbers for each sample."""
    return 4 * call.ins[1].size * (8 + call.out.dtype.itemsize)


def _spread(F: Evaluator, v: Any, x: Aval, axis: int) -> Any:
    """A value for each sample, seen for each class."""
    kept = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return F.broadcast_to(F.reshape(v, kept), x.shape)


def _slope(F: Evaluator, x: Any, target: Any, call: Call) -> Any:
    """softmax(x) - onehot(target)."""
    aval = target.aval
    one = F.full(aval.shape, x.aval.dtype, 1, aval.device)
    return F.cross_entropy_input(one, x, target, call.axis)


def _curve(F: Evaluator, u: Any, x: Any, call: Call) -> Any:
    """The symmetric derivative of softmax at `x`, applied to `u`."""
    p = F.softmax(x, (call.axis,))
    pu = F.mul(p, u)
    mean = _spread(F, F.sum(pu, (call.axis,), False), x.aval, call.axis)
    return F.sub(pu, F.mul(p, mean))


register(
    Op(
        "cross_entropy",
        ("x", "target"),
        params=("axis",),
        infer=_loss_infer,
        kernel=Write(
            _cross_entropy,
            lambda call: call.ins[0].nbytes + _rows(call),
            _target_check,
            form=forms.cross_entropy,
        ),
        vjp={
            "x": lambda F, ct, call, *, x, target: F.cross_entropy_input(
                ct, x, target, call.axis
            )
        },
        jvp={
            "x": lambda F, t, call, *, x, target: project(
                F,
                F.sum(
                    F.mul(single(F, t), _slope(F, x, target, call)), (call.axis,), False
                ),
                call.out,
            )
        },
        batch=leading(axis=later),
    )
)
# ct * (softmax(x) - onehot(target)): all that backward of cross-entropy computes.
register(
    Op(
        "cross_entropy_input",
        ("ct", "x", "target"),
        params=("axis",),
        infer=of_kinds(
            "cross_entropy_input",
            ("ct", "x"),
            "f",
            lambda ct, x, target, axis: (x.shape, x.dtype),
        ),
        kernel=Write(
            _cross_entropy_input,
            lambda call: 2 * _rows(call),
            _target_check,
            form=forms.cross_entropy_input,
        ),
        vjp={
            "ct": lambda F, g, call, *, x, target: F.sum(
                F.mul(g, _slope(F, x, target, call)), (call.axis,), False
            ),
            "x": lambda F, g, call, *, ct, x: _curve(
                F, F.mul(g, _spread(F, ct, call.ins[1], call.axis)), x, call
            ),
        },
        jvp={
            "ct": lambda F, t, call, *, x, target: F.cross_entropy_input(
                t, x, target, call.axis
            ),
            "x": lambda F, t, call, *, ct, x: _curve(
                F, F.mul(t, _spread(F, ct, call.ins[1], call.axis)), x, call
            ),
        },
        batch=leading(axis=later),
    )
)
