"""Value records: the inline form of one retained value (contract G7, `AdValueRecord`).

A `ValueRecord` made by an operation *is* record, container, one-owner group, owner,
claim and descriptor at once; a second value over the same root (a view) moves the root
into a `RetentionContainer` that both records hold, and asking for the separate nouns
(`container.group()`, `into_tensor`) builds them from exactly these facts. Nothing
observable depends on which form a value has.

Lifetime: whoever needs the bytes holds the record (or the container) directly; when the
last direct holder is gone the root is released, once. Uniqueness: holders also leave
tokens, and only tokens answer `is_unique`. A token list gives exact counts with or
without the interpreter lock, because `append` and `pop` are atomic and an empty `pop`
can only mean "last".
"""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np

from .._aval import Aval
from .._ledger import BASE, Account
from ..errors import ExtractError, NotUniqueError
from ._device_array import DeviceArray
from ._group import AllocationGroup, DescriptorSlot
from ._root import OwnedStorage
from ._tensor import Tensor
from ._view_mut import TensorViewMut

Buffer = Any  # a NumPy array on host providers, the provider's buffer object elsewhere

# From this size on roots come from, and return to, the provider's pool.
POOLED_FROM: Final = 65_536


def _release_root(account: Account, device: Any, buffer: Buffer, nbytes: int) -> None:
    account.release(nbytes)
    if nbytes >= POOLED_FROM and buffer.nbytes:  # a symbolic value has no bytes
        device.give_back(buffer)


@final
class RetentionContainer:
    """Owns the root of one or more records; directly held by each of them.

    Holds the root inline until `group()` builds the `AllocationGroup`; from then on the
    group owns it.
    """

    __slots__ = (
        "_account",
        "_array",
        "_device",
        "_group",
        "_nbytes",
        "_slots",
        "device",
        "tokens",
    )

    def __init__(self, array: Buffer, device: Any, nbytes: int, account: Any) -> None:
        self._array = array
        self.device = device
        self._nbytes = nbytes
        self._account: Account | None = account
        self._group: AllocationGroup | None = None
        # Append-only, like the group's descriptor slots that it becomes.
        self._slots: list[Any] = []
        self.tokens: list[None] = []

    @classmethod
    def of_storage(cls, storage: OwnedStorage, device: Any) -> RetentionContainer:
        """A container whose group owns `storage` and describes nothing yet."""
        home = cls(None, device, storage.nbytes, None)
        home._group, _ = AllocationGroup._from_arrays(storage, [])
        return home

    @property
    def nbytes(self) -> int:
        """Bytes of the root that this container pins."""
        return self._nbytes

    @property
    def is_borrowed(self) -> bool:
        """A view or an exported array reads the container's group."""
        return self._group is not None and self._group._cell.outstanding is not None

    def __del__(self) -> None:
        account = self._account
        if account is not None:
            self._account = None
            _release_root(account, self.device, self._array, self._nbytes)

    def append(self, array: Buffer) -> int:
        """Add a descriptor over the container's root; `array` views that root."""
        if self._group is not None:
            self._slots.append(self._group._append_array(array))
        else:
            self._slots.append(array)
        return len(self._slots) - 1

    def vacate(self, slot: int) -> None:
        """A record is gone: its descriptor entry stays vacant for good."""
        entry = self._slots[slot]
        self._slots[slot] = None
        if self._group is not None and entry is not None and not self._group.is_moved:
            self._group._remove_unborrowed(entry)

    def group(self) -> AllocationGroup:
        """The group that owns the root: built on first use, the same object afterwards.

        Cost: metadata only; no storage allocation, copy or provider call.
        """
        if self._group is None:
            if self._account is None:
                raise ExtractError(
                    operation="group",
                    argument="value",
                    found="a value that was moved out",
                    fix="use the tensor that `into_value` returned",
                )
            live = [i for i, a in enumerate(self._slots) if a is not None]
            storage = OwnedStorage._from_allocation(
                self.device, self._array, self._account
            )
            group, slots = AllocationGroup._from_arrays(
                storage, [self._slots[i] for i in live]
            )
            for i, slot in zip(live, slots, strict=True):
                self._slots[i] = slot
            self._group = group
            self._account = None
        return self._group

    def slot(self, index: int) -> DescriptorSlot:
        """The group's slot of record entry `index`."""
        self.group()
        found = self._slots[index]
        assert isinstance(found, DescriptorSlot)
        return found

    def view_mut(self, record: ValueRecord) -> TensorViewMut:
        """Lend the exclusive view of the one record that holds this container.

        Raises:
            NotUniqueError: a handle, tape, checkpoint or other record shares it;
                nothing changed and nothing is duplicated.
            BorrowConflictError: a guard or an exported array reads it.

        Cost: metadata only.
        """
        if record.home is not self or not record.is_unique:
            raise NotUniqueError(
                operation="view_mut",
                found="someone else still holds this value",
                fix="drop the other holders, or duplicate the value",
                recovered=self,
            )
        return self.group().view_mut(self.slot(record.slot))

    def take(self, index: int, array: Buffer) -> Tensor:
        """Move the owner out for record entry `index`; the caller proved uniqueness."""
        if self._group is not None:
            slot = self._slots[index]
            tensor = self._group.try_extract(slot)
            self._slots[index] = None
            return tensor
        others = sum(a is not None for a in self._slots) - 1
        if others:
            raise ExtractError(
                operation="into_value",
                argument="value",
                found=f"{others} other descriptor(s) on the same allocation",
                fix="drop them first, or use `duplicate_value()`",
            )
        account, self._account = self._account, None
        storage = OwnedStorage._from_allocation(self.device, self._array, account)
        self._array = None
        return Tensor._seat(storage, array)


@final
class ValueRecord:
    """One value: bytes, aval and who holds it. See the module text."""

    __slots__ = ("account", "array", "aval", "home", "slot", "tokens")

    def __init__(self, array: Buffer, aval: Aval, account: Any) -> None:
        self.array = array
        self.aval = aval
        self.account: Account | None = account
        self.tokens: list[None] = []
        self.home: RetentionContainer | None = None

    def __del__(self) -> None:
        account = self.account
        if account is BASE:  # `release` without a call: once for every output
            n = self.aval.nbytes
            BASE.released += 1
            BASE.live_bytes -= n
            if n >= POOLED_FROM:
                self.aval.device.give_back(self.array)
        elif account is not None:
            _release_root(account, self.aval.device, self.array, self.aval.nbytes)
        else:
            home = self.home
            if home is not None and home.tokens:
                try:
                    home.tokens.pop()
                except IndexError:
                    return  # another record took the last token: we are the last
                home.vacate(self.slot)

    @property
    def is_rootless(self) -> bool:
        """A Python scalar seen as a value: no root, no event."""
        return self.account is None and self.home is None

    @property
    def root_nbytes(self) -> int:
        """Bytes of the root this value pins (a one-element slice pins all of it)."""
        if self.home is not None:
            return self.home.nbytes
        return 0 if self.account is None else self.aval.nbytes

    @property
    def is_unique(self) -> bool:
        """No other holder of the record, no other record on its container, and no
        execution record that holds the container."""
        home, array = self.home, self.array
        return (
            not self.tokens
            and (home is None or not home.tokens)
            and (type(array) is not DeviceArray or not array.is_in_flight)
        )

    @property
    def is_spare(self) -> bool:
        """On the host and inline, with no other holder: it can move as it is."""
        return (
            not self.tokens
            and self.account is not None
            and type(self.array) is np.ndarray
        )

    @property
    def is_whole(self) -> bool:
        """The value is all of its root, in C order, and the only description of it."""
        array = self.array
        if type(array) is not DeviceArray:
            return self.home is None
        return array.is_whole and self.home is not None and not self.home.tokens

    def seat(self, home: RetentionContainer, slot: int) -> None:
        """Become the record of entry `slot` of a container."""
        self.home, self.slot = home, slot
        array = self.array
        if type(array) is DeviceArray:
            array.home, array.slot = home, slot

    def container(self) -> RetentionContainer:
        """The container that holds the root; made from the inline form on first use.

        Cost: one small object; no storage allocation, copy or provider call.
        """
        home = self.home
        if home is None:
            aval = self.aval
            home = RetentionContainer(
                self.array, aval.device, aval.nbytes, self.account
            )
            self.slot = home.append(self.array)
            self.account = None
            self.home = home
        return home

    def derive(self, array: Buffer, aval: Aval) -> ValueRecord:
        """Another record over the same root: a second descriptor, no second owner."""
        if self.account is None and self.home is None:
            return ValueRecord(array, aval, None)
        home = self.container()
        home.tokens.append(None)
        record = ValueRecord(array, aval, None)
        record.seat(home, home.append(array))
        return record

    def into_tensor(self) -> Tensor:
        """Move the owner out; the caller proved `is_unique`. The record is empty after.

        Raises:
            ExtractError: the group holds another descriptor on that allocation.
            BorrowConflictError: a guard or an exported array still reads the value.
        """
        home = self.home
        if home is not None:
            tensor = home.take(self.slot, self.array)
            self.home = None
        else:
            account, self.account = self.account, None
            storage = OwnedStorage._from_allocation(
                self.aval.device, self.array, account
            )
            tensor = Tensor._seat(storage, self.array)
        self.array = None
        return tensor


def record_of(tensor: Tensor, aval: Aval, operation: str) -> ValueRecord:
    """Move a tensor in: the reverse of `into_tensor`. No event, no copy.

    A tensor whose storage is a part of a root, or whose layout is not the whole of it,
    keeps its storage in a container.
    """
    storage, array = tensor._unseat(operation)
    if not isinstance(array, np.ndarray):
        return _seated(storage, array, aval)
    moved = storage._into_allocation()
    if moved is None:
        return _seated(storage, array, aval)
    device, allocation, account = moved
    whole = array.nbytes == allocation.nbytes and array.flags.c_contiguous
    if whole:  # inline records are the whole, row-major
        return ValueRecord(array, aval, account)
    home = RetentionContainer(allocation, device, allocation.nbytes, account)
    record = ValueRecord(array, aval, None)
    record.seat(home, home.append(array))
    return record


def device_record(allocation: Any, aval: Aval, account: Any) -> ValueRecord:
    """The record of a fresh device allocation. It has no inline form: launches hold its
    root, so the root is counted from the beginning.

    Cost: metadata only; no event, no provider call.
    """
    storage = OwnedStorage._from_allocation(aval.device, allocation, account)
    array = DeviceArray.whole(allocation, aval.shape, aval.dtype)
    return _seated(storage, array, aval)


def _seated(storage: OwnedStorage, array: Buffer, aval: Aval) -> ValueRecord:
    home = RetentionContainer.of_storage(storage, aval.device)
    record = ValueRecord(array, aval, None)
    record.seat(home, home.append(array))
    return record


__all__ = [
    "POOLED_FROM",
    "Buffer",
    "RetentionContainer",
    "ValueRecord",
    "device_record",
    "record_of",
]
