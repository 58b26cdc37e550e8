"""Rows that make values from parameters alone, and numbers as parameters.

Parameters are dictionary keys, where 0.0 equals -0.0 and NaN never equals itself.
`exact` writes these two as text, so that a constant keeps its sign and finds its plan
again; kernels read parameters through `number`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import _forms_arrays as forms
from ._op import Call, Op, Write, register

Array = np.ndarray[Any, Any]


def exact(value: Any) -> Any:
    """A Python number as a parameter that is equal exactly where the number is."""
    if isinstance(value, float | complex):
        parts = (value.real, value.imag)
        if any(p != p or (p == 0 and math.copysign(1.0, p) < 0) for p in parts):
            return repr(value)
    return value


def number(value: Any, dtype: np.dtype[Any]) -> Any:
    """The number that `exact` encoded."""
    if isinstance(value, str):
        return complex(value) if dtype.kind == "c" else float(value)
    return value


def _full(call: Call, outs: list[Array], ins: list[Array]) -> None:
    outs[0].fill(number(call.value, outs[0].dtype))


def _arange(call: Call, outs: list[Array], ins: list[Array]) -> None:
    out = outs[0]
    start, stop, step = (
        number(v, out.dtype) for v in (call.start, call.stop, call.step)
    )
    out[...] = np.arange(start, stop, step, dtype=out.dtype)


def _linspace(call: Call, outs: list[Array], ins: list[Array]) -> None:
    out = outs[0]
    start, stop = (number(v, out.dtype) for v in (call.start, call.stop))
    out[...] = np.linspace(
        start, stop, call.num, endpoint=call.endpoint, dtype=out.dtype
    )


def _eye(call: Call, outs: list[Array], ins: list[Array]) -> None:
    outs[0].fill(0)
    np.fill_diagonal(outs[0][max(0, -call.k) :, max(0, call.k) :], 1)


register(
    Op(
        "full",
        (),
        params=("shape", "dtype", "value", "device"),
        infer=lambda shape, dtype, value, device: (shape, dtype),
        kernel=Write(_full, form=forms.full),
    )
)
# NumPy has no form of these two that writes into given memory: scratch of that size,
# and for `linspace` of the steps to it, which are in double precision.
register(
    Op(
        "arange",
        (),
        params=("start", "stop", "step", "size", "dtype", "device"),
        infer=lambda start, stop, step, size, dtype, device: ((size,), dtype),
        kernel=Write(_arange, lambda call: call.out.nbytes, form=forms.arange),
    )
)
register(
    Op(
        "linspace",
        (),
        params=("start", "stop", "num", "endpoint", "dtype", "device"),
        infer=lambda start, stop, num, endpoint, dtype, device: ((num,), dtype),
        kernel=Write(
            _linspace,
            lambda call: (
                call.num * (48 if call.dtype.kind == "c" else 24) + call.out.nbytes
            ),
            form=forms.linspace,
        ),
    )
)
register(
    Op(
        "eye",
        (),
        params=("rows", "cols", "k", "dtype", "device"),
        infer=lambda rows, cols, k, dtype, device: ((rows, cols), dtype),
        kernel=Write(_eye, form=forms.eye),
    )
)
