"""Samples of the rows that accumulate along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .samples import Drawer, Sample, row
from .samples_arrays import moves
from .samples_elementwise import ANY, C8, C16, F4, F8, I4, I8, POSITIVE, B

_CASES: list[Any] = [
    ((3, 4), (1, False)),
    ((3, 4), (0, True)),
    ((2, 3, 9), (1, False)),
    ((2, 3, 2), (1, True)),
    ((1,), (0, False)),
    ((0, 2), (0, False)),
    ((2, 0), (0, True)),
]


def directed(fn: Callable[..., Any]) -> Callable[..., Any]:
    def reference(*args: Any) -> Any:
        *xs, axis, reverse = args
        if not reverse:
            return fn(*xs, axis)
        return np.flip(fn(*[np.flip(x, axis) for x in xs], axis), axis)

    return reference


def _logs(x: Any, axis: int) -> Any:
    wide = x if x.dtype.kind == "f" else x.astype(F8)
    return np.log(np.cumsum(np.exp(wide.astype(F8)), axis)).astype(wide.dtype)


moves("cumulative_sum", directed(np.cumsum), _CASES, kinds=(F8, F4, C16, C8, I8, I4, B))
moves(
    "cumulative_prod",
    directed(np.cumprod),
    _CASES,
    kinds=(F8, F4, C16, C8, I8, I4, B),
    draw=POSITIVE,
    keeps="x out",
)
moves(
    "cumulative_logsumexp",
    directed(_logs),
    _CASES,
    kinds=(F8, F4, I8),
    keeps="x out",
)


def _recurrence(a: Any, b: Any, axis: int) -> Any:
    dtype = np.result_type(a, b)
    out = np.zeros(a.shape, dtype if dtype.kind in "fc" else F8)
    a, b, y = (np.moveaxis(v, axis, 0) for v in (a, b, out))
    for k in range(len(y)):
        y[k] = b[k] if k == 0 else a[k] * y[k - 1] + b[k]
    return out


_a, _b = Drawer("recurrence a", ANY), Drawer("recurrence b", ANY)
row(
    "linear_recurrence",
    directed(_recurrence),
    [
        Sample(f"{shape} {how} {np.dtype(s).name} {np.dtype(t).name}", operands, how)
        for shape, how in _CASES
        for s, t in [(F8, F8), (F4, F4), (C16, C16), (C8, C8), (F8, C16), (C16, F8)]
        for operands in [(_a(shape, s), _b(shape, t))]
    ]
    + [
        Sample("views", (_a.flipped((3, 4)), _b.transposed((3, 4))), (0, False)),
        Sample("whole numbers", (_a((3, 4), I8), _b((3, 4), I8)), (0, False)),
        Sample("promoted", (_a((3, 4), F4), _b((3, 4))), (1, True)),
        Sample("long", (_a((9001,)) / 2, _b((9001,))), (0, False), True),
        Sample("long, reverse", (_a((9001, 2)) / 2, _b((9001, 2))), (0, True), True),
    ],
    keeps={"a": "a out", "b": "a"},
)
