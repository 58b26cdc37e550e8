"""Movement rows: views (second descriptors on the same root) and the kernels that place
data. Views allocate and copy nothing; their derivatives are views or placements again.

`reshape` may need a recorded duplicate where the strides of its operand cannot express
the result. Derivatives never duplicate: they use `regroup`, which then writes a fresh
output instead, so that a program without copies has a backward pass without copies.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Final, Literal

import numpy as np

from .._aval import Aval
from ..errors import ShapeError
from . import _forms_arrays as forms
from ._batching import later, leading, longer, with_rank
from ._op import Call, Evaluator, Move, Op, View, Write, project, register
from ._place import Key, span

Array = np.ndarray[Any, Any]


def _astype(call: Call, outs: list[Array], ins: list[Array]) -> None:
    # Complex to real keeps the real part, as documented; NumPy would warn.
    source = ins[0]
    if source.dtype.kind == "c" and outs[0].dtype.kind not in "cb":
        source = source.real
    np.copyto(outs[0], source, casting="unsafe")


register(
    Op(
        "astype",
        ("x",),
        params=("dtype",),
        infer=lambda x, dtype: (x.shape, dtype),
        kernel=Write(_astype, form=forms.astype),
        vjp={"x": lambda F, ct, call: project(F, ct, call.ins[0])},
        jvp={
            "x": lambda F, t, call: (
                F.astype(t, call.dtype) if call.dtype.kind in "fc" else None
            )
        },
        batch=leading(),
    )
)


# ---- views ---------------------------------------------------------------------------


def _reshape_infer(x: Aval, shape: tuple[int, ...]) -> tuple[Any, Any]:
    if math.prod(shape) != x.size:
        raise ShapeError(
            operation="reshape",
            argument="shape",
            found=f"{shape} ({math.prod(shape)} elements) for a value of shape "
            f"{x.shape} ({x.size} elements)",
            fix="keep the number of elements",
        )
    return shape, x.dtype


def reshaped(array: Array, shape: tuple[int, ...]) -> Array | None:
    """The same memory under another shape, or None where strides cannot express it."""
    if array.flags.c_contiguous:
        return array.reshape(shape)
    try:
        return array.reshape(shape, copy=False)
    except ValueError:
        return None


def _reshaping(name: str, otherwise: Literal["duplicate", "write"]) -> Op:
    return Op(
        name,
        ("x",),
        params=("shape",),
        infer=_reshape_infer,
        kernel=View(lambda array, call: reshaped(array, call.shape), otherwise),
        vjp={"x": lambda F, ct, call: F.regroup(ct, call.ins[0].shape)},
        jvp={"x": lambda F, t, call: F.regroup(t, call.shape)},
        batch=leading(shape=longer),
    )


register(_reshaping("reshape", "duplicate"))
register(_reshaping("regroup", "write"))
# Another owner of the same values, because the program asked for one.
register(
    Op(
        "duplicate",
        ("x",),
        infer=lambda x: (x.shape, x.dtype),
        kernel=View(lambda array, call: None),
        vjp={"x": lambda F, ct, call: ct},
        jvp={"x": lambda F, t, call: t},
        batch=leading(),
    )
)


def _broadcast_infer(x: Aval, shape: tuple[int, ...]) -> tuple[Any, Any]:
    lead = len(shape) - x.ndim
    if lead < 0 or any(
        a not in (1, b) for a, b in zip(x.shape, shape[lead:], strict=True)
    ):
        raise ShapeError(
            operation="broadcast_to",
            argument="shape",
            found=f"shape {x.shape}, which does not broadcast to {shape}",
            fix="make each axis 1 or equal, counted from the right",
        )
    return shape, x.dtype


def _broadcast(array: Array, call: Call) -> Array:
    shape = call.shape
    if not array.flags.c_contiguous:
        return np.broadcast_to(array, shape)
    lead = len(shape) - array.ndim
    strides = (0,) * lead + tuple(
        0 if n == 1 and m != 1 else s
        for n, m, s in zip(array.shape, shape[lead:], array.strides, strict=True)
    )
    # `np.broadcast_to` costs ten times as much for the same descriptor, and makes it
    # read-only: a gradient without elements may be written, like any other.
    return np.ndarray(shape, array.dtype, array, 0, strides)


register(
    Op(
        "broadcast_to",
        ("x",),
        params=("shape",),
        infer=_broadcast_infer,
        kernel=View(_broadcast),
        vjp={"x": lambda F, ct, call: project(F, ct, call.ins[0])},
        jvp={"x": lambda F, t, call: F.broadcast_to(t, call.shape)},
        batch=lambda F, call, size, xs, batched: F.broadcast_to(
            with_rank(F, xs[0], len(call.shape)), (size, *call.shape)
        ),
    )
)


def _permute_infer(x: Aval, axes: tuple[int, ...]) -> tuple[Any, Any]:
    return tuple(x.shape[a] for a in axes), x.dtype


def _permute_back(F: Evaluator, ct: Any, call: Call) -> Any:
    inverse = [0] * len(call.axes)
    for k, a in enumerate(call.axes):
        inverse[a] = k
    return F.permute_dims(ct, tuple(inverse))


register(
    Op(
        "permute_dims",
        ("x",),
        params=("axes",),
        infer=_permute_infer,
        kernel=View(lambda array, call: array.transpose(call.axes)),
        vjp={"x": _permute_back},
        jvp={"x": lambda F, t, call: F.permute_dims(t, call.axes)},
        batch=leading(axes=lambda axes, size: (0, *later(axes, size))),
    )
)


# A checkpoint region records it, so that running the region again stops there too.
register(
    Op(
        "stop_gradient",
        ("x",),
        infer=lambda x: (x.shape, x.dtype),
        kernel=View(lambda array, call: array),
        vjp={"x": lambda F, ct, call: None},
        jvp={"x": lambda F, t, call: None},
        stops=True,
        batch=leading(),
    )
)


# Not of the table: its result is on another device than its operand, so none of the
# table's properties is about it. A cotangent goes back, a tangent goes along.
TO_DEVICE: Final[Op] = Op(
    "to_device",
    ("x",),
    params=("device",),
    infer=lambda x, device: (x.shape, x.dtype),
    kernel=Move(),
    vjp={"x": lambda F, ct, call: F[TO_DEVICE](ct, call.ins[0].device)},
    jvp={"x": lambda F, t, call: F[TO_DEVICE](t, call.device)},
    batch=leading(),
)


# ---- joining and cutting -------------------------------------------------------------


def _along(shape: tuple[int, ...], axis: int, start: int, count: int) -> Key:
    return tuple(
        span(start, count, 1) if k == axis else span(0, n, 1)
        for k, n in enumerate(shape)
    )


def _concat_infer(xs: tuple[Aval, ...], axis: int) -> tuple[Any, Any]:
    first = xs[0].shape
    for x in xs[1:]:
        if x.ndim != len(first) or any(
            a != b
            for k, (a, b) in enumerate(zip(first, x.shape, strict=True))
            if k != axis
        ):
            raise ShapeError(
                operation="concat",
                argument="arrays",
                found=f"shapes {' and '.join(str(v.shape) for v in xs)} along axis "
                f"{axis}",
                fix="make all axes but that one equal",
            )
    size = sum(x.shape[axis] for x in xs)
    return (*first[:axis], size, *first[axis + 1 :]), np.result_type(
        *[x.dtype for x in xs]
    )


def _concat(call: Call, outs: list[Array], ins: list[Array]) -> None:
    np.concatenate(ins, axis=call.axis, out=outs[0])


def _concat_key(call: Call, i: int) -> Key:
    before = sum(x.shape[call.axis] for x in call.ins[:i])
    return _along(call.out.shape, call.axis, before, call.ins[i].shape[call.axis])


def _concat_back(F: Evaluator, ct: Any, call: Call, i: int) -> Any:
    return project(F, F.slice(ct, _concat_key(call, i)), call.ins[i])


def _concat_push(F: Evaluator, t: Any, call: Call, i: int) -> Any:
    if t.aval.dtype != call.out.dtype:
        t = F.astype(t, call.out.dtype)
    return F.place(t, call.out.shape, _concat_key(call, i), 0)


register(
    Op(
        "concat",
        ("arrays",),
        params=("axis",),
        infer=_concat_infer,
        kernel=Write(_concat, form=forms.concat),
        vjp={"arrays": _concat_back},
        jvp={"arrays": _concat_push},
        variadic=True,
        batch=leading(axis=later),
    )
)


def _split_infer(x: Aval, sizes: tuple[int, ...], axis: int) -> list[tuple[Any, Any]]:
    if sum(sizes) != x.shape[axis]:
        raise ShapeError(
            operation="split",
            argument="sizes",
            found=f"parts {sizes} of axis {axis} of a value of shape {x.shape}",
            fix="give parts that add up to the length of the axis",
        )
    return [((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype) for n in sizes]


def _split(array: Array, call: Call) -> tuple[Array, ...]:
    lead = (slice(None),) * call.axis
    ends = list(itertools.accumulate(call.sizes, initial=0))
    return tuple(array[(*lead, slice(a, b))] for a, b in itertools.pairwise(ends))


def _split_back(F: Evaluator, cts: tuple[Any, ...], call: Call) -> Any:
    (known, *more) = [(k, ct) for k, ct in enumerate(cts) if ct is not None]
    if not more:  # one part in use: one placement
        k, ct = known
        key = _along(call.ins[0].shape, call.axis, sum(call.sizes[:k]), call.sizes[k])
        return F.place(ct, call.ins[0].shape, key, 0)
    parts = []
    for ct, out in zip(cts, call.outs, strict=True):
        if ct is None:  # a part that nothing used: one zero, broadcast
            ct = F.broadcast_to(F.full((), out.dtype, 0, out.device), out.shape)
        parts.append(ct)
    return F.concat(parts, call.axis)


# Adjacent views of one value. A row of its own because the transpose of all parts is
# one concat, where single slices would each fill the whole.
register(
    Op(
        "split",
        ("x",),
        params=("sizes", "axis"),
        infer=_split_infer,
        kernel=View(_split),
        vjp={"x": _split_back},
        jvp={"x": lambda F, t, call: F.split(t, call.sizes, call.axis)},
        batch=leading(axis=later),
    )
)
