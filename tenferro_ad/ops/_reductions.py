"""Reduction rows. Axes are normalised tuples; an empty tuple reduces nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._aval import Aval
from ._op import Call, Evaluator, Op, Write, register

Array = np.ndarray[Any, Any]


def reduced_shape(
    shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool
) -> tuple[int, ...]:
    if keepdims:
        return tuple(1 if k in axes else n for k, n in enumerate(shape))
    return tuple(n for k, n in enumerate(shape) if k not in axes)


def widen(F: Evaluator, ct: Any, call: Call) -> Any:
    """Bring a reduced value back to the shape of the argument (a view)."""
    x = call.ins[0]
    kept = reduced_shape(x.shape, call.axes, True)
    if ct.aval.shape != kept:
        ct = F.reshape(ct, kept)
    return F.broadcast_to(ct, x.shape) if kept != x.shape else ct


def _sum_infer(x: Aval, axes: tuple[int, ...], keepdims: bool) -> tuple[Any, Any]:
    dtype = x.dtype
    if dtype.kind in "bi" and dtype.itemsize < 8:
        dtype = np.dtype(np.int64)
    elif dtype.kind == "u" and dtype.itemsize < 8:
        dtype = np.dtype(np.uint64)
    return reduced_shape(x.shape, axes, keepdims), dtype


def _sum(call: Call, outs: list[Array], ins: list[Array]) -> None:
    np.add.reduce(
        ins[0], axis=call.axes, dtype=None, out=outs[0], keepdims=call.keepdims
    )


register(
    Op(
        "sum",
        ("x",),
        params=("axes", "keepdims"),
        infer=_sum_infer,
        kernel=Write(_sum),
        vjp={"x": widen},
        jvp={"x": lambda F, t, call: F.sum(t, call.axes, call.keepdims)},
    )
)


def _mean_infer(x: Aval, axes: tuple[int, ...], keepdims: bool) -> tuple[Any, Any]:
    dtype = x.dtype if x.dtype.kind in "fc" else np.dtype(np.float64)
    return reduced_shape(x.shape, axes, keepdims), dtype


def _count(call: Call) -> int:
    return math.prod(call.ins[0].shape[a] for a in call.axes)


def _mean(call: Call, outs: list[Array], ins: list[Array]) -> None:
    np.add.reduce(
        ins[0], axis=call.axes, dtype=None, out=outs[0], keepdims=call.keepdims
    )
    np.divide(outs[0], _count(call), outs[0])


register(
    Op(
        "mean",
        ("x",),
        params=("axes", "keepdims"),
        infer=_mean_infer,
        kernel=Write(_mean),
        vjp={"x": lambda F, ct, call: widen(F, F.mul(ct, 1.0 / _count(call)), call)},
        jvp={"x": lambda F, t, call: F.mean(t, call.axes, call.keepdims)},
    )
)
