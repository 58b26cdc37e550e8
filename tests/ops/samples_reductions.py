"""Samples of the reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from .samples import Sample, row, spread
from .samples_arrays import C8, C16, F4, F8, I4, I8, B, moves


# ---- reductions ----------------------------------------------------------------------
def _axes(fn: Callable[..., Any], **fixed: Any) -> Callable[..., Any]:
    return lambda x, axes, keepdims: fn(x, axis=axes, keepdims=keepdims, **fixed)


_CASES: list[tuple[tuple[int, ...], tuple[Any, ...]]] = [
    ((3, 4), ((1,), False)),
    ((3, 4), ((0,), True)),
    ((3, 4), ((0, 1), False)),
    ((2, 3, 4), ((0, 2), False)),
    ((2, 3), ((), False)),
    ((), ((), False)),
]
_EMPTY: list[Any] = [((0, 3), ((0,), False)), ((0, 3), ((1,), False))]
_LONG: list[Any] = [((40, 1000), ((0,), False))]

moves("sum", _axes(np.sum), _CASES + _EMPTY, kinds=(F8, F4, C16, C8, I8, I4, B))
moves("mean", _axes(np.mean), _CASES, kinds=(F8, F4, C16, C8, I8))
moves(
    "max",
    _axes(np.max),
    _CASES + _EMPTY[1:],
    kinds=(F8, F4, I8),
    draw=spread,
    keeps="x out",
)
moves(
    "min",
    _axes(np.min),
    _CASES + _EMPTY[1:],
    kinds=(F8, F4, I8),
    draw=spread,
    keeps="x out",
)
moves(
    "prod",
    _axes(np.prod),
    [
        *_CASES,
        ((3, 2), ((1,), False)),
        ((3, 1), ((1,), False)),
        ((2, 7), ((1,), True)),
        *_EMPTY,
    ],
    kinds=(F8, F4, C16, C8, I8),
    keeps="x",
)
_SPREADS: list[Any] = [
    ((3, 4), ((1,), 0.0, False)),
    ((3, 4), ((0,), 1.0, True)),
    ((3, 4), ((0, 1), 0.5, False)),
    ((2, 3, 4), ((0, 2), 1.0, False)),
]


def _var(x: Any, axes: Any, correction: float, keepdims: bool) -> Any:
    found = np.var(x, axis=axes, ddof=correction, keepdims=keepdims)
    return np.asarray(found)


moves("var", _var, _SPREADS, kinds=(F8, F4, C16, C8, I8), keeps="x")
moves(
    "std",
    lambda x, *how: np.sqrt(_var(x, *how)),
    _SPREADS,
    kinds=(F8, F4, C16, C8, I8),
    keeps="x out",
)
moves(
    "logsumexp",
    lambda x, axes, keepdims: (
        scipy.special.logsumexp(x, axis=axes, keepdims=keepdims) if axes else x * 1.0
    ),
    _CASES,
    kinds=(F8, F4, I8),
    keeps="x out",
)
for _name in ("softmax", "log_softmax"):
    moves(
        _name,
        getattr(scipy.special, _name),
        [((3, 4), ((1,),)), ((3, 4), ((0, 1),)), ((2, 3, 2), ((1,),))],
        kinds=(F8, F4),
        keeps="out",
    )
for _name in ("any", "all"):
    moves(
        _name,
        _axes(getattr(np, _name)),
        _CASES + _EMPTY,
        kinds=(F8, B, I8, C16),
        draw=lambda rng, shape: rng.choice([0.0, 0.0, 1.0], shape),
        keeps=None,
    )
moves(
    "count_nonzero",
    lambda x, axes, keepdims: np.asarray(np.sum(x != 0, axis=axes, keepdims=keepdims)),
    _CASES + _EMPTY,
    kinds=(F8, B, I8, C16),
    draw=lambda rng, shape: rng.choice([0.0, 0.0, 1.0], shape),
    keeps=None,
)


def _position(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axis, keepdims: np.asarray(fn(x, axis=axis, keepdims=keepdims))


for _name in ("argmax", "argmin"):
    moves(
        _name,
        _position(getattr(np, _name)),
        [((3, 4), (1, False)), ((3, 4), (None, False)), ((3, 4), (0, True))],
        kinds=(F8, F4, I8),
        keeps=None,
    )
_TIED = np.array([[1.0, 3.0, 3.0], [np.nan, 2.0, np.nan]])
row(
    "tie_count",
    lambda x, top, axes: np.sum(
        (x == top) | (np.isnan(x) & np.isnan(top)), axis=axes, keepdims=True
    ).astype(F4 if x.dtype.itemsize <= 4 else F8),
    [
        Sample("rows", (_TIED, _TIED.max(1, keepdims=True)), ((1,),)),
        Sample("columns", (_TIED, _TIED.max(0, keepdims=True)), ((0,),)),
        Sample(
            "float32",
            (_TIED.astype(F4), _TIED.max(1, keepdims=True).astype(F4)),
            ((1,),),
        ),
        Sample("view", (_TIED[::-1], _TIED[::-1].max(1, keepdims=True)), ((1,),)),
    ],
)


def _lanes(x: Any, axes: Any, width: int, fill: Any) -> Any:
    rest = [k for k in range(x.ndim) if k not in axes]
    n = int(np.prod([x.shape[a] for a in axes]))
    found = x.transpose((*rest, *axes)).reshape(-1, n)
    return np.pad(found, [(0, 0), (0, width - n)], constant_values=fill)


def _unlanes(x: Any, shape: Any, axes: Any) -> Any:
    rest = [k for k in range(len(shape)) if k not in axes]
    order = (*rest, *axes)
    n = int(np.prod([shape[a] for a in axes]))
    found = x[:, :n].reshape([shape[k] for k in order])
    return found.transpose(np.argsort(order))


moves(
    "lanes",
    _lanes,
    [((2, 3), ((1,), 4, 1)), ((2, 3, 2), ((0, 2), 4, 0)), ((2, 2), ((0, 1), 5, 1))],
    kinds=(F8, F4, C16, C8),
)
moves(
    "unlanes",
    _unlanes,
    [((2, 4), ((2, 3), (1,))), ((3, 4), ((2, 3, 2), (0, 2)))],
    kinds=(F8, F4, C16, C8),
)
