"""`x.at[key].set(v)` and `.add(v)`: new values with some elements changed.

Eager tensors never change; these give a fresh value. Keys are those of `x[key]`;
repeated indices add up in `add`, and the last one wins in `set`. Differentiable in `x`
and `v`.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from . import _fn_creation as _creation
from . import _fn_elementwise as _elementwise
from . import _fn_indexing as _indexing
from . import _fn_movement as _movement
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor


@final
class At:
    """`x.at`: takes a key."""

    __slots__ = ("_x",)

    def __init__(self, x: EagerTensor) -> None:
        self._x = x

    def __getitem__(self, key: Any) -> AtKey:
        return AtKey(self._x, key)


@final
class AtKey:
    """`x.at[key]`: the elements that `set` and `add` concern."""

    __slots__ = ("_key", "_x")

    def __init__(self, x: EagerTensor, key: Any) -> None:
        self._x, self._key = x, key

    def _placed(self, values: Any, *, last: bool) -> tuple[EagerTensor, EagerTensor]:
        """`values` summed into zeros at their places, and the flat places."""
        x = self._x
        order = _creation.arange(x.size, dtype=np.int64)
        at = _indexing.getitem(_movement.reshape(order, x.shape), self._key)
        v = _movement.broadcast_to(
            _elementwise.astype(as_tensor(values), x.dtype, copy=False), at.shape
        )
        at, v = _movement.reshape(at, (at.size,)), _movement.reshape(v, (v.size,))
        if last:
            keep = _last_of_each(at._record.array)
            if keep is not None:
                at = _indexing.take(at, keep, axis=0)
                v = _indexing.take(v, keep, axis=0)
        placed = HANDLES.take_add(v, at, 0, x.size)
        return _movement.reshape(placed, x.shape), at

    def add(self, values: Any) -> EagerTensor:
        """`x` with `values` added at the key; repeated indices add up.

        Args:
            values: broadcast to the shape of `x[key]`, converted to the dtype of `x`.

        Raises:
            IndexRangeError, ShapeError, DTypeError: as `x[key]` and broadcasting raise.

        Cost: the index values, one placed value and the sum are allocated; no copies.
        """
        return self._x + self._placed(values, last=False)[0]

    def set(self, values: Any) -> EagerTensor:
        """`x` with the elements at the key replaced; for repeated indices by the last.

        Args:
            values: broadcast to the shape of `x[key]`, converted to the dtype of `x`.

        Raises:
            IndexRangeError, ShapeError, DTypeError: as `x[key]` and broadcasting raise.

        Cost: the index values, one placed value, a mask and the result are allocated;
            no copies.
        """
        x = self._x
        placed, at = self._placed(values, last=True)
        ones = _creation.ones(at.shape, dtype=np.int8)
        hit = _movement.reshape(HANDLES.take_add(ones, at, 0, x.size), x.shape)
        return _elementwise.where(hit > 0, placed, x)


def _last_of_each(at: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Positions of the last occurrence of each index; None if none is repeated."""
    _, first = np.unique(at[::-1], return_index=True)
    return None if first.size == at.size else np.sort(at.size - 1 - first)
