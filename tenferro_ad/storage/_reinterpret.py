"""Reinterpretation: the same bytes of the same root read as another type (contract G4).

The new descriptor keeps root, placement and borrow; nothing is copied, allocated or
converted, and no owner appears. Only the pairs listed here are allowed:

- complex <-> real of the same precision, which changes the rank: a complex value of
  rank N is a real value of rank N + 1 whose last axis holds real and imaginary part;
- numbers of one size among each other (`int32`, `uint32`, `float32`; likewise for 8, 16
  and 64 bits), which keeps rank and shape.

Booleans take part in no pair: most bytes are no boolean. A numeric cast (`astype`)
keeps values and makes new bytes; this keeps bytes and gives new values.

Result-rank policy of the typed family: the caller names the rank of the result, which
is checked at run time, or gets `DynRank`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import LayoutError
from ._descriptor import CheckedDescriptor
from ._layout import CheckedLayout, Shape, Strides, check_layout

_SAME_SIZE: Final = (
    ("int8", "uint8"),
    ("int16", "uint16", "float16"),
    ("int32", "uint32", "float32"),
    ("int64", "uint64", "float64"),
)
_COMPLEX: Final = (("complex64", "float32"), ("complex128", "float64"))


def scalar_pairs() -> tuple[tuple[str, str], ...]:
    """Every allowed (from, to) pair of dtype names. Cost: constant."""
    same = [(a, b) for names in _SAME_SIZE for a in names for b in names if a != b]
    split = [pair for a, b in _COMPLEX for pair in ((a, b), (b, a))]
    return tuple(same + split)


_PAIRS: Final = frozenset(scalar_pairs())


def reinterpreted(
    operation: str, old: CheckedDescriptor, dtype: Any
) -> CheckedDescriptor:
    """The descriptor of the same elements' bytes as `dtype`.

    Raises:
        LayoutError: The pair is not listed; or the last axis does not hold two
            adjacent parts, or start, strides or span do not fit the new type.

    Cost: O(rank); one layout validation; no allocation, copy or provider call.
    """
    try:
        new: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        new = np.dtype(object)
    if (old.dtype.name, new.name) not in _PAIRS or not new.isnative:
        allowed = [to for name, to in scalar_pairs() if name == old.dtype.name]
        raise LayoutError(
            operation=operation,
            field="dtype",
            requested=dtype if new.kind == "O" else new,
            limit=f"reinterpretations of {old.dtype}: {', '.join(allowed) or 'none'}",
            fix="use `astype` to convert values into new bytes",
        )
    shape, strides = _regrouped(operation, old, new)
    within = old.layout.byte_range
    layout: CheckedLayout = check_layout(
        operation,
        shape,
        new,
        within,
        offset=old.layout.offset - within.start,
        strides=strides,
    )
    return CheckedDescriptor._trusted(layout, new, old.placement)


def _regrouped(
    operation: str, old: CheckedDescriptor, new: np.dtype[Any]
) -> tuple[Shape, Strides]:
    shape, strides = old.shape, old.strides
    size = new.itemsize
    if size == old.dtype.itemsize:
        return shape, strides
    if size < old.dtype.itemsize:
        return (*shape, old.dtype.itemsize // size), (*strides, size)
    parts = size // old.dtype.itemsize
    if not shape or shape[-1] != parts:
        raise LayoutError(
            operation=operation,
            field="shape",
            requested=f"{new} from shape {shape}",
            limit=f"a last axis of extent {parts}: real and imaginary part",
            fix=f"reshape the value so that its last axis has extent {parts}",
        )
    if old.size and strides[-1] != old.dtype.itemsize:
        raise LayoutError(
            operation=operation,
            field="strides",
            requested=f"{new} from strides {strides}",
            limit=f"a last stride of {old.dtype.itemsize} bytes: adjacent parts",
            fix="`duplicate()` the view first; a reinterpretation never copies",
        )
    return shape[:-1], strides[:-1]
