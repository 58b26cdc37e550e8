"""Movement rows: views (second descriptors on the same root) and the kernels that place
data. Views allocate and copy nothing; their derivatives are views or placements again.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._aval import Aval
from ..errors import ShapeError
from ._op import Call, Evaluator, Op, View, Write, project, register

Array = np.ndarray[Any, Any]


# ---- fresh values ---------------------------------------------------------------------


def _full(call: Call, outs: list[Array], ins: list[Array]) -> None:
    outs[0].fill(call.value)


register(
    Op(
        "full",
        (),
        params=("shape", "dtype", "value", "device"),
        infer=lambda shape, dtype, value, device: (shape, dtype),
        kernel=Write(_full),
    )
)


def _astype(call: Call, outs: list[Array], ins: list[Array]) -> None:
    # Complex to real keeps the real part, as documented; NumPy would warn.
    source = ins[0]
    if source.dtype.kind == "c" and outs[0].dtype.kind != "c":
        source = source.real
    np.copyto(outs[0], source, casting="unsafe")


register(
    Op(
        "astype",
        ("x",),
        params=("dtype",),
        infer=lambda x, dtype: (x.shape, dtype),
        kernel=Write(_astype),
        vjp={"x": lambda F, ct, call: project(F, ct, call.ins[0])},
        jvp={
            "x": lambda F, t, call: (
                F.astype(t, call.dtype) if call.dtype.kind in "fc" else None
            )
        },
    )
)


# ---- views ----------------------------------------------------------------------------


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


def _reshape(array: Array, call: Call) -> Array | None:
    if array.flags.c_contiguous:
        return array.reshape(call.shape)
    try:
        return array.reshape(call.shape, copy=False)
    except ValueError:
        return None


def _reshape_back(F: Evaluator, ct: Any, call: Call) -> Any:
    return F.reshape(ct, call.ins[0].shape)


register(
    Op(
        "reshape",
        ("x",),
        params=("shape",),
        infer=_reshape_infer,
        kernel=View(_reshape),
        vjp={"x": _reshape_back},
        jvp={"x": lambda F, t, call: F.reshape(t, call.shape)},
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
            found=f"{shape} for a value of shape {x.shape}",
            fix="only axes of length 1 and new leading axes can be broadcast",
        )
    return shape, x.dtype


def _broadcast(array: Array, call: Call) -> Array:
    shape = call.shape
    lead = len(shape) - array.ndim
    strides = (0,) * lead + tuple(
        0 if n == 1 and m != 1 else s
        for n, m, s in zip(array.shape, shape[lead:], array.strides, strict=True)
    )
    # `np.broadcast_to` costs ten times as much for the same descriptor.
    return np.ndarray(shape, array.dtype, array, 0, strides) if array.size else (
        np.broadcast_to(array, shape)
    )


register(
    Op(
        "broadcast_to",
        ("x",),
        params=("shape",),
        infer=_broadcast_infer,
        kernel=View(_broadcast),
        vjp={"x": lambda F, ct, call: project(F, ct, call.ins[0])},
        jvp={"x": lambda F, t, call: F.broadcast_to(t, call.shape)},
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
    )
)


register(
    Op(
        "stop_gradient",
        ("x",),
        infer=lambda x: (x.shape, x.dtype),
        kernel=View(lambda array, call: array),
        vjp={"x": lambda F, ct, call: None},
        jvp={"x": lambda F, t, call: None},
    )
)
