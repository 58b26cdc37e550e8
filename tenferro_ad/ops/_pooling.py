"""Pooling rows over the trailing axes of (batch, channels, *spatial).

`avg_pool` and `avg_pool_input` are each other's adjoint. `max_pool` keeps its argument
and its result; `max_pool_input` hands a cotangent to the largest elements of each
window, which share equally when they tie, and `max_pool_pick`, its adjoint, averages a
tangent over them. Padding takes part in averages as zero and never in maxima. A window
that holds NaN has the value NaN, shared by all its elements.

Kernels visit the taps of a window and slice: nothing is unfolded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._aval import Aval
from ..errors import DTypeError, InvalidArgumentError, ShapeError
from . import _conventions as say
from . import _forms_products as forms
from ._batching import leading, longer
from ._equations import wide
from ._op import Call, Evaluator, Op, Write, register
from ._scalar import of_kinds
from ._windows import Array, Ints, buffers

Index = tuple[Any, ...]


def _taps(spatial: Ints, grid: Ints, call: Call) -> Iterator[tuple[Index, Index]]:
    """For each tap of the window: where it reads, and for which outputs."""
    axes = []
    for n, m, k, s, p in zip(
        spatial, grid, call.kernel, call.stride, call.padding, strict=True
    ):
        pairs = []
        for tap in range(k):
            first = max(0, -((tap - p) // s))
            last = min(m, (n - 1 + p - tap) // s + 1)
            if first < last:
                at = first * s - p + tap
                stop = at + (last - first - 1) * s + 1
                pairs.append((slice(at, stop, s), slice(first, last)))
        axes.append(pairs)
    for taps in itertools.product(*axes):
        yield (..., *[t[0] for t in taps]), (..., *[t[1] for t in taps])


def _pooled(name: str, x: Aval, kernel: Ints, stride: Ints, padding: Ints) -> Ints:
    """The output's shape.

    Raises:
        InvalidArgumentError: a parameter out of its range.
        ShapeError: a window larger than the padded image.
    """
    n = len(kernel)
    for argument, values, least in (
        ("kernel_size", kernel, 1),
        ("stride", stride, 1),
        ("padding", padding, 0),
    ):
        if len(values) != n or any(v < least for v in values):
            raise InvalidArgumentError(
                operation=name,
                argument=argument,
                found=f"{values} for {n} spatial axes",
                fix=f"give one integer of at least {least}, or one for each axis",
            )
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        raise InvalidArgumentError(
            operation=name,
            argument="padding",
            found=f"{padding} for windows of {kernel}",
            fix="use at most half of the window, so that no window is all padding",
        )
    sizes = [m + 2 * p for m, p in zip(x.shape[-n:], padding, strict=False)]
    if x.ndim < n or any(k > m for k, m in zip(kernel, sizes, strict=False)):
        raise ShapeError(
            operation=name,
            argument="x",
            found=f"shape {x.shape} for windows of {kernel}",
            fix="use a smaller window, or more padding",
        )
    grid = [(m - k) // s + 1 for m, k, s in zip(sizes, kernel, stride, strict=True)]
    return (*x.shape[:-n], *grid)


_WINDOW = ("kernel", "stride", "padding")


def _spatial(array: Array, call: Call) -> Ints:
    shape: Ints = array.shape
    return shape[array.ndim - len(call.kernel) :]


def _window(call: Call) -> tuple[Ints, Ints, Ints]:
    return call.kernel, call.stride, call.padding


# ---- averages ------------------------------------------------------------------------


def _avg_infer(x: Aval, *window: Ints) -> tuple[Any, Any]:
    if x.dtype.kind not in "fc":
        raise DTypeError(
            operation="avg_pool",
            argument="x",
            found=f"dtype {x.dtype}",
            fix="convert it to a floating dtype with `ta.astype`",
        )
    return _pooled("avg_pool", x, *window), x.dtype


def _in_single(
    kernel: Callable[..., None],
) -> Callable[[Call, list[Array], list[Array]], None]:
    """The kernel with halves summed in single precision."""

    def wide(call: Call, outs: list[Array], ins: list[Array]) -> None:
        if call.out.dtype != np.float16:
            kernel(call, outs, ins)
            return
        summed = np.empty(call.out.shape, np.float32)
        kernel(call, [summed], ins)
        np.copyto(outs[0], summed, casting="unsafe")

    return wide


def _halves(call: Call) -> int:
    """Scratch of sums of halves."""
    return 4 * call.out.size if call.out.dtype == np.float16 else 0


def _sums(call: Call) -> int:
    """Scratch of strided sums over the taps, and of sums of halves."""
    width = wide(call.out.dtype).itemsize
    return buffers(call.ins[0].size, width) + _halves(call)


@_in_single
def _avg_pool(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (out,), (x,) = outs, ins
    out.fill(0)
    for read, at in _taps(_spatial(x, call), _spatial(out, call), call):
        target = out[at]
        np.add(target, x[read], target)
    np.multiply(out, out.real.dtype.type(1 / math.prod(call.kernel)), out)


@_in_single
def _avg_pool_input(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (out,), (y,) = outs, ins
    out.fill(0)
    for read, at in _taps(_spatial(out, call), _spatial(y, call), call):
        target = out[read]
        np.add(target, y[at], target)
    np.multiply(out, out.real.dtype.type(1 / math.prod(call.kernel)), out)


def _avg(F: Evaluator, v: Any, call: Call) -> Any:
    return F.avg_pool(v, *_window(call))


register(
    Op(
        "avg_pool",
        ("x",),
        params=_WINDOW,
        infer=_avg_infer,
        kernel=Write(_avg_pool, _sums, form=forms.avg_pool),
        vjp={
            "x": lambda F, ct, call: F.avg_pool_input(
                ct, call.ins[0].shape, *_window(call)
            )
        },
        jvp={"x": _avg},
        batch=leading(),
    )
)
register(
    Op(
        "avg_pool_input",
        ("y",),
        params=("shape", *_WINDOW),
        infer=lambda y, shape, *window: (shape, y.dtype),
        kernel=Write(_avg_pool_input, _sums, form=forms.avg_pool_input),
        vjp={"y": _avg},
        jvp={
            "y": lambda F, t, call: F.avg_pool_input(t, call.shape, *_window(call)),
        },
        batch=leading(shape=longer),
    )
)


# ---- maxima --------------------------------------------------------------------------


def _max_infer(x: Aval, *window: Ints) -> tuple[Any, Any]:
    if x.dtype.kind not in "fiu":
        raise DTypeError(
            operation="max_pool",
            argument="x",
            found=f"dtype {x.dtype}, which has no order",
            fix="pool real numbers",
        )
    return _pooled("max_pool", x, *window), x.dtype


def _max_pool(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (out,), (x,) = outs, ins
    out.fill(-np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min)
    for read, at in _taps(_spatial(x, call), _spatial(out, call), call):
        target = out[at]
        np.maximum(target, x[read], out=target)


def _shares(call: Call, x: Array, top: Array) -> Array:
    """How many elements of each window are largest, as numbers to divide by."""
    count = np.zeros(top.shape, wide(top.dtype))
    for read, at in _taps(_spatial(x, call), _spatial(top, call), call):
        target = count[at]
        # Not less, rather than equal: true of NaN as well, so no count stays 0.
        np.add(target, ~np.less(x[read], top[at]), target)
    return count


@_in_single
def _max_pool_input(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (out,), (y, x, top) = outs, ins
    share = _shares(call, x, top)
    np.divide(y, share, share)
    out.fill(0)
    for read, at in _taps(_spatial(x, call), _spatial(top, call), call):
        target = out[read]
        np.add(target, share[at], target, where=~np.less(x[read], top[at]))


@_in_single
def _max_pool_pick(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (out,), (t, x, top) = outs, ins
    out.fill(0)
    for read, at in _taps(_spatial(x, call), _spatial(top, call), call):
        target = out[at]
        np.add(target, t[read], target, where=~np.less(x[read], top[at]))
    np.divide(out, _shares(call, x, top), out)


def _max_input(F: Evaluator, ct: Any, call: Call, *, x: Any, top: Any) -> Any:
    return F.max_pool_input(ct, x, top, *_window(call))


def _max_pick(F: Evaluator, t: Any, call: Call, *, x: Any, top: Any) -> Any:
    return F.max_pool_pick(t, x, top, *_window(call))


def _constant(F: Evaluator, ct: Any, call: Call) -> None:
    """Which elements are largest is locally constant."""


def _masks(call: Call) -> int:
    """Two boolean masks and the shares, in the size of the pooled value, and sums."""
    top = call.ins[2]
    width = wide(top.dtype).itemsize
    return top.size * (2 + width) + buffers(top.size, 1 + width) + _halves(call)


register(
    Op(
        "max_pool",
        ("x",),
        params=_WINDOW,
        outs=("top",),
        infer=_max_infer,
        kernel=Write(_max_pool, _sums, form=forms.max_pool),
        vjp={"x": _max_input},
        jvp={"x": _max_pick},
        batch=leading(),
        kink=say.TIES,
    )
)
register(
    Op(
        "max_pool_input",
        ("y", "x", "top"),
        params=_WINDOW,
        infer=of_kinds(
            "max_pool_input",
            ("y", "x", "top"),
            "f",
            lambda y, x, top, *window: (x.shape, y.dtype),
        ),
        kernel=Write(_max_pool_input, _masks, form=forms.max_pool_input),
        vjp={"y": _max_pick, "x": _constant, "top": _constant},
        jvp={"y": _max_input, "x": _constant, "top": _constant},
        batch=leading(),
    )
)
register(
    Op(
        "max_pool_pick",
        ("t", "x", "top"),
        params=_WINDOW,
        infer=of_kinds(
            "max_pool_pick",
            ("t", "x", "top"),
            "f",
            lambda t, x, top, *window: (top.shape, t.dtype),
        ),
        kernel=Write(_max_pool_pick, _masks, form=forms.max_pool_pick),
        vjp={"t": _max_input, "x": _constant, "top": _constant},
        jvp={"t": _max_pick, "x": _constant, "top": _constant},
        batch=leading(),
    )
)
