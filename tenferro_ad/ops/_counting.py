"""Reduction rows without a derivative: all, any, counts and places of extrema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .._aval import Aval
from ._axes import (
    Array,
    block_scratch,
    block_sum,
    need_elements,
    need_real,
    reduced_shape,
)
from ._batching import later, leading
from ._op import Call, Evaluator, Op, Write, register


def _logical(name: str, ufunc: Any) -> None:
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
            kernel=Write(kernel),
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
        kernel=Write(_count_nonzero, block_scratch),
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


def _position(name: str) -> None:
    find = getattr(np, name)

    def infer(x: Aval, axis: int | None, keepdims: bool) -> tuple[Any, Any]:
        axes = tuple(range(x.ndim)) if axis is None else (axis,)
        need_real(name, x)
        need_elements(name, x, axes)
        return reduced_shape(x.shape, axes, keepdims), _INDEX

    def kernel(call: Call, outs: list[Array], ins: list[Array]) -> None:
        find(ins[0], call.axis, outs[0], keepdims=call.keepdims)

    register(
        Op(
            name,
            ("x",),
            params=("axis", "keepdims"),
            infer=infer,
            kernel=Write(kernel),
            batch=_position_batch,
        )
    )


_position("argmax")
_position("argmin")
