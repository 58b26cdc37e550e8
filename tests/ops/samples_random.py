"""Samples of the rows of random numbers, against a second implementation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.stats

from .samples import Sample, row

Array = np.ndarray[Any, Any]
U4, U8 = np.dtype(np.uint32), np.dtype(np.uint64)
F2, F4, F8 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
_MASK = 2**32 - 1


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> list[int]:
    """Philox4x32-10 as the paper writes it."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32) ^ b ^ k, q & _MASK, (p >> 32) ^ d ^ m, p & _MASK
        k, m = (k + 0x9E3779B9) & _MASK, (m + 0xBB67AE85) & _MASK
    return [a, b, c, d]


def _words(key: Array, domain: int = 0) -> Iterator[int]:
    for block in itertools.count():
        counter = (block & _MASK, block >> 32, 0, domain)
        yield from philox(counter, (int(key[0]), int(key[1])))


def _wide(key: Array, domain: int = 0) -> Iterator[int]:
    found = _words(key, domain)
    for low in found:
        yield low | next(found) << 32


def _filled(stream: Iterator[Any], shape: tuple[int, ...], dtype: Any) -> Array:
    n = math.prod(shape)
    return np.array(list(itertools.islice(stream, n)), dtype).reshape(shape)


def _bits(key: Array, shape: Any, dtype: Any, domain: int) -> Array:
    stream = _words(key, domain) if dtype == U4 else _wide(key, domain)
    return _filled(stream, shape, dtype)


def _units(key: Array, dtype: Any) -> Iterator[float]:
    match dtype.itemsize:
        case 2:
            return ((w >> 21) / 2**11 for w in _words(key))
        case 4:
            return ((w >> 8) / 2**24 for w in _words(key))
    return ((w >> 11) / 2**53 for w in _wide(key))


def _uniform(key: Array, shape: Any, dtype: Any) -> Array:
    return _filled(_units(key, dtype), shape, dtype)


def _pairs(units: Iterator[float]) -> Iterator[float]:
    for u in units:
        radius, angle = math.sqrt(-2 * math.log1p(-u)), 2 * math.pi * next(units)
        yield radius * math.cos(angle)
        yield radius * math.sin(angle)


def _normal(key: Array, shape: Any, dtype: Any) -> Array:
    wide = dtype.itemsize == 8
    units = _units(key, dtype) if wide else (w / 2**32 for w in _words(key))
    return _filled(_pairs(units), shape, dtype)


def _integers(key: Array, shape: Any, dtype: Any, low: int, high: int) -> Array:
    stream = (low + w % (high - low) for w in _wide(key))
    return _filled(stream, shape, dtype)


_KEYS = [np.array(k, U4) for k in ([0, 0], [_MASK, _MASK], [20, 3])]
_SHAPES: list[tuple[int, ...]] = [(3, 5), (), (0, 2), (4,), (1, 4099)]


def _at(dtypes: list[Any], *more: Any) -> list[Sample]:
    return [
        Sample(f"{shape} {dtype.name} key {k}", (key,), (shape, dtype, *more))
        for shape in _SHAPES
        for dtype in dtypes
        for k, key in enumerate(_KEYS)
    ]


row("random_bits", _bits, _at([U4, U8], 2))
row("random_uniform", _uniform, _at([F8, F4, F2]))
row("random_normal", _normal, _at([F8, F4]))
row(
    "random_integers",
    _integers,
    [
        *_at([np.dtype(np.int64), np.dtype(np.int32)], -3, 5),
        *[
            Sample(f"{low} to {high}", (_KEYS[2],), ((9,), np.dtype(dtype), low, high))
            for dtype, low, high in [
                (np.int64, -(2**63), 2**63 - 1),
                (np.uint64, 2**63, 2**64 - 1),
                (np.uint8, 0, 256),
                (np.int8, -128, -127),
            ]
        ],
    ],
)


def _blocks(key: Array, counter: Array) -> Array:
    key_words = (int(key[0]), int(key[1]))
    rows = [philox(tuple(map(int, c)), key_words) for c in counter.reshape(-1, 4)]
    return np.array(rows, U4).reshape(counter.shape)


_counters = np.random.default_rng(5).integers(0, 2**32, (6, 8), U4)
row(
    "philox",
    _blocks,
    [
        Sample("one", (_KEYS[0], _counters[0, :4].copy())),
        Sample("several", (_KEYS[1], _counters.reshape(2, 6, 4))),
        Sample("view", (_KEYS[2], _counters[::-2, 1:5])),
        Sample("none", (_KEYS[2], np.zeros((0, 4), U4))),
    ],
)


def _least(below: Any) -> int:
    """The least count whose share of the distribution reaches what is asked for."""
    return next(k for k in itertools.count() if below(k))


def _poisson(u: Array, mean: Array) -> Array:
    found = [
        _least(lambda k, p=p, m=m: scipy.stats.poisson.cdf(k, m) >= p) if m else 0
        for p, m in np.broadcast(u, mean)
    ]
    shape = np.broadcast_shapes(u.shape, mean.shape)
    return np.array(found, np.int64).reshape(shape)


def _binomial(u: Array, n: Array, p: Array) -> Array:
    found = [
        _least(lambda k, a=a, m=m, q=q: scipy.stats.binom.cdf(k, m, q) >= a)
        for a, m, q in np.broadcast(u, n, p)
    ]
    shape = np.broadcast_shapes(u.shape, n.shape, p.shape)
    return np.array(found, np.int64).reshape(shape)


_u = np.random.default_rng(6).uniform(0, 1, (3, 4))
_u[0, 0] = 0.0
row(
    "poisson_quantile",
    _poisson,
    [
        Sample("matrix", (_u, np.array([0.0, 0.3, 4.0, 30.0]))),
        Sample("views", (_u.T[::2], np.array([2, 1, 5]))),
        Sample("single precision", (_u.astype(F4), np.array(3.0, F4))),
        Sample("none", (_u[:0], np.array([1.0, 2.0, 3.0, 4.0]))),
    ],
)
row(
    "binomial_quantile",
    _binomial,
    [
        Sample(
            "matrix", (_u, np.array([0, 1, 7, 20]), np.array([0.0, 0.3, 1.0])[:, None])
        ),
        Sample("one", (_u[1], np.array(9), np.array(0.5))),
        Sample("none", (_u[:0], np.array(3), np.array(0.5))),
    ],
)
