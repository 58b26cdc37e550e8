"""Samples of the rows that order elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from .samples import Drawer, Sample, between, row, spread
from .samples_arrays import moves
from .samples_elementwise import C16, F4, F8, I4, I8, B

_CASES: list[Any] = [
    ((3, 5), (1, False, True)),
    ((3, 4), (0, True, True)),
    ((2, 3, 2), (1, True, False)),
    ((7,), (0, False, False)),
    ((0, 2), (0, True, True)),
    ((2, 0), (1, False, True)),
]


def _order(x: Any, axis: int, descending: bool, stable: bool) -> Any:
    if not descending:
        return np.argsort(x, axis, kind="stable")
    back = np.argsort(np.flip(x, axis), axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(back, axis)


moves(
    "sort",
    lambda x, *how: np.take_along_axis(x, _order(x, *how), how[0]),
    _CASES,
    kinds=(F8, F4, C16, I8, B),
    draw=spread,
    keeps="x",
)
moves("argsort", _order, _CASES, kinds=(F8, F4, C16, I8, B), draw=spread, keeps=None)

_x, _values = Drawer("searchsorted", between(-2, 2)), Drawer("values", between(-3, 3))
row(
    "searchsorted",
    lambda x, values, side: np.asarray(np.searchsorted(x, values, side)),
    [
        Sample(f"{side} {np.dtype(s).name} {np.dtype(t).name}", operands, (side,))
        for side in ("left", "right")
        for s, t in [(F8, F8), (F4, F8), (I8, I8), (I4, F4)]
        for operands in [(np.sort(_x((9,), s)), _values((3, 4), t))]
    ]
    + [
        Sample("0-d", (np.sort(_x((4,))), _values(())), ("left",)),
        Sample("empty", (_x((0,)), _values((3,))), ("left",)),
        Sample("nothing to find", (np.sort(_x((3,))), _values((0, 2))), ("right",)),
        Sample("views", (np.sort(_x((9,)))[::2], _values.flipped((3, 4))), ("left",)),
    ],
)
