"""How convolutions compute many examples as one convolution.

Examples become images where the weights are shared, channels within each group where
the images are shared, and groups where each example has its own of both. So the number
of operations does not depend on the number of examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ._batching import moved
from ._call import Call
from ._evaluator import Evaluator

Ints = tuple[int, ...]


# ---- axes ----------------------------------------------------------------------------


def _joined(F: Evaluator, v: Any, at: int, count: int = 2) -> Any:
    """`count` adjacent axes as one."""
    shape = v.aval.shape
    n = math.prod(shape[at : at + count])
    return F.regroup(v, (*shape[:at], n, *shape[at + count :]))


def _parted(F: Evaluator, v: Any, at: int, *counts: int) -> Any:
    """One axis as several: of lengths `counts`, and the rest."""
    shape = v.aval.shape
    rest = shape[at] // math.prod(counts)
    return F.regroup(v, (*shape[:at], *counts, rest, *shape[at + 1 :]))


def _in_front(F: Evaluator, v: Any, at: int) -> Any:
    """Examples (axis 0) in front of axis `at` of the others, as one axis."""
    return _joined(F, moved(F, v, 0, at), at)


def _back(F: Evaluator, v: Any, at: int, size: int) -> Any:
    return moved(F, _parted(F, v, at, size), at, 0)


def _in_groups(F: Evaluator, v: Any, at: int, groups: int) -> Any:
    """Examples (axis 0) within each group of the channels, axis `at` of the others."""
    v = moved(F, _parted(F, v, at + 1, groups), 0, at + 1)
    return _joined(F, v, at, 3)


def _out_of_groups(F: Evaluator, v: Any, at: int, groups: int, size: int) -> Any:
    v = moved(F, _parted(F, v, at, groups, size), at + 1, 0)
    return _joined(F, v, at + 1)


# ---- rules ---------------------------------------------------------------------------


def _how(call: Call, groups: int) -> tuple[Any, ...]:
    return call.stride, call.padding, call.dilation, groups


def conv_batch(
    F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> Any:
    (x, w), g = xs, call.groups
    if not batched[1]:
        found = F.conv(_joined(F, x, 0), w, *_how(call, g))
        return _parted(F, found, 0, size)
    if not batched[0]:
        found = F.conv(x, _in_groups(F, w, 0, g), *_how(call, g))
        return _out_of_groups(F, found, 1, g, size)
    how = _how(call, g * size)
    found = F.conv(_in_front(F, x, 1), _joined(F, w, 0), *how)
    return _back(F, found, 1, size)


def conv_input_batch(
    F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> Any:
    (y, w), g = xs, call.groups
    n, channels, *spatial = call.shape
    if not batched[1]:
        shape: Ints = (size * n, channels, *spatial)
        found = F.conv_input(_joined(F, y, 0), w, shape, *_how(call, g))
        return _parted(F, found, 0, size)
    shape = (n, size * channels, *spatial)
    if not batched[0]:
        found = F.conv_input(y, _in_front(F, w, 1), shape, *_how(call, g))
        return _out_of_groups(F, found, 1, g, size)
    how = _how(call, g * size)
    found = F.conv_input(_in_front(F, y, 1), _joined(F, w, 0), shape, *how)
    return _back(F, found, 1, size)


def conv_weight_batch(
    F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> Any:
    (x, y), g = xs, call.groups
    outer, inner, *taps = call.shape
    if not batched[1]:
        shape: Ints = (outer, size * inner, *taps)
        found = F.conv_weight(_in_groups(F, x, 1, g), y, shape, *_how(call, g))
        return _back(F, found, 1, size)
    shape = (size * outer, inner, *taps)
    if not batched[0]:
        found = F.conv_weight(x, _in_groups(F, y, 1, g), shape, *_how(call, g))
        return _out_of_groups(F, found, 0, g, size)
    how = _how(call, g * size)
    found = F.conv_weight(_in_front(F, x, 1), _in_front(F, y, 1), shape, *how)
    return _parted(F, found, 0, size)
