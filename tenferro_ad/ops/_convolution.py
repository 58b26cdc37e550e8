"""Convolution rows: a bilinear product and its two transposes, any number of axes.

`conv(x, w)` correlates; `conv_input(y, w)` is the adjoint of `x -> conv(x, w)` and
`conv_weight(x, y)` that of `w -> conv(x, w)`. The three are closed under
differentiation: every derivative of one, of any order, is one of the others, so a rule
only names a sibling. Layout: `x` (batch, channels, *spatial), `w` (out, channels /
groups, *kernel).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .._aval import Aval
from ..errors import InvalidArgumentError, ShapeError
from . import _forms_products as forms
from ._convolution_batching import conv_batch, conv_input_batch, conv_weight_batch
from ._op import Call, Evaluator, Op, Write, project, register
from ._windows import Array, Geometry, Ints, blocks, geometry


def _weights(g: Geometry, w: Array, dtype: Any, *, conj: bool) -> Array:
    """`w` as (groups, out / groups, channels / groups * taps)."""
    if conj and w.dtype.kind == "c":
        w = w.conj()
    shape = (g.groups, g.w[0] // g.groups, g.w[1] * g.taps)
    return np.ascontiguousarray(w, dtype).reshape(shape)


# ---- kernels -------------------------------------------------------------------------


def _correlate(g: Geometry, matrix: Array, x: Array, out: Array) -> None:
    for part, s in blocks(g, out.dtype):
        s.images[...] = x[part].swapaxes(0, 1)
        s.unfold()
        np.matmul(matrix, s.columns, s.matrix)
        out[part] = s.values.swapaxes(0, 1)


def _conv(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (out,), (x, w) = outs, ins
    g = _of(call, x.shape, w.shape)
    _correlate(g, _weights(g, w, out.dtype, conj=False), x, out)


def _turned(call: Call, x: Ints, w: Ints) -> Geometry | None:
    """At stride 1 the adjoint is the convolution with the kernel turned around: this
    geometry, if its columns are not many more than folding would need."""
    reach = [d * (k - 1) for d, k in zip(call.dilation, w[2:], strict=True)]
    padding = tuple(r - p for r, p in zip(reach, call.padding, strict=True))
    if set(call.stride) != {1} or min(padding) < 0 or w[0] > 2 * x[1]:
        return None
    g = _of(call, x, w)
    turned = (x[1], w[0] // g.groups, *w[2:])
    size = call.out.dtype.itemsize
    return geometry(g.out, turned, call.stride, padding, call.dilation, g.groups, size)


def _turned_weights(g: Geometry, w: Array, dtype: Any) -> Array:
    """`w` for the turned geometry: kernel reversed, in and out exchanged."""
    outer, inner = g.w[:2]
    parts = w.reshape(g.groups, inner, outer // g.groups, *w.shape[2:])
    flipped = np.flip(parts, tuple(range(3, parts.ndim))).swapaxes(1, 2)
    if w.dtype.kind == "c":
        flipped = flipped.conj()
    shape = (g.groups, outer // g.groups, inner * g.taps)
    return np.ascontiguousarray(flipped, dtype).reshape(shape)


def _conv_input(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (out,), (y, w) = outs, ins
    turned = _turned(call, out.shape, w.shape)
    if turned is not None:
        _correlate(turned, _turned_weights(turned, w, out.dtype), y, out)
        return
    g, dtype = _of(call, out.shape, w.shape), out.dtype
    matrix = _weights(g, w, dtype, conj=True).swapaxes(1, 2)
    for part, s in blocks(g, dtype):
        s.values[...] = y[part].swapaxes(0, 1)
        np.matmul(matrix, s.matrix, s.columns)
        s.fold()
        out[part] = s.images.swapaxes(0, 1)


def _conv_weight(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (out,), (x, y) = outs, ins
    g, dtype = _of(call, x.shape, out.shape), out.dtype
    total = out.reshape(g.groups, g.w[0] // g.groups, g.w[1] * g.taps)
    more: Array | None = None
    for part, s in blocks(g, dtype):
        source = x[part].swapaxes(0, 1)
        if x.dtype.kind == "c":
            np.conjugate(source, s.images)
        else:
            s.images[...] = source
        s.unfold()
        s.values[...] = y[part].swapaxes(0, 1)
        columns = s.columns.swapaxes(1, 2)
        if part.start == 0:
            np.matmul(s.matrix, columns, total)
        else:
            more = np.matmul(s.matrix, columns, more)
            np.add(total, more, total)
    if not g.x[0]:
        out.fill(0)


# ---- rows ----------------------------------------------------------------------------


def _of(call: Call, x: Ints, w: Ints) -> Geometry:
    return geometry(
        x,
        w,
        call.stride,
        call.padding,
        call.dilation,
        call.groups,
        call.out.dtype.itemsize,
    )


def _checked(
    name: str,
    x: Ints,
    w: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Ints:
    """The output's shape.

    Raises:
        ShapeError: operands that do not fit each other.
        InvalidArgumentError: a parameter out of its range.
    """
    if len(x) < 3 or len(w) != len(x):
        raise ShapeError(
            operation=name,
            argument="w",
            found=f"shapes {x} and {w}",
            fix="give `x` (batch, channels, *spatial) and `w` (out, channels / groups, "
            "*kernel) the same number of axes",
        )
    for argument, values, least in (
        ("stride", stride, 1),
        ("padding", padding, 0),
        ("dilation", dilation, 1),
    ):
        if len(values) != len(x) - 2 or any(v < least for v in values):
            raise InvalidArgumentError(
                operation=name,
                argument=argument,
                found=f"{values} for {len(x) - 2} spatial axes",
                fix=f"give one integer of at least {least}, or one for each axis",
            )
    if groups < 1 or w[1] * groups != x[1] or w[0] % groups:
        raise ShapeError(
            operation=name,
            argument="w",
            found=f"shapes {x} and {w} with {groups} groups",
            fix="make `w.shape[1] * groups` the channels of `x`, and `w.shape[0]` a "
            "multiple of `groups`",
        )
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, w[2:], strict=True)]
    sizes = [n + 2 * p for n, p in zip(x[2:], padding, strict=True)]
    if any(k < 1 for k in w[2:]) or any(
        r > n for r, n in zip(reach, sizes, strict=True)
    ):
        raise ShapeError(
            operation=name,
            argument="w",
            found=f"a window of {tuple(reach)} on padded images of {tuple(sizes)}",
            fix="use a smaller kernel or dilation, or more padding",
        )
    grid = tuple((n - r) // s + 1 for n, r, s in zip(sizes, reach, stride, strict=True))
    return (x[0], w[0], *grid)


def _same(name: str, y: Ints, out: Ints) -> None:
    if y != out:
        raise ShapeError(
            operation=name,
            argument="y",
            found=f"shape {y} where the convolution gives {out}",
            fix="give it the shape of the convolution's output",
        )


def _conv_infer(x: Aval, w: Aval, *params: Any) -> tuple[Any, Any]:
    shape = _checked("conv", x.shape, w.shape, *params)
    return shape, np.result_type(x.dtype, w.dtype)


def _input_infer(y: Aval, w: Aval, shape: Ints, *params: Any) -> tuple[Any, Any]:
    _same("conv_input", y.shape, _checked("conv_input", shape, w.shape, *params))
    return shape, np.result_type(y.dtype, w.dtype)


def _weight_infer(x: Aval, y: Aval, shape: Ints, *params: Any) -> tuple[Any, Any]:
    _same("conv_weight", y.shape, _checked("conv_weight", x.shape, shape, *params))
    return shape, np.result_type(x.dtype, y.dtype)


def _how(call: Call) -> tuple[Any, ...]:
    return call.stride, call.padding, call.dilation, call.groups


def conv(F: Evaluator, x: Any, w: Any, call: Call) -> Any:
    return F.conv(x, w, *_how(call))


def conv_input(F: Evaluator, y: Any, w: Any, call: Call, x: Ints) -> Any:
    return F.conv_input(y, w, x, *_how(call))


def conv_weight(F: Evaluator, x: Any, y: Any, call: Call, w: Ints) -> Any:
    return F.conv_weight(x, y, w, *_how(call))


_HOW: Final = ("stride", "padding", "dilation", "groups")


def _scratch(call: Call) -> int:
    x, w = call.ins[0].shape, call.ins[1].shape
    g: Geometry | None = None
    if call.op.name == "conv_input":
        x = call.shape
        g = _turned(call, x, w)
    elif call.op.name == "conv_weight":
        w = call.shape
    return (g or _of(call, x, w)).nbytes(call.out.dtype.itemsize)


register(
    Op(
        "conv",
        ("x", "w"),
        params=_HOW,
        infer=_conv_infer,
        kernel=Write(_conv, _scratch, form=forms.conv),
        vjp={
            "x": lambda F, ct, call, *, w: project(
                F, conv_input(F, ct, w, call, call.ins[0].shape), call.ins[0]
            ),
            "w": lambda F, ct, call, *, x: project(
                F, conv_weight(F, x, ct, call, call.ins[1].shape), call.ins[1]
            ),
        },
        jvp={
            "x": lambda F, t, call, *, w: conv(F, t, w, call),
            "w": lambda F, t, call, *, x: conv(F, x, t, call),
        },
        batch=conv_batch,
    )
)
register(
    Op(
        "conv_input",
        ("y", "w"),
        params=("shape", *_HOW),
        infer=_input_infer,
        kernel=Write(_conv_input, _scratch, form=forms.conv_input),
        vjp={
            "y": lambda F, ct, call, *, w: project(
                F, conv(F, ct, w, call), call.ins[0]
            ),
            "w": lambda F, ct, call, *, y: project(
                F, conv_weight(F, ct, y, call, call.ins[1].shape), call.ins[1]
            ),
        },
        jvp={
            "y": lambda F, t, call, *, w: conv_input(F, t, w, call, call.shape),
            "w": lambda F, t, call, *, y: conv_input(F, y, t, call, call.shape),
        },
        batch=conv_input_batch,
    )
)
register(
    Op(
        "conv_weight",
        ("x", "y"),
        params=("shape", *_HOW),
        infer=_weight_infer,
        kernel=Write(_conv_weight, _scratch, form=forms.conv_weight),
        vjp={
            "x": lambda F, ct, call, *, y: project(
                F, conv_input(F, y, ct, call, call.ins[0].shape), call.ins[0]
            ),
            "y": lambda F, ct, call, *, x: project(
                F, conv(F, x, ct, call), call.ins[1]
            ),
        },
        jvp={
            "x": lambda F, t, call, *, y: conv_weight(F, t, y, call, call.shape),
            "y": lambda F, t, call, *, x: conv_weight(F, x, t, call, call.shape),
        },
        batch=conv_weight_batch,
    )
)
