"""Reduction rows without a derivative: all, any, counts and places of extrema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .._aval import Aval
from . import _forms_reductions as forms
from ._axes import (
    BLOCK,
    Array,
    block_scratch,
    block_sum,
    blocks,
    need_elements,
    need_real,
    reduced_shape,
)
from ._batching import later, leading
from ._op import Call, Evaluator, Op, Write, register


def _logical(name: str, ufunc: Any) -> None:
    form = forms.reduction(name)

    def kernel(call: Call, outs: list[Array], ins: list[Array]) -> None:
        ufunc.reduce(ins[0], call.axes, None, outs[0], call.keepdims)

    register(
        Op(
            name,
            ("x",),
            params=("axes", "keepdims"),
            infer=lambda x, axes, keepdims: (
                reduced_shape(x.shape, axes, keepdims),
                np.bool_,
            ),
            kernel=Write(kernel, form=form),
            batch=leading(axes=later),
        )
    )


_logical("any", np.logical_or)
_logical("all", np.logical_and)


def _count_nonzero(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (x,), (out,) = ins, outs
    total = block_sum(x, call.axes, lambda part, at: np.not_equal(part, 0))
    np.copyto(out, total.reshape(out.shape), casting="unsafe")


register(
    Op(
        "count_nonzero",
        ("x",),
        params=("axes", "keepdims"),
        infer=lambda x, axes, keepdims: (
            reduced_shape(x.shape, axes, keepdims),
            np.int64,
        ),
        kernel=Write(_count_nonzero, block_scratch, form=forms.count_nonzero),
        batch=leading(axes=later),
    )
)

_INDEX: Final = np.dtype(np.int64)


def _position_batch(
    F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> Any:
    if call.axis is not None:
        return F[call.op](xs[0], call.axis + 1, call.keepdims)
    flat = F.regroup(xs[0], (size, call.ins[0].size))
    return F.regroup(F[call.op](flat, 1, False), (size, *call.out.shape))


def _is_better(v: Any, best: Any, largest: bool) -> bool:
    """Whether `v` beats an earlier `best`; NaN is the extremum wherever it is."""
    if best != best:
        return False
    return bool(v != v or (v > best if largest else v < best))


def _first_of(find: Any, x: Array, *, largest: bool) -> int:
    """The place in row-major order. NumPy copies a strided value: give it blocks."""
    best, place, start = None, 0, 0
    for index in blocks(x.shape):
        part = x[(*index, ...)]
        k = int(find(part))
        v = part[np.unravel_index(k, part.shape)]
        if best is None or _is_better(v, best, largest):
            best, place = v, start + k
        start += part.size
    return place


def _along_axis(find: Any, out: Array, x: Array, *, largest: bool) -> None:
    """The place along the last axis, for each lane."""
    if x.shape[-1] > BLOCK:
        for lane in np.ndindex(out.shape):
            out[lane] = _first_of(find, x[lane], largest=largest)
        return
    for index in blocks(x.shape):
        lead = index[: out.ndim]
        out[(*lead, ...)] = find(x[(*index, ...)], -1)


def _place_scratch(call: Call) -> int:
    x = call.ins[0]
    return min(x.size, BLOCK) * (x.dtype.itemsize + 8)


def _position(name: str) -> None:
    find, largest = getattr(np, name), name == "argmax"

    def infer(x: Aval, axis: int | None, keepdims: bool) -> tuple[Any, Any]:
        axes = tuple(range(x.ndim)) if axis is None else (axis,)
        need_real(name, x)
        need_elements(name, x, axes)
        return reduced_shape(x.shape, axes, keepdims), _INDEX

    def kernel(call: Call, outs: list[Array], ins: list[Array]) -> None:
        (x,), (out,), axis = ins, outs, call.axis
        if x.flags.c_contiguous and axis in (None, x.ndim - 1):
            find(x, axis, out, keepdims=call.keepdims)
        elif axis is None:
            out[...] = _first_of(find, x, largest=largest)
        else:
            lanes = np.moveaxis(x, axis, -1)
            _along_axis(find, out.reshape(lanes.shape[:-1]), lanes, largest=largest)

    register(
        Op(
            name,
            ("x",),
            params=("axis", "keepdims"),
            infer=infer,
            kernel=Write(
                kernel, _place_scratch, form=forms.position(name.removeprefix("arg"))
            ),
            batch=_position_batch,
        )
    )


_position("argmax")
_position("argmin")
