"""Basic indexing as a view, and its transpose: `slice` and `place`.

A key is a tuple with one entry for each step along the axes of the argument:

- an int `i >= 0`: take that index and drop the axis;
- `(start, count, step)`: `count` indices from `start` on, `step` may be negative;
- `None`: a new axis of length 1 (uses up no axis).

Keys are canonical (`span`): equal selections have equal keys. `slice` never allocates
or copies. Keys that only flip, drop and insert axes are inverted by another key, so
that the derivatives of `flip`, `squeeze` and `expand_dims` are views too; every other
slice is transposed by `place`, which writes its argument into a constant background.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from .._aval import Aval
from . import _forms_arrays as forms
from ._batching import leading, longer, selecting
from ._constants import number
from ._op import Call, Evaluator, Op, View, Write, register

Array = np.ndarray[Any, Any]
Span = tuple[int, int, int]
Key = tuple[int | Span | None, ...]


def span(start: int, count: int, step: int) -> Span:
    """The canonical form of a range of indices."""
    if count == 0:
        return (0, 0, 1)
    return (start, count, 1 if count == 1 else step)


def key_shape(key: Key) -> tuple[int, ...]:
    """Shape of what `key` selects."""
    return tuple(
        1 if e is None else e[1] for e in key if e is None or isinstance(e, tuple)
    )


@lru_cache(maxsize=4096)
def native(key: Key) -> tuple[Any, ...]:
    """The key as NumPy takes it; the ellipsis makes sure of a view, also 0-d."""
    out: list[Any] = []
    for entry in key:
        if isinstance(entry, tuple):
            start, count, step = entry
            stop = start + count * step
            out.append(slice(start, stop if stop >= 0 else None, step))
        else:
            out.append(entry)
    return (*out, ...)


def inverse(key: Key, shape: tuple[int, ...]) -> Key | None:
    """The key that undoes `key` on a value of `shape`, or None if elements are lost."""
    out: list[int | Span | None] = []
    axes = iter(shape)
    for entry in key:
        if entry is None:
            out.append(0)
            continue
        n = next(axes)
        if isinstance(entry, tuple):
            if entry not in (span(0, n, 1), span(n - 1, n, -1)):
                return None
            out.append(entry)
        elif n == 1:
            out.append(None)
        else:
            return None
    return tuple(out)


def _slice_back(F: Evaluator, ct: Any, call: Call) -> Any:
    shape = call.ins[0].shape
    undo = inverse(call.key, shape)
    return F.place(ct, shape, call.key, 0) if undo is None else F.slice(ct, undo)


def _slice_short(call: Call, arg: str) -> Any:
    shape = call.ins[0].shape
    if inverse(call.key, shape) is not None:
        return None
    return "place", ("ct",), (shape, call.key, 0)


register(
    Op(
        "slice",
        ("x",),
        short=_slice_short,
        params=("key",),
        infer=lambda x, key: (key_shape(key), x.dtype),
        kernel=View(lambda array, call: array[native(call.key)]),
        vjp={"x": _slice_back},
        jvp={"x": lambda F, t, call: F.slice(t, call.key)},
        batch=leading(key=selecting),
    )
)


def _place_infer(
    x: Aval, shape: tuple[int, ...], key: Key, value: Any
) -> tuple[tuple[int, ...], Any]:
    return shape, x.dtype


def _place(call: Call, outs: list[Array], ins: list[Array]) -> None:
    out = outs[0]
    if call.ins[0].size < out.size:
        out.fill(number(call.value, out.dtype))
    out[native(call.key)] = ins[0]


def _place_onto(call: Call, target: Array, ins: tuple[Array, ...]) -> None:
    """Rules place onto zeros only: the background adds nothing."""
    part = target[native(call.key)]
    np.add(part, ins[0], part)


register(
    Op(
        "place",
        ("x",),
        params=("shape", "key", "value"),
        infer=_place_infer,
        kernel=Write(_place, add=_place_onto, form=forms.place),
        vjp={"x": lambda F, ct, call: F.slice(ct, call.key)},
        jvp={"x": lambda F, t, call: F.place(t, call.shape, call.key, 0)},
        batch=leading(shape=longer, key=selecting),
    )
)
