"""Device forms of accumulations along an axis: one invocation walks each line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ._expr import Expr, call, select
from ._form import Array, Form, Index, Kernel, cast


def _walk(k: Kernel, c: Any, dtype: Any, start: Any, step: Callable[..., Any]) -> None:
    """`step(old, k-th index, is first)` along the axis, stored at each place."""
    (out,) = k.outs
    lines = k.lines(out.shape, (c.axis,))
    n, (loop,) = lines.nest, lines.along
    place: Expr = loop.var
    if c.reverse:
        place = n.size(loop.size - 1) - place
    at: list[Index] = list(lines.at)
    at[c.axis] = place
    first = call("equal", loop.var, 0)
    n.scan(
        loop,
        [(dtype, start)],
        lambda old: (step(old, at, first),),
        lambda new: [(out, at, cast(new, out.dtype))],
    )


def _accumulator(dtype: Any) -> Any:
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def accumulation(fn: str, start: Any) -> Form:
    def form(k: Kernel, c: Any) -> None:
        (x,), dtype = k.ins, _accumulator(k.outs[0].dtype)

        def step(old: Expr, at: list[Index], first: Expr) -> Expr:
            return call(fn, old, cast(x.at(*at), dtype))

        _walk(k, c, dtype, start, step)

    return form


def linear_recurrence(k: Kernel, c: Any) -> None:
    """The first element is that of `b` alone: nothing precedes it."""
    a, b = k.ins
    dtype = _accumulator(k.outs[0].dtype)

    def element(x: Array, at: list[Index]) -> Expr:
        return cast(x.at(*at), dtype)

    def step(old: Expr, at: list[Index], first: Expr) -> Expr:
        summand = element(b, at)
        return select(first, summand, element(a, at) * old + summand)

    _walk(k, c, dtype, 0, step)


cumulative_sum = accumulation("add", 0)
cumulative_prod = accumulation("mul", 1)
cumulative_logsumexp = accumulation("logaddexp", -math.inf)
