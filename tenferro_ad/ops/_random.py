"""Rows of random numbers: functions of a key, without state and without derivative.

A stack of keys gives a stack of results, one for each key.

Element k of a result depends on the key and on k alone. A counter gives four elements
of 32 bits or two of 64 bits. Normal numbers come in pairs by the transformation of Box
and Muller, computed in double precision whatever the dtype of the result.

Source: G. E. P. Box, M. E. Muller, Ann. Math. Statist. 29 (1958).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .._aval import Aval
from ..errors import DTypeError, ShapeError
from . import _forms_random as forms
from ._batching import leading
from ._form import Form
from ._op import Call, Op, Write, register
from ._philox import BLOCK_NBYTES, BLOCKS, philox4x32, words

Array = np.ndarray[Any, Any]
Dtype = np.dtype[Any]

_UINT32: Final = np.dtype(np.uint32)
_DRAWS: Final = 0  # the domain of what is drawn from a key


def _need_key(operation: str, key: Aval) -> None:
    if key.shape[-1:] != (2,) or key.dtype != _UINT32:
        raise ShapeError(
            operation=operation,
            argument="key",
            found=f"shape {key.shape} and dtype {key.dtype}",
            fix="pass a key of `random.key(seed)`: two words of dtype uint32",
        )


# ---- blocks of random words at given counters ----------------------------------------


def _philox_infer(key: Aval, counter: Aval) -> tuple[Any, Any]:
    _need_key("philox", key)
    if counter.dtype != _UINT32:
        raise DTypeError(
            operation="philox",
            argument="counter",
            found=f"dtype {counter.dtype}",
            fix="pass words of dtype uint32",
        )
    lead = key.shape[:-1]
    if counter.shape[-1:] != (4,) or counter.shape[:-1][: len(lead)] != lead:
        raise ShapeError(
            operation="philox",
            argument="counter",
            found=f"shape {counter.shape}",
            fix="pass four words along the last axis, behind the axes of a stack of "
            "keys",
        )
    return counter.shape, _UINT32


def _philox(call: Call, outs: list[Array], ins: list[Array]) -> None:
    keys, counter = ins[0].reshape(-1, 2), ins[1]
    flat, rows = outs[0].reshape(-1, 4), counter.reshape(-1, 4)
    each = len(rows) // max(1, len(keys))
    for at in range(0, len(flat), BLOCKS):
        part = rows[at : at + BLOCKS]
        mine = keys[np.arange(at, at + len(part)) // each]
        flat[at : at + BLOCKS] = philox4x32(part, mine)


def _philox_scratch(call: Call) -> int:
    n = call.out.size // 4
    return call.out.nbytes + BLOCK_NBYTES * min(n, BLOCKS)


register(
    Op(
        "philox",
        ("key", "counter"),
        infer=_philox_infer,
        kernel=Write(_philox, _philox_scratch, form=forms.philox),
        batch=leading(),
    )
)


# ---- elements from blocks ------------------------------------------------------------

# What turns (n, 4) words into (n, 4) or (n, 2) elements.
Convert = Callable[[Array, Call], Array]


def _pairs(w: Array) -> Array:
    """Two integers of 64 bits for each block, the lower word first."""
    low, high = w[:, ::2].astype(np.uint64), w[:, 1::2].astype(np.uint64)
    return low | high << np.uint64(32)


def _unit(w: Array, dtype: Dtype) -> Array:
    """Multiples of the spacing of `dtype` below 1, from 0 on, all equally likely."""
    match dtype.itemsize:
        case 2:
            return (w >> np.uint32(21)) * np.float64(2.0**-11)
        case 4:
            return (w >> np.uint32(8)) * np.float64(2.0**-24)
    return (_pairs(w) >> np.uint64(11)) * np.float64(2.0**-53)


def _bits(w: Array, call: Call) -> Array:
    return w if call.dtype == _UINT32 else _pairs(w)


def _uniform(w: Array, call: Call) -> Array:
    return _unit(w, call.dtype)


def _normal(w: Array, call: Call) -> Array:
    if call.dtype.itemsize == 8:
        u = _unit(w, call.dtype)
    else:
        u = w * np.float64(2.0**-32)
    first, second = u[:, ::2], u[:, 1::2] * (2 * math.pi)
    radius = np.sqrt(-2.0 * np.log1p(-first))  # 1 - u is never 0
    found = np.stack([radius * np.cos(second), radius * np.sin(second)], -1)
    return found.reshape(len(w), -1)


def _integers(w: Array, call: Call) -> Array:
    found = _pairs(w) % np.uint64(call.high - call.low)
    # Wraps around as two's complement does: the sum is in range.
    return (found + np.uint64(call.low % 2**64)).astype(call.dtype)


def _drawing(name: str, params: tuple[str, ...], convert: Convert, form: Form) -> None:
    """A row that fills a value of the parameters' `shape` and `dtype`."""

    def infer(key: Aval, shape: tuple[int, ...], dtype: Dtype, *more: Any) -> Any:
        _need_key(name, key)
        return (*key.shape[:-1], *shape), dtype

    def kernel(call: Call, outs: list[Array], ins: list[Array]) -> None:
        keys = ins[0].reshape(-1, 2)
        size = math.prod(call.shape)
        rows = outs[0].reshape(len(keys), size)
        # As many keys at a time as fit the scratch; a block gives two or four elements.
        step = max(1, 2 * BLOCKS // max(2, size + 1))
        for first in range(0, len(keys), step):
            part = slice(first, first + step)
            fill(call, rows[part], keys[part])

    def fill(call: Call, rows: Array, keys: Array) -> None:
        domain = call.domain if "domain" in params else _DRAWS
        size = rows.shape[1]
        at = block = 0
        while at < size:
            n = min(BLOCKS, -(-(size - at) // 2))
            found = convert(words(keys, block, n, domain), call)
            found = found.reshape(len(keys), -1)[:, : size - at]
            rows[:, at : at + found.shape[1]] = found
            at, block = at + found.shape[1], block + n

    register(
        Op(
            name,
            ("key",),
            params=("shape", "dtype", *params),
            infer=infer,
            kernel=Write(kernel, _drawing_scratch, form=form),
            batch=leading(),
        )
    )


def _drawing_scratch(call: Call) -> int:
    return 2 * BLOCK_NBYTES * min(call.out.size, BLOCKS)


_drawing("random_bits", ("domain",), _bits, forms.drawing(forms.bits))
_drawing("random_uniform", (), _uniform, forms.drawing(forms.uniform))
_drawing("random_normal", (), _normal, forms.drawing(forms.normal))
_drawing("random_integers", ("low", "high"), _integers, forms.drawing(forms.integers))
