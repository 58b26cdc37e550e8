"""What a group's tables hold: slots, records, and the checks before publishing them.

A `DescriptorSlot` is a key of one group's table (amendment A2) and a `DescriptorRecord`
keeps validated facts; neither owns, opens or keeps alive anything (contract G2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..errors import (
    GroupConstructionError,
    InvalidSlotError,
    LayoutError,
    TenferroError,
    type_name,
)
from ._descriptor import CheckedDescriptor, check_descriptor
from ._layout import CheckedLayout, WriteInjectivityProof
from ._root import AllocationSpan, OwnedStorage

if TYPE_CHECKING:
    from ._tensor import Tensor


@final
class Table:
    """Identity of one group's slot table; it has no content and opens nothing."""

    __slots__ = ()


@final
class DescriptorSlot:
    """A key of one group's descriptor table: copyable, and no right of any kind."""

    __slots__ = ("_position", "_table")

    _position: int
    _table: Table

    def __new__(cls, *args: object) -> DescriptorSlot:
        raise InvalidSlotError(
            operation="DescriptorSlot",
            found="`DescriptorSlot` has no public constructor",
            fix="use a slot that a group returned",
        )

    def __copy__(self) -> DescriptorSlot:
        return self

    def __deepcopy__(self, memo: object) -> DescriptorSlot:
        return self

    def __reduce__(self) -> Any:
        raise InvalidSlotError(
            operation="pickle",
            found="a slot means nothing outside its group",
            fix="keep the slot with its group",
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DescriptorSlot)
            and self._table is other._table
            and self._position == other._position
        )

    def __hash__(self) -> int:
        return hash(self._position)

    def __repr__(self) -> str:
        return f"DescriptorSlot({self._position})"


def make_slot(table: Table, position: int) -> DescriptorSlot:
    slot = object.__new__(DescriptorSlot)
    slot._position = position
    slot._table = table
    return slot


@final
@dataclass(frozen=True, slots=True)
class DescriptorRequest:
    """Facts of a descriptor to be checked: `allocation` is an index of the owners."""

    shape: tuple[int, ...]
    dtype: Any
    allocation: int = 0
    strides: tuple[int, ...] | None = None
    offset: int = 0


@final
class DescriptorRecord:
    """One slot's retained facts: metadata without ownership or authority."""

    __slots__ = ("allocation", "descriptor", "provider", "storage", "write_injectivity")

    def __init__(
        self,
        allocation: int,
        descriptor: CheckedDescriptor,
        storage: AllocationSpan,
        proof: WriteInjectivityProof | None = None,
    ) -> None:
        self.allocation = allocation
        self.descriptor = descriptor
        self.storage = storage
        self.provider = storage.domain
        self.write_injectivity = proof

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.descriptor.dtype

    @property
    def layout(self) -> CheckedLayout:
        """The validated layout."""
        return self.descriptor.layout

    @property
    def byte_range(self) -> range:
        """Bytes of the root that the layout reaches."""
        return self.descriptor.span.byte_range

    @property
    def placement(self) -> str:
        """Name of the allocation domain."""
        return self.descriptor.placement


def checked_record(
    operation: str, owner: OwnedStorage, entry: int, request: DescriptorRequest
) -> DescriptorRecord:
    descriptor = check_descriptor(
        operation,
        owner._claim,
        request.shape,
        request.dtype,
        strides=request.strides,
        offset=request.offset,
    )
    return DescriptorRecord(entry, descriptor, owner.span)


def live_tensors(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The tensors, if all of them are owners.

    Raises:
        GroupConstructionError: something else is among them.
        UseAfterMoveError: one was moved.
    """
    for at, tensor in enumerate(tensors):
        if not hasattr(type(tensor), "_owner_storage"):
            fix = "pass owners: `y.into_value()` or `y.duplicate_value()` makes one"
            raise _no_owner("of_tensors", "tensors", tensors, at, fix)
        tensor._require("of_tensors")
    return tensors


def _no_owner(
    operation: str, argument: str, given: Sequence[Any], at: int, fix: str
) -> GroupConstructionError:
    return GroupConstructionError(
        operation=operation,
        argument=argument,
        found=f"an object of type `{type_name(given[at])}` at position {at}",
        fix=fix,
        reason="not-an-owner",
        slots=(at,),
        recovered=tuple(given),
    )


def require_free(
    operation: str, given: Sequence[Any], owners: Sequence[OwnedStorage]
) -> None:
    """Every owner once, live, unborrowed, and no two over the same bytes."""

    def refuse(found: str, reason: str, slots: tuple[int, ...]) -> None:
        raise GroupConstructionError(
            operation=operation,
            found=found,
            reason=reason,
            slots=slots,
            recovered=tuple(given),
        )

    for at, owner in enumerate(owners):
        owner._require(operation)
        if owner._borrow.outstanding is not None:
            refuse(f"owner {at} is borrowed", "borrowed", (at,))
    placed = sorted(
        range(len(owners)),
        key=lambda at: (owners[at].span.serial, owners[at].span.start),
    )
    for first, second in pairwise(placed):
        a, b = owners[first], owners[second]
        twice = a is b
        shared = a._resource is b._resource and b.span.start < a.span.stop
        if twice or (shared and a.nbytes and b.nbytes):
            refuse(
                f"owners {min(first, second)} and {max(first, second)} "
                + ("are the same" if twice else "share bytes"),
                "duplicate-owner" if twice else "overlap",
                (min(first, second), max(first, second)),
            )


def checked_records(
    operation: str,
    owners: Sequence[OwnedStorage],
    requests: Sequence[DescriptorRequest],
) -> list[DescriptorRecord]:
    for at, owner in enumerate(owners):
        if not isinstance(owner, OwnedStorage):
            fix = "pass `OwnedStorage` objects; `of_tensors` takes tensors"
            raise _no_owner(operation, "owners", owners, at, fix)
    require_free(operation, owners, owners)
    records: list[DescriptorRecord] = []
    for at, request in enumerate(requests):
        entry = request.allocation
        try:
            if not 0 <= entry < len(owners):
                raise LayoutError(
                    operation=operation,
                    field="allocation",
                    requested=entry,
                    limit=f"{len(owners)} owners",
                )
            records.append(checked_record(operation, owners[entry], entry, request))
        except TenferroError as error:
            raise GroupConstructionError(
                operation=operation,
                found=f"descriptor {at} was refused ({error})",
                slots=(at,),
                recovered=tuple(owners),
            ) from error
    return records
