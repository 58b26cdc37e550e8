"""A group moves into retained records: the reverse of asking a record for its group.

One container takes over the group, and each named slot becomes one record on it. A
descriptor that nobody names stays in the group, so the allocation cannot be extracted
(`ExtractError`) while it is there.
"""

from __future__ import annotations

from collections.abc import Sequence

from .._aval import aval_of
from ..errors import GroupError, InvalidArgumentError
from ._device_array import array_over
from ._group import AllocationGroup, DescriptorSlot
from ._record import RetentionContainer, ValueRecord


def records_of(
    group: AllocationGroup, slots: Sequence[DescriptorSlot], operation: str
) -> tuple[ValueRecord, ...]:
    """Use up a group of one owner; a record for each of `slots`, on one container.

    Raises:
        InvalidSlotError: a slot is vacant or of another group; the group is unchanged.
        InvalidArgumentError: no slot, or one named twice; the group is unchanged.
        GroupError: the group has several owners or none; the group is unchanged.
        BorrowConflictError: a borrow is open; the group is unchanged.

    Cost: O(slots); no allocation, copy or provider call; nothing is revalidated.
    """
    found = [group.record(slot) for slot in slots]
    if not found or len(set(slots)) < len(found):
        raise InvalidArgumentError(
            operation=operation,
            argument="slots",
            found="one slot named twice" if found else "no slot",
            fix="name each value that you want a handle of once",
        )
    owners = [owner for owner in group._allocations if owner is not None]
    if len(owners) != 1:
        raise GroupError(
            operation=operation,
            argument="group",
            found=f"a group of {len(owners)} owners",
            fix="move each value out with `try_extract`, and into a handle by itself",
            reason="several-owners",
        )
    (owner,) = owners
    resource = owner._resource
    device = resource.provider.value.provider
    home = RetentionContainer(None, device, owner.nbytes, None)
    home._group = _moved(group, operation)
    records: list[ValueRecord] = []
    for slot, entry in zip(slots, found, strict=True):
        descriptor = entry.descriptor
        array = array_over(descriptor, resource.allocation)
        record = ValueRecord(
            array, aval_of(descriptor.shape, descriptor.dtype, device), None
        )
        home._slots.append(slot)
        record.seat(home, len(records))
        records.append(record)
    home.tokens.extend([None] * (len(records) - 1))
    return tuple(records)


def _moved(group: AllocationGroup, operation: str) -> AllocationGroup:
    """The same group as a new object, so that the caller's name for it is spent."""
    group._cell.acquire_exclusive(operation, None, "owning")
    group._cell.release("exclusive")
    moved = AllocationGroup._make([])
    for part in ("_allocations", "_cell", "_descriptors", "_table"):
        setattr(moved, part, getattr(group, part))
    group._moved_by = operation
    group._allocations, group._descriptors = [], []  # the spent object keeps nothing
    return moved


__all__ = ["records_of"]
