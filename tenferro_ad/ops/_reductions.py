"""Reduction rows. Axes are sorted tuples of non-negative numbers; an empty tuple
reduces nothing. Ties of `max` and `min` share the slope equally; `prod` is
differentiated without a division, so zeros are points like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .._aval import Aval
from . import _conventions as say
from . import _counting, _statistics
from . import _forms_arrays as arrays
from . import _forms_reductions as forms
from ._axes import (
    HALF,
    SINGLE,
    Array,
    Axes,
    add_reduce,
    as_float,
    block_scratch,
    block_sum,
    blocks,
    count,
    divided,
    in_blocks,
    kept,
    multiply_reduce,
    need_elements,
    need_real,
    nothing,
    reduced_shape,
    single,
    widen,
    within,
)
from ._batching import later, leading
from ._expr import call as fn
from ._expr import conj, select, var
from ._op import Call, Evaluator, Op, View, Write, project, register
from ._scalar import elementwise

_ROWS = (_counting, _statistics)

_t, _x, _n, _out = (var(n) for n in ("t", "x", "n", "out"))


# ---- sum and mean --------------------------------------------------------------------


def _sum_infer(x: Aval, axes: Axes, keepdims: bool) -> tuple[Any, Any]:
    dtype = x.dtype
    if dtype.kind in "bi" and dtype.itemsize < 8:
        dtype = np.dtype(np.int64)
    elif dtype.kind == "u" and dtype.itemsize < 8:
        dtype = np.dtype(np.uint64)
    return reduced_shape(x.shape, axes, keepdims), dtype


def _summed(call: Call, out: Array, x: Array) -> None:
    """Sum into `out`, accurately; halves need a wider accumulator."""
    axes = call.axes
    if x.dtype == HALF:
        total = add_reduce(x, axes, SINGLE, None, call.keepdims)
        np.copyto(out, total, casting="unsafe")
    elif in_blocks(x, axes, x.dtype):
        np.copyto(out, block_sum(x, axes).reshape(out.shape), casting="unsafe")
    else:
        add_reduce(x, axes, None, out, call.keepdims)


def _sum(call: Call, outs: list[Array], ins: list[Array]) -> None:
    _summed(call, outs[0], ins[0])


def _sum_scratch(call: Call) -> int:
    x = call.ins[0]
    if x.dtype == HALF:
        return 4 * call.out.size
    return block_scratch(call) if in_blocks(x, call.axes, x.dtype) else 0


register(
    Op(
        "sum",
        ("x",),
        params=("axes", "keepdims"),
        infer=_sum_infer,
        kernel=Write(_sum, _sum_scratch, form=forms.reduction("sum")),
        vjp={"x": widen},
        jvp={"x": lambda F, t, call: F.sum(t, call.axes, call.keepdims)},
        batch=leading(axes=later),
    )
)


def _mean_infer(x: Aval, axes: Axes, keepdims: bool) -> tuple[Any, Any]:
    return reduced_shape(x.shape, axes, keepdims), as_float(x.dtype)


def _mean(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (x,), (out,) = ins, outs
    if x.dtype.char == "e":
        total = np.asarray(add_reduce(x, call.axes, SINGLE, None, call.keepdims))
        np.divide(total, SINGLE.type(count(call)), total)
        np.copyto(out, total, casting="unsafe")
        return
    _summed(call, out, x)
    np.divide(out, float(x.size // out.size if x.size else count(call)), out)


register(
    Op(
        "mean",
        ("x",),
        params=("axes", "keepdims"),
        infer=_mean_infer,
        kernel=Write(_mean, _sum_scratch, form=forms.mean),
        vjp={"x": lambda F, ct, call: widen(F, divided(F, ct, count(call) or 1), call)},
        jvp={"x": lambda F, t, call: F.mean(t, call.axes, call.keepdims)},
        batch=leading(axes=later),
    )
)


# ---- max and min ---------------------------------------------------------------------

# NaN is the extremum wherever it occurs, so NaNs tie with each other.
_tied = fn(
    "logical_or",
    fn("equal", _x, _out),
    fn("logical_and", fn("not_equal", _x, _x), fn("not_equal", _out, _out)),
)
_SHARE = elementwise("tie_share", select(_tied, _t / _n, 0.0), ("t", "x", "out", "n"))


def _tie_count(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (x, extremum), (out,), axes = ins, outs, call.axes
    out.fill(0)
    for index in blocks(x.shape):
        at = within(index, axes)
        part, top = x[(*index, ...)], extremum[at]
        mask = np.equal(part, top)
        if part.dtype.kind == "f":
            mask |= (part != part) & (top != top)
        out[at] += add_reduce(mask, axes, np.int64, None, True)


# How many elements share an extremum: in at least single precision, because half
# precision ends at 65504.
register(
    Op(
        "tie_count",
        ("x", "extremum"),
        params=("axes",),
        infer=lambda x, extremum, axes: (
            extremum.shape,
            SINGLE if x.dtype.itemsize <= 4 else np.dtype(np.float64),
        ),
        kernel=Write(_tie_count, block_scratch, form=forms.tie_count),
        vjp={"x": nothing, "extremum": nothing},
        jvp={"x": nothing, "extremum": nothing},
        batch=leading(axes=later),
    )
)


def _extremum_back(F: Evaluator, ct: Any, call: Call, *, x: Any, out: Any) -> Any:
    out = kept(F, out, call)
    n = F.tie_count(x, out, call.axes)
    return project(F, F[_SHARE](kept(F, ct, call), x, out, n), call.ins[0])


def _extremum_push(F: Evaluator, t: Any, call: Call, *, x: Any, out: Any) -> Any:
    out = kept(F, out, call)
    shares = F[_SHARE](t, x, out, F.tie_count(x, out, call.axes))
    return project(F, F.sum(shares, call.axes, call.keepdims), call.out)


def _extremum(name: str, ufunc: Any) -> None:
    def infer(x: Aval, axes: Axes, keepdims: bool) -> tuple[Any, Any]:
        need_real(name, x)
        need_elements(name, x, axes)
        return reduced_shape(x.shape, axes, keepdims), x.dtype

    def kernel(call: Call, outs: list[Array], ins: list[Array]) -> None:
        ufunc.reduce(ins[0], call.axes, None, outs[0], call.keepdims)

    register(
        Op(
            name,
            ("x",),
            params=("axes", "keepdims"),
            infer=infer,
            kernel=Write(kernel, form=forms.reduction(name)),
            vjp={"x": _extremum_back},
            jvp={"x": _extremum_push},
            batch=leading(axes=later),
            kink=say.NANS,
        )
    )


_extremum("max", np.maximum)
_extremum("min", np.minimum)


# ---- product -------------------------------------------------------------------------
# The slope of a product at one element is the product of all others. A binary tree
# gives all of them in O(n) multiplications: products of halves going up, products with
# the other half coming down. Its steps are operations of the table, so every order of
# derivative is right, and none divides. Its lower end is the product of two, whose
# slope is the twin.

# Declared for complex operands: with real ones `conj` simplifies away.
_BY_CONJ = elementwise("times_conj", var("t", "c") * conj(var("x", "c")), ("t", "x"))


def _lane_order(ndim: int, axes: Axes) -> tuple[int, ...]:
    return (*[k for k in range(ndim) if k not in axes], *axes)


def _lanes_infer(x: Aval, axes: Axes, width: int, fill: int) -> tuple[Any, Any]:
    n = 1
    for a in axes:
        n *= x.shape[a]
    return (x.size // n, width), x.dtype


def _lanes(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (x,), (out,), n = ins, outs, count(call)
    order = _lane_order(x.ndim, call.axes)
    out[:, n:] = call.fill
    target = out[:, :n].reshape([x.shape[k] for k in order], copy=False)
    np.copyto(target, x.transpose(order))


def _unlanes(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (lanes,), (out,) = ins, outs
    order = _lane_order(out.ndim, call.axes)
    shape = [out.shape[k] for k in order]
    n = math.prod(shape[len(shape) - len(call.axes) :])
    np.copyto(out.transpose(order), lanes[:, :n].reshape(shape, copy=False))


# What is reduced together becomes a row, filled up to `width`; `unlanes` undoes it.
register(
    Op(
        "lanes",
        ("x",),
        params=("axes", "width", "fill"),
        infer=_lanes_infer,
        kernel=Write(_lanes, form=arrays.lanes),
        vjp={"x": lambda F, ct, call: F.unlanes(ct, call.ins[0].shape, call.axes)},
        jvp={"x": lambda F, t, call: F.lanes(t, call.axes, call.width, 0)},
        batch=lambda F, call, size, xs, batched: F.regroup(
            F.lanes(xs[0], later(call.axes, size), call.width, call.fill),
            (size, *call.out.shape),
        ),
    )
)
register(
    Op(
        "unlanes",
        ("x",),
        params=("shape", "axes"),
        infer=lambda x, shape, axes: (shape, x.dtype),
        kernel=Write(_unlanes, form=arrays.unlanes),
        vjp={"x": lambda F, ct, call: F.lanes(ct, call.axes, call.ins[0].shape[1], 0)},
        jvp={"x": lambda F, t, call: F.unlanes(t, call.shape, call.axes)},
        batch=lambda F, call, size, xs, batched: F.unlanes(
            F.regroup(xs[0], (size * call.ins[0].shape[0], call.ins[0].shape[1])),
            (size, *call.shape),
            later(call.axes, size),
        ),
    )
)
register(
    Op(
        "twin",
        ("x",),
        params=("axes",),
        infer=lambda x, axes: (x.shape, x.dtype),
        kernel=View(lambda array, call: np.flip(array, call.axes)),
        vjp={"x": lambda F, ct, call: F.twin(ct, call.axes)},
        jvp={"x": lambda F, t, call: F.twin(t, call.axes)},
        batch=leading(axes=later),
    )
)


def _others(F: Evaluator, ct: Any, call: Call, x: Any, times: Any) -> Any:
    """The product of all other elements, times `ct` if there is one (by `times`)."""
    shape, axes, n = call.ins[0].shape, call.axes, count(call)
    rows, width = call.ins[0].size // n, 1 << (n - 1).bit_length()
    level = F.lanes(x, axes, width, 1)
    levels = []
    for half in [width >> k for k in range(1, width.bit_length())]:
        levels.append(F.reshape(level, (rows, 2, half)))
        if half > 1:
            level = F.prod(levels[-1], (1,), False)
    found = None
    if ct is not None:
        found = F.reshape(F.lanes(ct, (), 1, 1), (rows, 1, 1))
    for level in reversed(levels):
        twin = F.twin(level, (1,))
        half = level.aval.shape[2]
        found = twin if found is None else times(found, twin)
        found = F.reshape(found, (rows, 1, 2 * half))
    return F.unlanes(F.reshape(found, (rows, width)), shape, axes)


def _prod_back(F: Evaluator, ct: Any, call: Call, *, x: Any) -> Any:
    n = count(call)
    if n <= 1 or not call.ins[0].size:
        return widen(F, ct, call)
    times: Callable[..., Any] = F[_BY_CONJ]
    if n == 2:
        return times(kept(F, ct, call), F.twin(x, call.axes))
    ct, x = single(F, ct), single(F, x)  # products of many: rounded once
    return project(F, _others(F, ct, call, x, times), call.ins[0])


def _prod_push(F: Evaluator, t: Any, call: Call, *, x: Any) -> Any:
    n = count(call)
    if n <= 1 or not call.ins[0].size:
        return F.sum(t, call.axes, call.keepdims)
    if n == 2:
        return F.sum(F.mul(t, F.twin(x, call.axes)), call.axes, call.keepdims)
    moved = F.mul(single(F, t), _others(F, None, call, single(F, x), F.mul))
    return project(F, F.sum(moved, call.axes, call.keepdims), call.out)


def _prod(call: Call, outs: list[Array], ins: list[Array]) -> None:
    if ins[0].dtype.char == "e":
        found = multiply_reduce(ins[0], call.axes, SINGLE, None, call.keepdims)
        np.copyto(outs[0], found, casting="unsafe")
    else:
        multiply_reduce(ins[0], call.axes, None, outs[0], call.keepdims)


register(
    Op(
        "prod",
        ("x",),
        params=("axes", "keepdims"),
        infer=_sum_infer,
        kernel=Write(
            _prod,
            lambda call: 4 * call.out.size if call.out.dtype.char == "e" else 0,
            form=forms.reduction("prod"),
        ),
        vjp={"x": _prod_back},
        jvp={"x": _prod_push},
        batch=leading(axes=later),
        kink=say.FACTORS,
    )
)
