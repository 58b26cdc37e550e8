"""Rows that rearrange their argument: rolled, tiled, masked to a triangle, or along a
diagonal. Each is linear and transposed by a row of this module or a sum."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from .._aval import Aval
from . import _forms_arrays as forms
from ._batching import before, later, leading, longer
from ._op import Call, Evaluator, Op, View, Write, project, register

Array = np.ndarray[Any, Any]


# ---- roll ----------------------------------------------------------------------------


def _roll(call: Call, outs: list[Array], ins: list[Array]) -> None:
    # Each rolled axis is two blocks; each combination of blocks is one assignment.
    blocks: list[Any] = []
    for n, shift in zip(ins[0].shape, call.shifts, strict=True):
        if shift:
            head, tail = slice(0, n - shift), slice(n - shift, n)
            blocks.append(((head, slice(shift, n)), (tail, slice(0, shift))))
        else:
            blocks.append(((slice(None), slice(None)),))
    for pairs in itertools.product(*blocks):
        source = tuple(p[0] for p in pairs)
        target = tuple(p[1] for p in pairs)
        outs[0][(*target, ...)] = ins[0][(*source, ...)]


def _roll_back(F: Evaluator, ct: Any, call: Call) -> Any:
    sizes = call.ins[0].shape
    return F.roll(
        ct,
        tuple((n - s) % n if n else 0 for n, s in zip(sizes, call.shifts, strict=True)),
    )


register(
    Op(
        "roll",
        ("x",),
        params=("shifts",),  # one for each axis, 0 <= shift < length
        infer=lambda x, shifts: (x.shape, x.dtype),
        kernel=Write(_roll, form=forms.roll),
        vjp={"x": _roll_back},
        jvp={"x": lambda F, t, call: F.roll(t, call.shifts)},
        batch=leading(shifts=before(0)),
    )
)


# ---- tile and repeat -----------------------------------------------------------------


def _pairs(call: Call, *, inner: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes with two axes for each axis of the argument: the argument's (with ones in
    place of the repetitions) and the result's."""
    shape, reps = call.ins[0].shape, call.reps
    small, large = [], []
    for n, r in zip(shape, reps, strict=True):
        small += [n, 1] if inner else [1, n]
        large += [n, r] if inner else [r, n]
    return tuple(small), tuple(large)


def _tiled_infer(x: Aval, reps: tuple[int, ...]) -> tuple[Any, Any]:
    return tuple(n * r for n, r in zip(x.shape, reps, strict=True)), x.dtype


def _repeating(name: str, *, inner: bool) -> Op:
    def kernel(call: Call, outs: list[Array], ins: list[Array]) -> None:
        small, large = _pairs(call, inner=inner)
        at = tuple(
            slice(None) if (k % 2 == 0) == inner else None for k in range(len(small))
        )
        outs[0].reshape(large)[...] = ins[0][(*at, ...)]

    def back(F: Evaluator, ct: Any, call: Call) -> Any:
        _, large = _pairs(call, inner=inner)
        axes = tuple(range(1 if inner else 0, len(large), 2))
        return project(F, F.sum(F.regroup(ct, large), axes, False), call.ins[0])

    made = Op(
        name,
        ("x",),
        params=("reps",),  # one for each axis
        infer=_tiled_infer,
        kernel=Write(kernel, form=forms.repeating(inner=inner)),
        vjp={"x": back},
        jvp={"x": lambda F, t, call: F[made](t, call.reps)},
        batch=leading(reps=before(1)),
    )
    return made


register(_repeating("tile", inner=False))
register(_repeating("repeat", inner=True))


# ---- triangles -----------------------------------------------------------------------


def _triangle(call: Call, outs: list[Array], ins: list[Array], *, upper: bool) -> None:
    rows, cols = call.out.shape[-2:]
    keep = np.tri(rows, cols, call.k - 1 if upper else call.k, dtype=np.bool_)
    if upper:
        np.logical_not(keep, keep)
    outs[0].fill(0)
    np.copyto(outs[0], ins[0], where=keep)


def _triangle_scratch(call: Call) -> int:
    """The mask, and the numbers of its rows and columns."""
    rows, cols = call.out.shape[-2:]
    return rows * cols + 16 * (rows + cols)


register(
    Op(
        "tril",
        ("x",),
        params=("k",),
        infer=lambda x, k: (x.shape, x.dtype),
        kernel=Write(
            lambda call, outs, ins: _triangle(call, outs, ins, upper=False),
            _triangle_scratch,
            form=forms.triangle(upper=False),
        ),
        vjp={"x": lambda F, ct, call: F.tril(ct, call.k)},
        jvp={"x": lambda F, t, call: F.tril(t, call.k)},
        batch=leading(),
    )
)
register(
    Op(
        "triu",
        ("x",),
        params=("k",),
        infer=lambda x, k: (x.shape, x.dtype),
        kernel=Write(
            lambda call, outs, ins: _triangle(call, outs, ins, upper=True),
            _triangle_scratch,
            form=forms.triangle(upper=True),
        ),
        vjp={"x": lambda F, ct, call: F.triu(ct, call.k)},
        jvp={"x": lambda F, t, call: F.triu(t, call.k)},
        batch=leading(),
    )
)


# ---- diagonals -----------------------------------------------------------------------


def _diagonal_view(array: Array, offset: int, axis1: int, axis2: int) -> Array:
    found = array.diagonal(offset, axis1, axis2)
    found.flags.writeable = array.flags.writeable  # NumPy hands it out read-only
    return found


def _diagonal_infer(x: Aval, offset: int, axis1: int, axis2: int) -> tuple[Any, Any]:
    rows, cols = x.shape[axis1], x.shape[axis2]
    size = max(0, min(rows, cols - offset) if offset >= 0 else min(rows + offset, cols))
    rest = tuple(n for k, n in enumerate(x.shape) if k not in (axis1, axis2))
    return (*rest, size), x.dtype


def _place_diagonal(call: Call, outs: list[Array], ins: list[Array]) -> None:
    outs[0].fill(0)
    _diagonal_view(outs[0], call.offset, call.axis1, call.axis2)[...] = ins[0]


register(
    Op(
        "diagonal",
        ("x",),
        params=("offset", "axis1", "axis2"),
        infer=_diagonal_infer,
        kernel=View(
            lambda array, call: _diagonal_view(
                array, call.offset, call.axis1, call.axis2
            )
        ),
        vjp={
            "x": lambda F, ct, call: F.place_diagonal(
                ct, call.ins[0].shape, call.offset, call.axis1, call.axis2
            )
        },
        jvp={
            "x": lambda F, t, call: F.diagonal(t, call.offset, call.axis1, call.axis2)
        },
        batch=leading(axis1=later, axis2=later),
    )
)
register(
    Op(
        "place_diagonal",
        ("x",),
        params=("shape", "offset", "axis1", "axis2"),
        infer=lambda x, shape, offset, axis1, axis2: (shape, x.dtype),
        kernel=Write(_place_diagonal, form=forms.place_diagonal),
        vjp={
            "x": lambda F, ct, call: F.diagonal(ct, call.offset, call.axis1, call.axis2)
        },
        jvp={
            "x": lambda F, t, call: F.place_diagonal(
                t, call.shape, call.offset, call.axis1, call.axis2
            )
        },
        batch=leading(shape=longer, axis1=later, axis2=later),
    )
)
