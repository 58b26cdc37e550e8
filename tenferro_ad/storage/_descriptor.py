"""Checked descriptors: how bytes of a root are read, without keeping the bytes.

A `CheckedDescriptor` is published only after its arithmetic, bounds, dtype, alignment
and provider were checked against an exact span (`check_descriptor`), or when the facts
come from an array that the provider itself made over that root (`_of_array`), whose
provenance is the proof. It is metadata: it holds no bytes, opens no access, and keeps
nothing alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, final

import numpy as np

from ..errors import LayoutError
from ._layout import (
    CheckedLayout,
    Contiguous,
    WriteInjectivityProof,
    c_strides,
    check_dtype,
    check_layout,
    prove_injective,
    trusted_layout,
)
from ._provider import Buffer, HostArray
from ._root import AllocationSpan, OwnedSpanClaim, RootResource


@final
@dataclass(frozen=True, slots=True)
class RootBoundSpan:
    """The bytes of a root that a descriptor reaches, and their element type."""

    start: int
    stop: int
    dtype: np.dtype[Any]

    @property
    def byte_range(self) -> range:
        """Bytes of the root."""
        return range(self.start, self.stop)


@final
class CheckedDescriptor:
    """Span, layout and placement of one value, checked when built and kept."""

    __slots__ = ("layout", "placement", "span")

    span: RootBoundSpan
    layout: CheckedLayout
    placement: str

    def __new__(cls) -> CheckedDescriptor:
        raise LayoutError(
            operation="CheckedDescriptor",
            field="layout",
            requested="an unchecked descriptor",
            limit="what `check_descriptor` returns",
            fix="build descriptors through a group or a view",
        )

    @classmethod
    def _trusted(
        cls, layout: CheckedLayout, dtype: np.dtype[Any], placement: str
    ) -> CheckedDescriptor:
        reach = layout.byte_range
        descriptor = object.__new__(cls)
        descriptor.span = RootBoundSpan(reach.start, reach.stop, dtype)
        descriptor.layout = layout
        descriptor.placement = placement
        return descriptor

    @classmethod
    def _of_array(cls, array: Buffer, root: RootResource) -> CheckedDescriptor:
        """Describe an array that the provider made over `root`: provenance is proof.

        Cost: O(rank); no validation, no provider call.
        """
        base = root.allocation
        dtype: np.dtype[Any] = array.dtype
        shape = tuple(array.shape)
        strides = getattr(array, "strides", None)
        if strides is not None and not isinstance(array, np.ndarray):
            offset = 0 if array is base else array.offset
            domain = root.diagnostics.domain
            return _described(offset, shape, tuple(strides), dtype, domain)
        offset = 0
        if array is not base and array.size:
            offset = _start(array) - _start(base)
        if strides is None:
            layout: CheckedLayout = check_layout(
                "adopt", shape, dtype, range(root.capacity_bytes)
            )
        else:
            layout = trusted_layout(offset, shape, tuple(strides), dtype.itemsize)
        return cls._trusted(layout, dtype, root.diagnostics.domain)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.span.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Byte strides."""
        return self.layout.strides

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.layout.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, counted once each."""
        return self.layout.size * self.span.dtype.itemsize

    def _with_layout(self, layout: CheckedLayout) -> CheckedDescriptor:
        return CheckedDescriptor._trusted(layout, self.span.dtype, self.placement)

    def moved(self, by: int) -> CheckedDescriptor:
        """The same elements `by` bytes further on; where they lie is the caller's
        proof."""
        layout = replace(self.layout, offset=self.layout.offset + by)
        return self._with_layout(layout)

    def __repr__(self) -> str:
        kind = "contiguous" if isinstance(self.layout, Contiguous) else "strided"
        return (
            f"CheckedDescriptor({self.dtype}{list(self.shape)}, {kind}, "
            f"bytes {self.span.start}..{self.span.stop}, on `{self.placement}`)"
        )


@final
@dataclass(frozen=True, slots=True)
class CheckedInjectiveDescriptor:
    """A descriptor whose elements are proven distinct: fit for writing."""

    descriptor: CheckedDescriptor
    injectivity: WriteInjectivityProof


def descriptor_at(
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    strides: tuple[int, ...] | None,
    placement: str,
) -> CheckedDescriptor:
    """The descriptor of a place that a schedule chose; the places of what is alive
    together were proven disjoint, and inside their memory, when it was made.

    Cost: O(rank); no validation, no provider call.
    """
    steps = c_strides(shape, dtype.itemsize) if strides is None else strides
    layout = trusted_layout(offset, shape, steps, dtype.itemsize)
    return CheckedDescriptor._trusted(layout, dtype, placement)


@lru_cache(1024)
def _described(
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
    domain: str,
) -> CheckedDescriptor:
    """The descriptor of elements that a device laid out; equal facts share one."""
    layout = trusted_layout(offset, shape, strides, dtype.itemsize)
    return CheckedDescriptor._trusted(layout, dtype, domain)


def _start(array: HostArray) -> int:
    """Where element zero lies; compared with another start and then forgotten."""
    at: int = array.__array_interface__["data"][0]
    return at


def check_descriptor(
    operation: str,
    claim: OwnedSpanClaim,
    shape: Sequence[int],
    dtype: Any,
    *,
    strides: Sequence[int] | None = None,
    offset: int = 0,
) -> CheckedDescriptor:
    """Validate outside facts against the exact span of `claim` and keep the result.

    Args:
        operation: Public call, for the error.
        claim: Claim whose bytes the descriptor may reach.
        shape: Extents.
        dtype: Element type.
        strides: Byte strides; C order when None.
        offset: Byte of the claim where element zero starts.

    Raises:
        LayoutError: Any fact is wrong, or the provider cannot serve the dtype.

    Cost: O(rank); no allocation, copy, map or synchronisation.
    """
    span: AllocationSpan = claim.span
    checked = check_dtype(operation, dtype)
    root = claim._root.value
    supports = getattr(root.provider.value.provider, "supports_dtype", None)
    if supports is not None and not supports(checked):
        raise LayoutError(
            operation=operation,
            field="provider",
            requested=checked,
            limit=f"the data types of `{span.domain}`",
            span=span,
        )
    layout = check_layout(
        operation,
        shape,
        checked,
        claim.byte_range,
        offset=offset,
        strides=strides,
        span=span,
    )
    return CheckedDescriptor._trusted(layout, checked, span.domain)


def check_injective(
    operation: str, descriptor: CheckedDescriptor
) -> CheckedInjectiveDescriptor:
    """Prove a write layout.

    Raises:
        LayoutError: Element addresses overlap, or cannot be proven not to.

    Cost: O(rank log rank).
    """
    proof = prove_injective(descriptor.layout)
    if proof is None:
        raise LayoutError(
            operation=operation,
            field="injectivity",
            requested=f"shape {descriptor.shape}, strides {descriptor.strides}",
            limit="layouts whose elements are all distinct",
            fix="write through the layout before it was broadcast",
        )
    return CheckedInjectiveDescriptor(descriptor, proof)


def flat_bytes(allocation: HostArray) -> HostArray:
    """The allocation's bytes in address order, without a copy.

    Arrays that own their memory are packed, in C order or with axes permuted.
    """
    if not allocation.flags.c_contiguous:
        order = sorted(range(allocation.ndim), key=lambda k: -allocation.strides[k])
        allocation = allocation.transpose(order)
    return allocation.reshape(-1).view(np.uint8)


def host_array(descriptor: CheckedDescriptor, mapped: HostArray) -> HostArray:
    """The descriptor's elements over the host bytes of its whole root.

    Cost: O(rank); no copy.
    """
    layout, dtype = descriptor.layout, descriptor.dtype
    whole = (
        layout.offset == 0
        and mapped.dtype == dtype
        and mapped.shape == layout.shape
        and mapped.strides == layout.strides
    )
    if whole:
        return mapped
    if layout.size == 0:
        return np.empty(layout.shape, dtype)
    return np.ndarray(
        layout.shape, dtype, flat_bytes(mapped), layout.offset, layout.strides
    )
