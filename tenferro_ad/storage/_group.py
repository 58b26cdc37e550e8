"""`AllocationGroup`: several values over one or more owners (contract G2).

The group owns storage in stable entries and describes values in append-only slots. Its
one borrow cell decides who may touch any of it: reading takes a shared borrow, writing
and every change of the tables the exclusive one. A `DescriptorSlot` is a key that works
only with its own group (amendment A2); it opens nothing by itself. Failed operations
leave the group as it was, and nothing here copies bytes or knows about derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from .._ownership import Borrow, MoveOnly
from ..errors import ExtractError, InvalidExtractSlotError, InvalidSlotError, a_kind
from ._capability import StorageMut, StorageRef
from ._descriptor import CheckedDescriptor
from ._disjoint import Request, prove_disjoint
from ._provider import Buffer
from ._root import OwnedStorage
from ._slots import (
    DescriptorRecord,
    DescriptorRequest,
    DescriptorSlot,
    Table,
    checked_record,
    checked_records,
    live_tensors,
    make_slot,
    require_free,
)
from ._tensor import Tensor
from ._view import TensorView
from ._view_mut import TensorViewMut


@final
class AllocationGroup(MoveOnly):
    """Owners in stable entries, values in append-only slots, one borrow cell."""

    __slots__ = ("_allocations", "_cell", "_descriptors", "_table")

    _allocations: list[OwnedStorage | None]
    _cell: Borrow
    _descriptors: list[DescriptorRecord | None]
    _table: Table

    @classmethod
    def _make(cls, owners: Sequence[OwnedStorage]) -> AllocationGroup:
        group: AllocationGroup = object.__new__(cls)
        group._moved_by = None
        group._allocations = list(owners)
        group._cell = Borrow()
        group._descriptors = []
        group._table = Table()
        return group

    @classmethod
    def of_owners(
        cls, owners: Sequence[OwnedStorage], requests: Sequence[DescriptorRequest]
    ) -> tuple[AllocationGroup, tuple[DescriptorSlot, ...]]:
        """Use up owners and build a group with one slot for each request.

        Raises:
            GroupConstructionError: Something is no owner, an owner is borrowed, appears
                twice or overlaps another, or a descriptor is refused (its `LayoutError`
                is the cause); `recovered` is the tuple of owners, unchanged.
            UseAfterMoveError: An owner was moved; the others are unchanged.

        Cost: O(owners log owners + requests); no allocation, copy or provider call.
        """
        records = checked_records("of_owners", owners, requests)
        group = cls._make([owner._move("of_owners") for owner in owners])
        return group, tuple(group._publish(record) for record in records)

    @classmethod
    def of_tensors(
        cls, tensors: Sequence[Tensor]
    ) -> tuple[AllocationGroup, tuple[DescriptorSlot, ...]]:
        """Use up tensors and build a group with one entry and slot for each.

        Raises:
            GroupConstructionError: Something is no owner, or a tensor appears twice or
                is borrowed; `recovered` is the tuple of tensors, unchanged.
            UseAfterMoveError: A tensor was moved; the others are unchanged.

        Cost: O(tensors); no allocation, copy or provider call; nothing is revalidated.
        """
        require_free(
            "of_tensors", tensors, [t._owner_storage for t in live_tensors(tensors)]
        )
        parts = [tensor._part("of_tensors") for tensor in tensors]
        group = cls._make([storage for storage, _, _ in parts])
        return group, tuple(
            group._publish(DescriptorRecord(at, descriptor, storage.span, proof))
            for at, (storage, descriptor, proof) in enumerate(parts)
        )

    @classmethod
    def _from_arrays(
        cls, storage: OwnedStorage, arrays: Sequence[Buffer]
    ) -> tuple[AllocationGroup, tuple[DescriptorSlot, ...]]:
        """One owner and the arrays that its provider made over it; uses it up."""
        group = cls._make([storage._move("_from_arrays")])
        return group, tuple(group._append_array(array) for array in arrays)

    def _append_array(self, array: Buffer) -> DescriptorSlot:
        """Describe one more provider-made array over the only occupied entry.

        Appending touches no bytes and no existing slot, so open borrows do not matter.
        """
        self._require("_append_array")
        entry, owner = next(
            (at, owner) for at, owner in enumerate(self._allocations) if owner
        )
        descriptor = CheckedDescriptor._of_array(array, owner._resource)
        return self._publish(DescriptorRecord(entry, descriptor, owner.span))

    def _remove_unborrowed(self, slot: DescriptorSlot) -> None:
        """Vacate a slot whose value is gone; a vacant slot is left alone."""
        self._require("_remove_unborrowed")
        if self._record_at(slot) is not None:
            self._descriptors[slot._position] = None

    def _move(self, operation: str) -> AllocationGroup:
        """Consume this group into a new one with the same tables; slots stay valid.

        Raises:
            BorrowConflictError: Any borrow is open; the group is unchanged.
        """
        self._require(operation)
        self._cell.acquire_exclusive(operation, None, "owning")
        moved = AllocationGroup._make(())
        moved._allocations, self._allocations = self._allocations, []
        moved._descriptors, self._descriptors = self._descriptors, []
        moved._table = self._table
        self._moved_by = operation
        return moved

    def _seat(self, tensor: Tensor) -> DescriptorSlot:
        """Use up a tensor: its owner gets a new entry, its descriptor a new slot.

        Nothing is validated again, and no existing entry or slot changes.
        """
        self._require("_seat")
        storage, descriptor, proof = tensor._part("_seat")
        self._allocations.append(storage)
        entry = len(self._allocations) - 1
        return self._publish(DescriptorRecord(entry, descriptor, storage.span, proof))

    def _publish(self, record: DescriptorRecord) -> DescriptorSlot:
        self._descriptors.append(record)
        return make_slot(self._table, len(self._descriptors) - 1)

    def _mark(self) -> tuple[int, int]:
        """Where the tables end now."""
        return len(self._allocations), len(self._descriptors)

    def _restore(self, mark: tuple[int, int]) -> None:
        """Drop what was added since `mark`; nobody outside has seen a slot of it."""
        del self._allocations[mark[0] :]
        del self._descriptors[mark[1] :]

    @property
    def is_moved(self) -> bool:
        """Whether the group was used up. Cost: constant."""
        return self._moved_by is not None

    @property
    def slots(self) -> tuple[DescriptorSlot, ...]:
        """The occupied slots, in order of insertion. Cost: O(slots)."""
        self._require("slots")
        return tuple(
            make_slot(self._table, at)
            for at, record in enumerate(self._descriptors)
            if record is not None
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all owners. Cost: O(owners)."""
        self._require("nbytes")
        return sum(owner.nbytes for owner in self._allocations if owner is not None)

    def record(self, slot: DescriptorSlot) -> DescriptorRecord:
        """The retained facts of `slot`: metadata only.

        Raises:
            InvalidSlotError: no slot of this group, or a vacant one.

        Cost: constant.
        """
        return self._resolve("record", slot)

    def _record_at(self, slot: DescriptorSlot) -> DescriptorRecord | None:
        if not isinstance(slot, DescriptorSlot) or slot._table is not self._table:
            return None
        return self._descriptors[slot._position]

    def _resolve(
        self,
        operation: str,
        slot: DescriptorSlot,
        error: type[InvalidSlotError] = InvalidSlotError,
    ) -> DescriptorRecord:
        """Look a slot up: its table, its position, its occupancy, nothing more."""
        self._require(operation)
        record = self._record_at(slot)
        if record is not None:
            return record
        if not isinstance(slot, DescriptorSlot):
            raise error(
                operation=operation,
                argument="slot",
                found=a_kind(slot),
            )
        foreign = slot._table is not self._table
        where = "belongs to another group" if foreign else "is vacant"
        raise error(
            operation=operation,
            argument="slot",
            found=f"slot {slot._position} {where}",
            slots=(slot._position,),
        )

    def _owner(self, record: DescriptorRecord) -> OwnedStorage:
        owner = self._allocations[record.allocation]
        assert owner is not None
        return owner

    def view(self, slot: DescriptorSlot) -> TensorView:
        """Lend a read view of one slot; any number may be open together.

        Raises:
            InvalidSlotError: The slot is vacant or of another group.
            BorrowConflictError: The exclusive borrow is taken.

        Cost: constant; no allocation of storage, no strong count, no provider call.
        """
        record = self._resolve("view", slot)
        ref = StorageRef._of(self._owner(record)._claim, self._cell, "view")
        return TensorView._make(ref, record.descriptor)

    def view_mut(self, slot: DescriptorSlot) -> TensorViewMut:
        """Lend the one writable view; the whole group is locked until it ends.

        Raises:
            InvalidSlotError: The slot is vacant or of another group.
            BorrowConflictError: Any borrow is open.

        Cost: constant; no allocation of storage, no strong count, no provider call.
        """
        record = self._resolve("view_mut", slot)
        mut = StorageMut._of(self._owner(record)._claim, self._cell, "view_mut")
        return TensorViewMut._make(mut, record.descriptor, record.write_injectivity)

    def split_mut(self, slots: Sequence[DescriptorSlot]) -> list[TensorViewMut]:
        """Lend one writable view for each slot, proven disjoint, under one borrow.

        Raises:
            InvalidSlotError: A slot is vacant or of another group.
            DisjointViewError: A layout is not writable, or two share bytes or cannot
                be proven separate.
            BorrowConflictError: Any borrow is open.

        Cost: O(n log n) for n slots; no map, no enqueue, no layout validation.
        """
        self._require("split_mut")
        self._cell.acquire_exclusive("split_mut")
        try:
            records = [self._resolve("split_mut", slot) for slot in slots]
            requests = [
                Request(slot._position, r.allocation, r.descriptor, r.write_injectivity)
                for slot, r in zip(slots, records, strict=True)
            ]
            proven = prove_disjoint("split_mut", requests)
            # The first child takes over this call's part of the borrow.
            for _ in records[1:]:
                self._cell.retain("exclusive")
        except BaseException:
            self._cell.release("exclusive")
            raise
        children = []
        for record, part in zip(records, proven, strict=True):
            record.write_injectivity = part.injectivity
            claim = self._owner(record)._claim
            mut = StorageMut._make(claim, ((self._cell, "exclusive"),))
            children.append(TensorViewMut._make(mut, part.descriptor, part.injectivity))
        if not children:
            self._cell.release("exclusive")
        return children

    def insert(
        self, like: DescriptorSlot, request: DescriptorRequest
    ) -> DescriptorSlot:
        """Append a checked descriptor over the allocation that `like` describes.

        Raises:
            InvalidSlotError: `like` is vacant or of another group.
            LayoutError: The descriptor is refused; the group is unchanged.
            BorrowConflictError: Any borrow is open.

        Cost: O(rank); no allocation, copy or provider call.
        """
        entry = self._resolve("insert", like).allocation
        with _Exclusive(self._cell, "insert"):
            owner = self._allocations[entry]
            assert owner is not None
            return self._publish(checked_record("insert", owner, entry, request))

    def remove(self, slot: DescriptorSlot) -> None:
        """Vacate a slot for good; its owner stays.

        Raises:
            InvalidSlotError: The slot is vacant or of another group.
            BorrowConflictError: Any borrow is open.

        Cost: constant.
        """
        self._resolve("remove", slot)
        with _Exclusive(self._cell, "remove"):
            self._descriptors[slot._position] = None

    def try_extract(self, slot: DescriptorSlot) -> Tensor:
        """Move one owner out, if `slot` is the only descriptor of its allocation.

        Raises:
            InvalidExtractSlotError: The slot is vacant or of another group.
            ExtractError: Another descriptor shares the allocation.
            BorrowConflictError: Any borrow is open.

        Cost: O(slots); no allocation, copy or provider call.
        """
        record = self._resolve("try_extract", slot, InvalidExtractSlotError)
        with _Exclusive(self._cell, "try_extract"):
            entry = record.allocation
            others = tuple(
                at
                for at, other in enumerate(self._descriptors)
                if other is not None
                and other is not record
                and other.allocation == entry
            )
            if others:
                raise ExtractError(
                    operation="try_extract",
                    found=f"{len(others)} other descriptors share the allocation",
                    slots=(slot._position, *others),
                    span=record.storage,
                )
            storage = self._owner(record)._move("try_extract")
            self._descriptors[slot._position] = None
            self._allocations[entry] = None
        return Tensor._make(storage, record.descriptor, record.write_injectivity)

    def into_tensor(self, slot: DescriptorSlot) -> Tensor:
        """Use up the group: keep one value, drop the other records and owners.

        Raises:
            InvalidExtractSlotError: The slot is vacant or of another group;
                `recovered` is this same group, unchanged.
            BorrowConflictError: Any borrow is open; the group is unchanged.

        Cost: O(owners); no allocation or copy; other roots are released.
        """
        try:
            record = self._resolve("into_tensor", slot, InvalidExtractSlotError)
        except InvalidExtractSlotError as error:
            error.recovered = self
            raise
        self._cell.acquire_exclusive("into_tensor", self._owner(record), "owning")
        storage = self._owner(record)._move("into_tensor")
        self._moved_by = "into_tensor"
        self._allocations.clear()
        self._descriptors.clear()
        return Tensor._make(storage, record.descriptor, record.write_injectivity)

    def __repr__(self) -> str:
        if self._moved_by is not None:
            return f"AllocationGroup(moved by {self._moved_by})"
        owners = sum(owner is not None for owner in self._allocations)
        return f"AllocationGroup(owners={owners}, slots={len(self.slots)})"


@final
class _Exclusive:
    """The exclusive borrow for the length of one call that changes a table."""

    __slots__ = ("_cell", "_operation")

    def __init__(self, cell: Borrow, operation: str) -> None:
        self._cell = cell
        self._operation = operation

    def __enter__(self) -> None:
        self._cell.acquire_exclusive(self._operation)

    def __exit__(self, *exc: object) -> None:
        self._cell.release("exclusive")


__all__ = ["AllocationGroup", "DescriptorSlot"]
