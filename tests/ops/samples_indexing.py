"""Samples of the rows that index with integer arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .samples import Drawer, Sample, outside, row, spread
from .samples_arrays import ANY, C8, C16, F4, F8, I4, I8, B


# ---- indexing ------------------------------------------------------------------------
def _placements(ct: Any, shape: Any, places: Any) -> Any:
    """Zeros with `ct` added at flat places, one after the other."""
    out = np.zeros(shape, ct.dtype)
    flat = out.reshape(-1)
    for place, value in zip(places.reshape(-1), ct.reshape(-1), strict=True):
        flat[place] += value
    return out


def _take_add(ct: Any, indices: Any, axis: int, size: int) -> Any:
    shape = (*ct.shape[:axis], size, *ct.shape[axis + indices.ndim :])
    places = np.arange(int(np.prod(shape))).reshape(shape)
    return _placements(ct, shape, np.take(places, indices, axis))


def _gather(x: Any, indices: Any, axes: Any, at: int) -> Any:
    rest = [k for k in range(x.ndim) if k not in axes]
    found = x.transpose((*axes, *rest))[tuple(indices)]
    batch = indices.ndim - 1
    return np.moveaxis(found, range(batch), range(at, at + batch))


def _scatter_add(ct: Any, indices: Any, shape: Any, axes: Any, at: int) -> Any:
    places = np.arange(int(np.prod(shape))).reshape(shape)
    return _placements(ct, shape, _gather(places, indices, axes, at))


def _add_along(ct: Any, indices: Any, axis: int, size: int) -> Any:
    shape = (*ct.shape[:axis], size, *ct.shape[axis + 1 :])
    places = np.arange(int(np.prod(shape))).reshape(shape)
    return _placements(ct, shape, np.take_along_axis(places, indices, axis))


_REPEATED = np.array([2, 0, 2, 1])
_TABLE = np.array([[0, -1], [1, 1], [-3, 2]])


def indexed(
    name: str,
    reference: Callable[..., Any],
    cases: list[tuple[tuple[int, ...], Any, tuple[Any, ...]]],
) -> None:
    draws = Drawer(name, ANY)
    found = []
    for shape, indices, params in cases:
        label = f"{shape} at {indices.shape} {params}"
        found.append(Sample(label, (draws(shape), indices), params))
        if 0 not in shape and shape:
            found.append(
                Sample(f"{label} view", (draws.flipped(shape), indices), params)
            )
            found.append(
                Sample(f"{label} turned", (draws.transposed(shape), indices), params)
            )
    shape, indices, params = cases[0]
    for kind in (F4, C16, C8, I8):
        found.append(Sample(np.dtype(kind).name, (draws(shape, kind), indices), params))
    narrow = (draws(shape), indices.astype(I4))
    found.append(Sample("int32 indices", narrow, params))
    row(name, reference, found, keeps={"x": "indices"})


indexed(
    "take",
    np.take,
    [
        ((3, 4), _REPEATED, (0,)),
        ((4, 3), _TABLE, (1,)),
        ((3, 2), np.array(1), (0,)),
        ((3, 2), np.zeros((0, 2), I8), (0,)),
    ],
)
indexed(
    "take_add",
    _take_add,
    [
        ((4, 3), _REPEATED, (0, 3)),
        ((2, 3, 2), _TABLE, (1, 3)),
        ((2,), np.array(1), (0, 3)),
        ((0, 2), np.zeros((0,), I8), (0, 3)),
        ((40, 16), np.arange(40) % 7, (0, 9)),
    ],
)
_PAIRS = np.array([[0, 2, -1, 0], [1, -2, 3, 1]])
indexed(
    "gather",
    _gather,
    [
        ((3, 4), _PAIRS, ((0, 1), 0)),
        ((3, 2, 4), _PAIRS, ((0, 2), 1)),
        ((2, 3, 4), _PAIRS.reshape(2, 2, 2), ((1, 2), 1)),
        ((3, 4), np.zeros((2, 0), I8), ((0, 1), 0)),
    ],
)
indexed(
    "scatter_add",
    _scatter_add,
    [
        ((4,), _PAIRS, ((3, 4), (0, 1), 0)),
        ((2, 4), _PAIRS, ((3, 2, 4), (0, 2), 1)),
        ((2, 2, 2), _PAIRS.reshape(2, 2, 2), ((2, 3, 4), (1, 2), 1)),
        ((0,), np.zeros((2, 0), I8), ((3, 4), (0, 1), 0)),
    ],
)
_ALONG = np.array([[2, 0, -1, 0], [1, 1, 0, 0]])
indexed(
    "take_along_axis",
    np.take_along_axis,
    [((3, 4), _ALONG, (0,)), ((2, 3), _ALONG, (1,)), ((2, 0), _ALONG[:, :0], (1,))],
)
indexed(
    "add_along_axis",
    _add_along,
    [
        ((2, 4), _ALONG, (0, 3)),
        ((2, 4), _ALONG, (1, 3)),
        ((2, 0), _ALONG[:, :0], (1, 2)),
    ],
)
row(
    "mask_indices",
    lambda mask, count: np.stack(np.nonzero(mask)),
    [
        Sample("matrix", (np.array([[True, False], [True, True]]),), (3,)),
        Sample("none", (np.zeros(3, B),), (0,)),
    ],
)


# ---- what meets at a place -----------------------------------------------------------
def _everywhere(indices: Any, axis: int) -> tuple[Any, ...]:
    """The key that puts each element where its index says along `axis`."""
    key = list(np.indices(indices.shape))
    key[axis] = indices
    return tuple(key)


def _extreme(x: Any, values: Any, indices: Any, axis: int, largest: bool) -> Any:
    out = x.copy()
    for place in np.ndindex(indices.shape):
        key = tuple(k[place] for k in _everywhere(indices, axis))
        pick = max if largest else min
        out[key] = pick(out[key], values[place])
    return out


def _multiply(x: Any, indices: Any, axis: int, size: int) -> Any:
    out = np.ones((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)
    for place in np.ndindex(indices.shape):
        out[tuple(k[place] for k in _everywhere(indices, axis))] *= x[place]
    return out


_extremes = Drawer("extreme_along_axis", spread)
_MET = np.array([[2, 0, -1, 0], [1, 1, 1, 0]])


def _extreme_sample(
    label: str, shape: Any, indices: Any, axis: int, largest: bool, kind: Any = F8
) -> Sample:
    count = int(np.prod(shape))
    drawn = _extremes((count + indices.size,), kind)
    x, values = drawn[:count].reshape(shape), drawn[count:].reshape(indices.shape)
    return Sample(label, (x.copy(), values.copy(), indices), (axis, largest))


_base = _extreme_sample("", (3, 4), _MET, 0, True)
row(
    "extreme_along_axis",
    _extreme,
    [
        _extreme_sample("first axis", (3, 4), _MET, 0, True),
        _extreme_sample("first axis, least", (3, 4), _MET, 0, False),
        _extreme_sample("last axis", (2, 3), _MET, 1, True),
        _extreme_sample("one axis", (5,), np.array([4, 4, 0, -5, 2, 4]), 0, False),
        _extreme_sample(
            "three axes", (2, 3, 2), np.array([[[0, 2]], [[-1, 1]]]), 1, True
        ),
        _extreme_sample("nothing put", (2, 3), _MET[:, :0], 1, True),
        _extreme_sample("float32", (3, 4), _MET, 0, True, F4),
        _extreme_sample("int64", (3, 4), _MET, 0, False, I8),
        Sample(
            "views",
            (
                np.repeat(_base.operands[0], 3, 1)[:, ::3],
                np.repeat(_base.operands[1], 2, 0)[::2],
                _MET.astype(I4),
            ),
            (0, True),
        ),
    ],
    keeps={"x": "x values indices out", "values": "x values indices out"},
    special=(
        Sample(
            "ties",
            (np.array([1.0, 2.0, 0.5]), np.array([1.0, 2.0, 2.0]), np.array([0, 1, 1])),
            (0, True),
        ),
    ),
)
_factors = Drawer("multiply_along_axis", outside(0.5))
_zeros = _factors((3, 5))
_zeros[0, 1] = _zeros[2, 3] = _zeros[2, 4] = 0
row(
    "multiply_along_axis",
    _multiply,
    [
        Sample("first axis", (_factors((2, 4)), _MET), (0, 3)),
        Sample("last axis", (_factors((2, 4)), _MET), (1, 3)),
        Sample(
            "zeros among the factors",
            (_zeros, np.array([[0, 0, 1, 0, 2], [1, 1, 1, 1, 1], [0, 1, 1, 0, 0]])),
            (1, 4),
        ),
        Sample("one axis", (_factors((6,)), np.array([4, 4, 0, -5, 2, 4])), (0, 5)),
        Sample("one element", (_factors((1,)), np.array([2])), (0, 3)),
        Sample("no factors", (_factors((2, 0)), _MET[:, :0]), (1, 2)),
        Sample("float32", (_factors((2, 4), F4), _MET), (1, 3)),
        Sample("complex128", (_factors((2, 4), C16), _MET), (1, 3)),
        Sample("complex64", (_factors((2, 4), C8), _MET), (1, 3)),
        Sample("int64", (_factors((2, 4), I8), _MET), (1, 3)),
        Sample("views", (_factors.flipped((2, 4)), _MET.astype(I4)), (0, 3)),
        Sample("turned", (_factors.transposed((2, 4)), _MET), (0, 3)),
    ],
    keeps={"x": "x indices"},
)
