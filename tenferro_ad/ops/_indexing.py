"""Indexing with integer arrays, and the scatter-additions that transpose it.

Indices are an operand (integers of any shape), may repeat, and may be negative (counted
from the end). Every row checks them before it allocates anything. Additions at repeated
indices happen in the order of the indices, in the dtype of the values: the result is
the same on every run.

- `take` and `take_add`: one axis, indices of any shape in its place;
- `gather` and `scatter_add`: several axes at once, `indices[j]` for axis `axes[j]`; the
  axes of the indices stand at position `at` of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from .._aval import Aval
from ..errors import DTypeError
from . import _forms_indexing as forms
from ._batching import moved, new_axis
from ._op import Call, Evaluator, Op, Write, register
from ._rows import (
    CHUNK,
    INT,
    check_range,
    gather_into,
    joined,
    scatter_onto,
    singles,
    wrapped,
)

Array = np.ndarray[Any, Any]
_INT64: Final = np.dtype(np.int64)


def integers(operation: str, indices: Aval) -> None:
    if indices.dtype.kind not in "iu":
        raise DTypeError(
            operation=operation,
            argument="indices",
            found=f"indices of dtype {indices.dtype}",
            fix="pass integers; a boolean mask goes into `x[mask]`",
        )


def index_nbytes(call: Call) -> int:
    return 2 * INT.itemsize * int(call.ins[1].size)


def _gather_scratch(call: Call) -> int:
    return min(CHUNK, call.out.nbytes) + index_nbytes(call)


def _scatter_scratch(call: Call) -> int:
    ct, out = call.ins[0], call.out
    sums = ct.nbytes + out.nbytes + singles(call)
    return int(sums + 3 * index_nbytes(call))


def from_zero(add: Callable[..., None]) -> Callable[..., None]:
    def kernel(call: Call, outs: Sequence[Array], ins: Sequence[Array]) -> None:
        outs[0].fill(0)
        add(call, outs[0], ins)

    return kernel


# ---- batches -------------------------------------------------------------------------
# Examples with indices of their own are selected together: the number of the example is
# one more index.


def _numbered(F: Evaluator, indices: Any, size: int) -> Any:
    """Indices (size, k, ...) as (k + 1, size, ...), the number of the example first."""
    aval = indices.aval
    if aval.dtype.itemsize == 8 and aval.dtype.kind == "u":
        # What int64 cannot hold is out of range and must stay so.
        indices = F.minimum(indices, np.iinfo(np.int64).max)
    if aval.dtype != _INT64:
        indices = F.astype(indices, _INT64)
    numbers = F.arange(0, size, 1, size, _INT64, aval.device)
    numbers = F.regroup(numbers, (1, size, *[1] * (aval.ndim - 2)))
    numbers = F.broadcast_to(numbers, (1, size, *aval.shape[2:]))
    return F.concat((numbers, moved(F, indices, 0, 1)), 0)


def _also_first(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The batch axis, and axes behind it."""
    return (0, *[a + 1 for a in axes])


def _gather_many(
    F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> Any:
    """`gather` with `call.axes` and `call.at`."""
    x, indices = xs
    if not batched[1]:
        axes = tuple(a + 1 for a in call.axes)
        return F.gather(x, indices, axes, call.at + 1)
    if batched[0]:
        indices = _numbered(F, indices, size)
        found = F.gather(x, indices, _also_first(call.axes), call.at)
    else:
        found = F.gather(x, moved(F, indices, 0, 1), call.axes, call.at)
    return moved(F, found, call.at, 0)


def _scatter_many(
    F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> Any:
    (ct, indices), shape = xs, (size, *call.shape)
    if not batched[1]:
        axes = tuple(a + 1 for a in call.axes)
        return F.scatter_add(ct, indices, shape, axes, call.at + 1)
    ct = _examples_at(F, ct, size, call.at, is_batched=batched[0])
    indices = _numbered(F, indices, size)
    return F.scatter_add(ct, indices, shape, _also_first(call.axes), call.at)


def _examples_at(F: Evaluator, v: Any, size: int, at: int, *, is_batched: bool) -> Any:
    """A value with the examples at position `at` (a view)."""
    if is_batched:
        return moved(F, v, 0, at)
    shape = v.aval.shape
    return F.broadcast_to(new_axis(F, v, at), (*shape[:at], size, *shape[at:]))


def _take_many(
    F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> Any:
    (x, indices), axis = xs, call.axis
    if not batched[1]:
        return F.take(x, indices, axis + 1)
    if not batched[0]:
        return moved(F, F.take(x, indices, axis), axis, 0)
    indices = _numbered(F, new_axis(F, indices, 1), size)
    return moved(F, F.gather(x, indices, (0, axis + 1), axis), axis, 0)


def _take_add_many(
    F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> Any:
    (ct, indices), axis = xs, call.axis
    if not batched[1]:
        return F.take_add(ct, indices, axis + 1, call.size)
    ct = _examples_at(F, ct, size, axis, is_batched=batched[0])
    indices = _numbered(F, new_axis(F, indices, 1), size)
    shape = (size, *call.out.shape)
    return F.scatter_add(ct, indices, shape, (0, axis + 1), axis)


# ---- take: one axis ------------------------------------------------------------------


def _take_infer(x: Aval, indices: Aval, axis: int) -> tuple[Any, Any]:
    integers("take", indices)
    return (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype


def _take_check(call: Call, ins: list[Array]) -> None:
    check_range("take", ins[1], call.axis, call.ins[0].shape[call.axis])


def _take(call: Call, outs: list[Array], ins: list[Array]) -> None:
    x, indices = ins
    if not call.out.size:
        return
    if x.flags.c_contiguous:
        np.take(x, indices, call.axis, outs[0], "wrap")
        return
    out = joined(outs[0], call.axis, indices.shape)
    columns = [wrapped(indices, x.shape[call.axis])]
    gather_into(out, x, columns, (call.axis,), call.axis)


def _take_add_infer(ct: Aval, indices: Aval, axis: int, size: int) -> tuple[Any, Any]:
    integers("take_add", indices)
    return (*ct.shape[:axis], size, *ct.shape[axis + indices.ndim :]), ct.dtype


def _take_add_check(call: Call, ins: list[Array]) -> None:
    check_range("take_add", ins[1], call.axis, call.size)


def _take_add(call: Call, out: Array, ins: Sequence[Array]) -> None:
    ct, indices = ins
    axis = call.axis
    shape = ct.shape
    merged = (*shape[:axis], indices.size, *shape[axis + indices.ndim :])
    columns = [wrapped(indices, call.size)]
    scatter_onto(out, ct.reshape(merged), columns, (axis,), axis)


register(
    Op(
        "take",
        ("x", "indices"),
        params=("axis",),
        short=lambda call, arg: (
            "take_add",
            ("ct", "indices"),
            (call.axis, call.ins[0].shape[call.axis]),
        ),
        infer=_take_infer,
        kernel=Write(_take, _gather_scratch, _take_check, form=forms.take),
        vjp={
            "x": lambda F, ct, call, *, indices: F.take_add(
                ct, indices, call.axis, call.ins[0].shape[call.axis]
            )
        },
        jvp={"x": lambda F, t, call, *, indices: F.take(t, indices, call.axis)},
        batch=_take_many,
    )
)
register(
    Op(
        "take_add",
        ("x", "indices"),
        params=("axis", "size"),
        infer=_take_add_infer,
        kernel=Write(
            from_zero(_take_add),
            _scatter_scratch,
            _take_add_check,
            _take_add,
            form=forms.take_add,
        ),
        vjp={"x": lambda F, ct, call, *, indices: F.take(ct, indices, call.axis)},
        jvp={
            "x": lambda F, t, call, *, indices: F.take_add(
                t, indices, call.axis, call.size
            )
        },
        batch=_take_add_many,
    )
)


# ---- gather: several axes ------------------------------------------------------------


def _gather_infer(
    x: Aval, indices: Aval, axes: tuple[int, ...], at: int
) -> tuple[Any, Any]:
    integers("gather", indices)
    rest = [n for k, n in enumerate(x.shape) if k not in axes]
    return (*rest[:at], *indices.shape[1:], *rest[at:]), x.dtype


def _gather_check(call: Call, ins: list[Array]) -> None:
    for row, axis in zip(ins[1], call.axes, strict=True):
        check_range("gather", row, axis, call.ins[0].shape[axis])


def _gather(call: Call, outs: list[Array], ins: list[Array]) -> None:
    x, indices = ins
    if not call.out.size:
        return
    columns = [
        wrapped(row, x.shape[a]) for row, a in zip(indices, call.axes, strict=True)
    ]
    out = joined(outs[0], call.at, indices.shape[1:])
    gather_into(out, x, columns, call.axes, call.at)


def _scatter_infer(
    ct: Aval, indices: Aval, shape: tuple[int, ...], axes: tuple[int, ...], at: int
) -> tuple[Any, Any]:
    integers("scatter_add", indices)
    return shape, ct.dtype


def _scatter_check(call: Call, ins: list[Array]) -> None:
    for row, axis in zip(ins[1], call.axes, strict=True):
        check_range("scatter_add", row, axis, call.shape[axis])


def _scatter(call: Call, out: Array, ins: Sequence[Array]) -> None:
    ct, indices = ins
    at, batch = call.at, indices.shape[1:]
    columns = [
        wrapped(row, call.shape[a]) for row, a in zip(indices, call.axes, strict=True)
    ]
    merged = (*ct.shape[:at], math.prod(batch), *ct.shape[at + len(batch) :])
    scatter_onto(out, ct.reshape(merged), columns, call.axes, at)


register(
    Op(
        "gather",
        ("x", "indices"),
        params=("axes", "at"),
        short=lambda call, arg: (
            "scatter_add",
            ("ct", "indices"),
            (call.ins[0].shape, call.axes, call.at),
        ),
        infer=_gather_infer,
        kernel=Write(_gather, _gather_scratch, _gather_check, form=forms.gather),
        vjp={
            "x": lambda F, ct, call, *, indices: F.scatter_add(
                ct, indices, call.ins[0].shape, call.axes, call.at
            )
        },
        jvp={
            "x": lambda F, t, call, *, indices: F.gather(t, indices, call.axes, call.at)
        },
        batch=_gather_many,
    )
)
register(
    Op(
        "scatter_add",
        ("x", "indices"),
        params=("shape", "axes", "at"),
        infer=_scatter_infer,
        kernel=Write(
            from_zero(_scatter),
            _scatter_scratch,
            _scatter_check,
            _scatter,
            form=forms.scatter_add,
        ),
        vjp={
            "x": lambda F, ct, call, *, indices: F.gather(
                ct, indices, call.axes, call.at
            )
        },
        jvp={
            "x": lambda F, t, call, *, indices: F.scatter_add(
                t, indices, call.shape, call.axes, call.at
            )
        },
        batch=_scatter_many,
    )
)
