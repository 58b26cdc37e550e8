"""Checked layout arithmetic: where the elements of a value lie, proven once.

A layout is validated when it is first built from outside facts (`check_layout`): sizes
fit 64 bits, every element is inside its span, starts and strides are whole elements.
Slicing, permuting, reversing, reshaping and broadcasting derive another checked layout
and look only at what is new (indices, axes, shapes): what held for all elements holds
for a selection of them. `validations` counts the proofs, so that tests can show that
later steps repeat none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from ..errors import LayoutError

Shape = tuple[int, ...]
Strides = tuple[int, ...]

INT64_MAX: Final = 2**63 - 1


@final
class Validations:
    """How many proofs of each kind were computed in this process."""

    __slots__ = ("disjointness", "injectivity", "layout")

    def __init__(self) -> None:
        self.layout = 0
        self.injectivity = 0
        self.disjointness = 0

    def snapshot(self) -> tuple[int, int, int]:
        """Counts of layout, injectivity and disjointness proofs so far."""
        return self.layout, self.injectivity, self.disjointness


validations: Final = Validations()


def c_strides(shape: Shape, itemsize: int) -> Strides:
    """Byte strides of a C-ordered array of `shape`."""
    strides: list[int] = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


@final
@dataclass(frozen=True, slots=True)
class Contiguous:
    """Elements in C order without gaps, from byte `offset` of the root."""

    offset: int
    shape: Shape
    strides: Strides
    itemsize: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def byte_range(self) -> range:
        """Bytes that the elements occupy."""
        return range(self.offset, self.offset + self.size * self.itemsize)

    @property
    def element_range(self) -> range:
        """Elements, counted from the first byte of the layout."""
        return range(self.size)


@final
@dataclass(frozen=True, slots=True)
class CheckedStrided:
    """Elements at `offset + index . strides` bytes of the root, with the carry plan.

    `carries[k]` is the byte step when axis `k` advances and all later axes start over.
    """

    offset: int
    shape: Shape
    strides: Strides
    itemsize: int
    carries: Strides

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def byte_range(self) -> range:
        """The reachable byte envelope: lowest to one past the highest byte."""
        low, high = _reach(self.offset, self.shape, self.strides, self.itemsize)
        return range(low, high)


CheckedLayout = Contiguous | CheckedStrided


@final
class WriteInjectivityProof:
    """Evidence that no two elements share a byte; made by `prove_injective` only."""

    __slots__ = ("_layout",)

    _layout: CheckedLayout

    def __new__(cls) -> WriteInjectivityProof:
        raise LayoutError(
            operation="WriteInjectivityProof",
            field="injectivity",
            requested="a proof without a layout",
            limit="what `prove_injective` returns",
            fix="prove the layout with `prove_injective`",
        )


def _proof(layout: CheckedLayout) -> WriteInjectivityProof:
    proof = object.__new__(WriteInjectivityProof)
    proof._layout = layout
    return proof


@final
@dataclass(frozen=True, slots=True)
class CheckedInjectiveStrided:
    """A strided traversal whose elements are proven distinct: fit for writing."""

    plan: CheckedStrided
    injectivity: WriteInjectivityProof


def _reach(
    offset: int, shape: Shape, strides: Strides, itemsize: int
) -> tuple[int, int]:
    """Lowest byte and one past the highest byte; an empty layout reaches nothing."""
    if 0 in shape:
        return offset, offset
    low = high = offset
    for extent, stride in zip(shape, strides, strict=True):
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    return low, high + itemsize


def trusted_layout(
    offset: int, shape: Shape, strides: Strides, itemsize: int
) -> CheckedLayout:
    """Classify facts that are known to hold; nothing is validated."""
    plain = c_strides(shape, itemsize)
    same = 0 in shape or all(
        extent == 1 or stride == dense
        for extent, stride, dense in zip(shape, strides, plain, strict=True)
    )
    if same:
        return Contiguous(offset, shape, plain, itemsize)
    back = 0
    carries: list[int] = []
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        carries.append(stride - back)
        back += (extent - 1) * stride
    return CheckedStrided(offset, shape, strides, itemsize, tuple(reversed(carries)))


def check_dtype(operation: str, dtype: Any) -> np.dtype[Any]:
    """Return `dtype` if its elements are plain fixed-size native values."""
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        found = np.dtype(object)
    extension = found.kind == "V" and found.names is None and found.itemsize in (1, 2)
    plain = found.kind in "biufc" or extension
    if not plain or not found.isnative or found.subdtype is not None:
        raise LayoutError(
            operation=operation,
            field="dtype",
            requested=dtype,
            limit="booleans, integers, floating and complex numbers in native order",
        )
    return found


def check_layout(
    operation: str,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    within: range,
    *,
    offset: int = 0,
    strides: Sequence[int] | None = None,
    span: object | None = None,
) -> CheckedLayout:
    """Validate a layout of byte facts against the byte range `within` of a root.

    Args:
        operation: Public call, for the error.
        shape: Extents.
        dtype: Element type, already checked.
        within: Bytes of the root that the layout may reach.
        offset: Byte of `within` where element zero starts.
        strides: Byte strides; C order when None.
        span: Identity of `within`, for the error.

    Raises:
        LayoutError: Arithmetic overflows or is inconsistent, an element lies outside,
            or a start or stride breaks the alignment of the dtype.

    Cost: O(rank); no allocation of storage, no provider call.
    """
    validations.layout += 1

    def refuse(field: str, requested: object, limit: object) -> LayoutError:
        return LayoutError(
            operation=operation,
            field=field,
            requested=requested,
            limit=limit,
            span=span,
        )

    extents = integers(shape)
    if extents is None or any(n < 0 for n in extents):
        raise refuse("shape", tuple(shape), "non-negative integers")
    itemsize = dtype.itemsize
    nbytes = itemsize
    for extent in extents:
        nbytes *= extent
        if nbytes > INT64_MAX or math.prod(n or 1 for n in extents) > INT64_MAX:
            raise refuse("shape", extents, f"{INT64_MAX} bytes")
    steps = c_strides(extents, itemsize) if strides is None else integers(strides)
    if steps is None or len(steps) != len(extents):
        raise refuse("strides", strides, f"{len(extents)} integers")
    start = integers((offset,))
    if start is None or start[0] < 0:
        raise refuse("offset", offset, "a non-negative integer")
    low, high = _reach(start[0], extents, steps, itemsize)
    if max(abs(low), abs(high), start[0], *map(abs, steps), 0) > INT64_MAX:
        raise refuse("byte_range", (low, high), f"{INT64_MAX} bytes")
    if low < 0 or high > len(within):
        raise refuse("byte_range", (low, high), f"0..{len(within)}")
    first = within.start + start[0]
    if first % dtype.alignment:
        raise refuse("alignment", f"start {first}", f"multiples of {dtype.alignment}")
    for extent, step in zip(extents, steps, strict=True):
        # Whole elements: a typed traversal then counts elements, never bytes.
        if extent > 1 and step % itemsize:
            raise refuse("alignment", f"stride {step}", f"multiples of {itemsize}")
    return trusted_layout(first, extents, steps, itemsize)


def integers(values: Sequence[int]) -> tuple[int, ...] | None:
    """The numbers as Python integers, or None if something else is among them."""
    try:
        return tuple(value.__index__() for value in values)
    except (AttributeError, TypeError):
        return None


def prove_injective(layout: CheckedLayout) -> WriteInjectivityProof | None:
    """Prove that no two elements overlap, or return None.

    The proof orders the axes by stride and asks that each steps over all that the
    smaller ones reach. It may refuse an injective layout and never enumerates elements.

    Cost: O(rank log rank); counted in `validations.injectivity`.
    """
    validations.injectivity += 1
    if isinstance(layout, Contiguous) or 0 in layout.shape:
        return _proof(layout)
    reach = layout.itemsize
    axes = sorted(
        (abs(stride), extent)
        for extent, stride in zip(layout.shape, layout.strides, strict=True)
        if extent > 1
    )
    for stride, extent in axes:
        if stride < reach:
            return None
        reach += (extent - 1) * stride
    return _proof(layout)


def inherit_injective(
    proof: WriteInjectivityProof | None, derived: CheckedLayout
) -> WriteInjectivityProof | None:
    """Carry the proof: a selection of distinct elements is distinct."""
    return None if proof is None else _proof(derived)
