"""Reinterpretation rows: a complex value seen as its real parts, and back.

Both are views: one more read-only descriptor on the same allocation and container, no
owner, no event (contract G4, G7). In the pairing Re(conj(a) b) each is the other's
adjoint. Derivatives arrive with strides of their own, which may keep real and imaginary
parts apart, so their way back to complex numbers is a kernel that writes a fresh
output: the events of a backward pass then depend on the program alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._aval import Aval, complex_dtype, real_dtype
from ..errors import DTypeError, LayoutError, ShapeError
from . import _forms_arrays as forms
from ._batching import leading
from ._op import Call, Op, View, Write, register

Array = np.ndarray[Any, Any]


def _real_infer(x: Aval) -> tuple[Any, Any]:
    if x.dtype.kind != "c":
        raise DTypeError(
            operation="view_as_real",
            argument="x",
            found=f"dtype {x.dtype}",
            fix="pass a complex tensor; a real one is real already",
        )
    return (*x.shape, 2), real_dtype(x.dtype)


def _complex_infer(x: Aval) -> tuple[Any, Any]:
    if x.dtype.name not in ("float32", "float64"):
        raise DTypeError(
            operation="view_as_complex",
            argument="x",
            found=f"dtype {x.dtype}",
            fix="pass a float32 or float64 tensor",
        )
    if x.ndim == 0 or x.shape[-1] != 2:
        raise ShapeError(
            operation="view_as_complex",
            argument="x",
            found=f"shape {x.shape}",
            fix="give a last axis of extent 2: real and imaginary part",
        )
    return x.shape[:-1], complex_dtype(x.dtype)


def _as_real(array: Array, call: Call) -> Array:
    # A new last axis of one element may be cut in two whatever the other strides are.
    return array[..., np.newaxis].view(call.out.dtype)


def _as_complex(array: Array, call: Call) -> Array:
    size = call.out.dtype.itemsize
    apart = array.strides[-1] * 2 != size
    split = any(
        stride % size
        for extent, stride in zip(array.shape[:-1], array.strides[:-1], strict=True)
        if extent > 1
    )
    if array.size and (apart or split):
        raise LayoutError(
            operation="view_as_complex",
            argument="x",
            field="strides",
            requested=array.strides,
            limit=f"adjacent parts ({size // 2} bytes) and whole elements ({size})",
            fix="use `complex(x[..., 0], x[..., 1])`, which makes a new value",
        )
    return array.view(call.out.dtype)[..., 0]


def _pack(call: Call, outs: list[Array], ins: list[Array]) -> None:
    outs[0].real = ins[0][..., 0]
    outs[0].imag = ins[0][..., 1]


register(
    Op(
        "view_as_real",
        ("x",),
        infer=_real_infer,
        kernel=View(_as_real),
        vjp={"x": lambda F, ct, call: F.pack_complex(ct)},
        jvp={"x": lambda F, t, call: F.view_as_real(t)},
        batch=leading(),
    )
)

register(
    Op(
        "view_as_complex",
        ("x",),
        infer=_complex_infer,
        kernel=View(_as_complex),
        vjp={"x": lambda F, ct, call: F.view_as_real(ct)},
        jvp={"x": lambda F, t, call: F.pack_complex(t)},
        batch=leading(),
    )
)

register(
    Op(
        "pack_complex",
        ("x",),
        infer=_complex_infer,
        kernel=Write(_pack, form=forms.pack_complex),
        vjp={"x": lambda F, ct, call: F.view_as_real(ct)},
        jvp={"x": lambda F, t, call: F.pack_complex(t)},
        batch=leading(),
    )
)
