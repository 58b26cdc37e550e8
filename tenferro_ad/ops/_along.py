"""Rows with one index for each element of the result, and the places of a mask.

`take_along_axis` and `add_along_axis` are each other's transposes; `mask_indices` makes
the index arrays of a boolean mask.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._aval import Aval
from ..errors import ShapeError
from . import _forms_indexing as forms
from ._batching import by_loop, later, leading
from ._indexing import from_zero, index_nbytes, integers
from ._op import Call, Op, Write, register
from ._rows import INT, check_range, singles, wrapped
from ._scalar import of_kinds

Array = np.ndarray[Any, Any]


# ---- along an axis: one index for each element ---------------------------------------


def _along_infer(x: Aval, indices: Aval, axis: int) -> tuple[Any, Any]:
    integers("take_along_axis", indices)
    fits = x.ndim == indices.ndim and all(
        k == axis or a == b
        for k, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True))
    )
    if not fits:
        raise ShapeError(
            operation="take_along_axis",
            argument="indices",
            found=f"shape {indices.shape} for a value of shape {x.shape}",
            fix=f"make all axes but axis {axis} equal",
        )
    return indices.shape, x.dtype


def _along_check(call: Call, ins: list[Array]) -> None:
    check_range("take_along_axis", ins[1], call.axis, call.ins[0].shape[call.axis])


def _along(call: Call, outs: list[Array], ins: list[Array]) -> None:
    outs[0][...] = np.take_along_axis(ins[0], ins[1].astype(INT, copy=False), call.axis)


def _along_scratch(call: Call) -> int:
    return call.out.nbytes + index_nbytes(call)


def _add_along_infer(ct: Aval, indices: Aval, axis: int, size: int) -> tuple[Any, Any]:
    integers("add_along_axis", indices)
    return (*ct.shape[:axis], size, *ct.shape[axis + 1 :]), ct.dtype


def _add_along_check(call: Call, ins: list[Array]) -> None:
    check_range("add_along_axis", ins[1], call.axis, call.size)


def _add_along(call: Call, out: Array, ins: Sequence[Array]) -> None:
    ct, indices = ins
    axis = call.axis
    if not ct.size:
        return
    if out.dtype == np.float16:
        wide: Array = np.zeros(out.shape, np.float32)
        _add_along(call, wide, [ct.astype(np.float32), indices])
        np.add(out, wide, out, casting="unsafe")
        return
    if not out.flags.c_contiguous:  # a cotangent of another layout, added to in place
        summed = np.zeros(out.shape, out.dtype)
        _add_along(call, summed, ins)
        np.add(out, summed, out)
        return
    inner = math.prod(out.shape[axis + 1 :])
    outer = math.prod(out.shape[:axis])
    index = wrapped(indices, call.size).reshape(outer, -1, inner)
    first = np.arange(outer).reshape(-1, 1, 1) * (call.size * inner)
    place = index * inner + first + np.arange(inner)
    np.add.at(out.reshape(-1), place.reshape(-1), ct.reshape(-1))


def _add_along_scratch(call: Call) -> int:
    return call.ins[0].nbytes + 2 * index_nbytes(call) + singles(call)


register(
    Op(
        "take_along_axis",
        ("x", "indices"),
        params=("axis",),
        short=lambda call, arg: (
            "add_along_axis",
            ("ct", "indices"),
            (call.axis, call.ins[0].shape[call.axis]),
        ),
        infer=_along_infer,
        kernel=Write(_along, _along_scratch, _along_check, form=forms.take_along_axis),
        vjp={
            "x": lambda F, ct, call, *, indices: F.add_along_axis(
                ct, indices, call.axis, call.ins[0].shape[call.axis]
            )
        },
        jvp={
            "x": lambda F, t, call, *, indices: F.take_along_axis(t, indices, call.axis)
        },
        batch=leading(axis=later),
    )
)
register(
    Op(
        "add_along_axis",
        ("x", "indices"),
        params=("axis", "size"),
        infer=_add_along_infer,
        kernel=Write(
            from_zero(_add_along),
            _add_along_scratch,
            _add_along_check,
            _add_along,
            form=forms.add_along_axis,
        ),
        vjp={
            "x": lambda F, ct, call, *, indices: F.take_along_axis(
                ct, indices, call.axis
            )
        },
        jvp={
            "x": lambda F, t, call, *, indices: F.add_along_axis(
                t, indices, call.axis, call.size
            )
        },
        batch=leading(axis=later),
    )
)


# ---- masks ---------------------------------------------------------------------------


def _mask_indices(call: Call, outs: list[Array], ins: list[Array]) -> None:
    for row, found in zip(outs[0], np.nonzero(ins[0]), strict=True):
        row[...] = found


# The places where a mask holds, in row-major order. The caller counts them first:
# inside an operation no shape depends on data.
register(
    Op(
        "mask_indices",
        ("mask",),
        params=("count",),
        infer=of_kinds(
            "mask_indices",
            ("mask",),
            "b",
            lambda mask, count: ((mask.ndim, count), np.dtype(np.int64)),
        ),
        kernel=Write(
            _mask_indices, lambda call: call.out.nbytes, form=forms.mask_indices
        ),
        batch=by_loop,
    )
)
