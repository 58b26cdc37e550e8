"""Public functions over the operation table."""

from __future__ import annotations

from typing import Any

from ._dispatch import HANDLES
from ._eager import EagerTensor


def tanh(x: Any) -> EagerTensor:
    return HANDLES.tanh(x)


def exp(x):
    return HANDLES.exp(x)


def sqrt(x):
    return HANDLES.sqrt(x)


def where(c, x, y):
    return HANDLES.select(c, x, y)


def sum(x, axis=None, keepdims=False):
    return HANDLES.sum(x, tuple(range(x.ndim)) if axis is None else axis, keepdims)
