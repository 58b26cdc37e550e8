"""Handles and tapes seen as ownership: their records, descriptors and groups.

Everything here is metadata on demand. A group moves in through `from_group`; nothing
moves a group or a write capability out of a handle that others may share.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..storage import (
    AllocationGroup,
    CheckedDescriptor,
    DescriptorSlot,
    records_of,
)
from ..tape import AdValueRecord, TapeRetention
from ._eager import EagerTensor, constant
from ._tape import Tape

__all__ = ["descriptor_of", "from_group", "record_of", "retention_of"]


def from_group(
    group: AllocationGroup, slots: Sequence[DescriptorSlot] | None = None
) -> tuple[EagerTensor, ...]:
    """Move a group of one owner into handles that share it: one constant for each slot.

    Args:
        group: used up.
        slots: the values wanted; all of them if None. A descriptor left out stays
            in the group, and `into_value` then raises `ExtractFailedError`.

    Raises:
        InvalidSlotError: a slot is vacant or of another group.
        InvalidArgumentError: no slot, or one named twice.
        GroupError: the group has several owners or none.
        BorrowConflictError: a borrow is open. In each case the group is unchanged.

    Cost: metadata only; no allocation, no copy.
    """
    wanted = group.slots if slots is None else tuple(slots)
    return tuple(constant(record) for record in records_of(group, wanted, "from_group"))


def record_of(y: EagerTensor) -> AdValueRecord:
    """One more strong reference to the record behind a handle.

    Cost: one small object; no event.
    """
    return AdValueRecord(y._record)


def descriptor_of(y: EagerTensor) -> CheckedDescriptor:
    """The checked descriptor of a handle's value: metadata that opens nothing.

    Cost: metadata only; no event.
    """
    return record_of(y).descriptor


def retention_of(tape: Tape) -> TapeRetention:
    """What `tape` retains now, as keys and records.

    Cost: one small object; no event.
    """
    return TapeRetention(tape._core)
