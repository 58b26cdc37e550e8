"""`x.at[key].set(v)`, `.add(v)` and their kin: new values with some elements changed.

Eager tensors never change; these give a fresh value. Keys are those of `x[key]`. At
repeated indices all values count: `add` and `subtract` sum up, `multiply`, `divide` and
`power` multiply them first, `max` and `min` take the extremum, and of several that are
`set` the last one in row-major order of the key stays. Everything is differentiable in
`x` and in the values, to any order, repeated indices included; tied extrema share the
slope equally.

A mask that is traced selects nobody knows how many elements. Values that are the same
for each of them do not depend on that, and are chosen where the mask is true.
"""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np

from ..errors import named
from ..ops import Key, key_shape
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._fn_creation import arange
from ._fn_elementwise import pow, refuse_negative_power, where
from ._fn_indexing import getitem, index_tensor, parsed, whole_key
from ._fn_movement import broadcast_to
from ._fn_scatter import fitting, put_rows, replaced
from ._known_indices import check_known, is_traced


@final
class At:
    """`x.at`: takes a key."""

    __slots__ = ("_x",)

    def __init__(self, x: EagerTensor) -> None:
        self._x = x

    def __getitem__(self, key: Any) -> AtKey:
        """The elements at a key of `x[key]`, to be changed.

        Cost: one object; the key is read when it is used.
        """
        return AtKey(self._x, key)


@final
class AtKey:
    """`x.at[key]`: the elements that its methods concern."""

    __slots__ = ("_key", "_x")

    def __init__(self, x: EagerTensor, key: Any) -> None:
        self._x, self._key = x, key

    def _changed(self, how: str, values: Any) -> EagerTensor:
        """`x` with `values` combined into it."""
        x = self._x
        masked = _traced_mask(x, self._key)
        if masked is not None:
            v = fitting(f"x.at[key].{how}", "values", values, x)
            if (found := _where(how, x, *masked, v)) is not None:
                return found
        entries, key, arrays = parsed(x, self._key)
        v = fitting(f"x.at[key].{how}", "values", values, x)
        if not arrays:
            return _at_basic(how, x, key, broadcast_to(v, key_shape(key)))
        if len(arrays) == 1 and key == whole_key(x.shape):  # rows along one axis
            (axis,), entry = arrays, entries[arrays[0]]
            if isinstance(entry, np.ndarray):
                check_known(f"x.at[key].{how}", entry, x, axis)
            index = index_tensor(entry, x.device)
            lead, rest = x.shape[:axis], x.shape[axis + 1 :]
            v = broadcast_to(v, (*lead, *index.shape, *rest))
            v = HANDLES.regroup(v, (*lead, index.size, *rest))
            return put_rows(how, x, _flat(index), v, axis)
        order = HANDLES.regroup(
            arange(x.size, dtype=np.int64, device=x.device), x.shape
        )
        index = getitem(order, self._key)
        v = _flat(broadcast_to(v, index.shape))
        return HANDLES.regroup(  # type: ignore[no-any-return]
            put_rows(how, _flat(x), _flat(index), v, 0), x.shape
        )

    def get(self) -> EagerTensor:
        """`x[key]`.

        Raises:
            IndexRangeError, ShapeError, DTypeError: as `x[key]`.

        Cost: as `x[key]`: a view for basic keys, else one fresh output.
        """
        return getitem(self._x, self._key)

    @named("x.at[key].set", shape="values", key="key", indices="key")
    def set(self, values: Any) -> EagerTensor:
        """`x` with the elements at the key replaced; at repeated indices by the last.

        Args:
            values: broadcast to the shape of `x[key]`, in the dtype of `x`.

        Raises:
            IndexRangeError, ShapeError: as `x[key]` and broadcasting raise.
            DTypeError: `x` cannot hold the values, or a key of another kind.

        Cost: a mask, the placed values and the result are allocated, and a scalar for
            the truth in the mask and for a number; for index arrays also the order of
            the values, and the indices. No copies.
        """
        return self._changed("set", values)

    @named("x.at[key].add", shape="values", key="key", indices="key")
    def add(self, values: Any) -> EagerTensor:
        """`x` with `values` added at the key; repeated indices add up.

        Args:
            values: broadcast to the shape of `x[key]`, in the dtype of `x`.

        Raises:
            IndexRangeError, ShapeError, DTypeError: as `set` raises.

        Cost: the placed values and the sum are allocated; for several index arrays also
            the indices. No copies.
        """
        return self._changed("add", values)

    @named("x.at[key].subtract", shape="values", key="key", indices="key")
    def subtract(self, values: Any) -> EagerTensor:
        """`x` with `values` subtracted at the key; see `add`.

        Raises:
            IndexRangeError, ShapeError, DTypeError: as `set` raises.

        Cost: as `add`.
        """
        return self._changed("subtract", values)

    @named("x.at[key].multiply", shape="values", key="key", indices="key")
    def multiply(self, values: Any) -> EagerTensor:
        """`x` with the elements at the key multiplied; by all values that meet there.

        Args:
            values: broadcast to the shape of `x[key]`, in the dtype of `x`.

        Raises:
            IndexRangeError, ShapeError, DTypeError: as `set` raises.

        Cost: the factors by place and the result are allocated; for several index
            arrays also the indices. No copies. The derivative in `values` sorts the
            indices and divides by nothing.
        """
        return self._changed("multiply", values)

    @named("x.at[key].divide", shape="values", key="key", indices="key")
    def divide(self, values: Any) -> EagerTensor:
        """`x` with the elements at the key divided; by all values that meet there.

        Integers give float64, as `x / v` does.

        Raises:
            IndexRangeError, ShapeError, DTypeError: as `set` raises.

        Cost: as `multiply`.
        """
        return self._changed("divide", values)

    @named("x.at[key].power", shape="values", key="key", indices="key")
    def power(self, values: Any) -> EagerTensor:
        """`x` with the elements at the key raised to the product of the values there.

        Raises:
            IndexRangeError, ShapeError, DTypeError: as `set` raises.
            InvalidArgumentError: integers to a negative power, as `ta.pow` raises.

        Cost: as `multiply`.
        """
        refuse_negative_power(self._x, values)
        return self._changed("power", values)

    @named("x.at[key].max", shape="values", key="key", indices="key")
    def max(self, values: Any) -> EagerTensor:
        """`x` with the larger of the element and the values that meet at its place.

        NaN is the largest wherever it occurs. Tied elements share the slope equally.

        Raises:
            IndexRangeError, ShapeError: as `set` raises.
            DTypeError: complex numbers, and as `set` raises.

        Cost: the result is allocated, for basic keys also the part, a mask and the
            placed part; for several index arrays the indices. No copies.
        """
        return self._changed("max", values)

    @named("x.at[key].min", shape="values", key="key", indices="key")
    def min(self, values: Any) -> EagerTensor:
        """`x` with the smaller of the element and the values that meet at its place.

        Raises:
            IndexRangeError, ShapeError, DTypeError: as `max` raises.

        Cost: as `max`.
        """
        return self._changed("min", values)


_ALL: Final = slice(None)


def _traced_mask(x: EagerTensor, key: Any) -> tuple[EagerTensor, int] | None:
    """The mask of a key that is a traced mask and otherwise takes everything, and the
    axis that it begins at."""
    entries = list(key) if isinstance(key, tuple) else [key]
    masks = [k for k, entry in enumerate(entries) if is_traced(entry)]
    if len(masks) != 1 or entries[masks[0]].dtype.kind != "b":
        return None
    mask: EagerTensor = entries.pop(masks[0])
    if not all(e is Ellipsis or (type(e) is slice and e == _ALL) for e in entries):
        return None
    axis = masks[0]
    dots = [k for k, entry in enumerate(entries) if entry is Ellipsis]
    if dots and dots[0] < axis:
        axis += x.ndim - mask.ndim - len(entries)
    if len(dots) > 1 or axis < 0 or x.shape[axis : axis + mask.ndim] != mask.shape:
        return None  # refused where keys are read
    return mask, axis


def _where(
    how: str, x: EagerTensor, mask: EagerTensor, axis: int, v: EagerTensor
) -> EagerTensor | None:
    """`x`, and where the mask is true `x` with `v` combined into it; None where `v` has
    values of their own for the elements of the mask."""
    lead, rest = x.shape[:axis], x.shape[axis + mask.ndim :]
    each = (*lead, 1, *rest)
    if v.ndim > len(each) or any(
        n not in (1, m) for n, m in zip(v.shape[::-1], each[::-1], strict=False)
    ):
        return None
    v = HANDLES.regroup(broadcast_to(v, each), (*lead, *(1,) * mask.ndim, *rest))
    mask = HANDLES.regroup(mask, ((1,) * axis + mask.shape + (1,) * len(rest)))
    return where(mask, v if how == "set" else _BINARY[how](x, v), x)


def _flat(x: EagerTensor) -> EagerTensor:
    """All elements along one axis: a view, or one fresh output where strides differ."""
    return x if x.ndim == 1 else HANDLES.regroup(x, (x.size,))


# What is placed where nothing is to change.
_NEUTRAL: Final = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1, "power": 1}
_BINARY: Final = {
    "add": HANDLES.add,
    "subtract": HANDLES.sub,
    "multiply": HANDLES.mul,
    "divide": HANDLES.div,
    "power": pow,
    "max": HANDLES.maximum,
    "min": HANDLES.minimum,
}


def _at_basic(how: str, x: EagerTensor, key: Key, v: EagerTensor) -> EagerTensor:
    """Places without repetition: one placement of `v`, or of the changed part."""
    if how in _NEUTRAL:
        placed = HANDLES.place(v, x.shape, key, _NEUTRAL[how])
        return _BINARY[how](x, placed)
    if how != "set":
        v = _BINARY[how](HANDLES.slice(x, key), v)
    return replaced(x, key, v)
