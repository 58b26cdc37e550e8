"""Physical memory and the right to touch it (contract G1).

One direct chain keeps bytes alive: `RootResource` (the allocation) is counted by
`Shared`, `OwnedSpanClaim` holds one such reference for a byte range, `OwnedStorage` is
the unique token around one claim. `StorageRef` and `StorageMut` are borrows of a claim:
they name it, hold its borrow, and hold no strong reference of their own. Nothing makes
any of them from an id, a count, a raw buffer or a provider. `AllocationSpan` only
describes.

An array lent to the outside holds its borrow until it is garbage. The drop event is a
weak-reference callback on the lent view, which every slice, reshape and memory view of
it keeps alive; nothing queries it.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from .._ownership import Borrow, MoveOnly, Shared
from ..errors import InvalidArgumentError, NotUniqueError
from ._capability import StorageMut, StorageRef
from ._provider import AccountLike, Buffer, HostArray, ProviderContext

_serials: Iterator[int] = itertools.count(1)


@final
@dataclass(frozen=True, slots=True)
class AllocationSpan:
    """Identity of bytes for reports and errors: it opens nothing and proves nothing."""

    domain: str
    serial: int
    start: int
    stop: int

    def __str__(self) -> str:
        return (
            f"bytes {self.start}..{self.stop} of allocation {self.serial} "
            f"on `{self.domain}`"
        )


@final
@dataclass(frozen=True, slots=True)
class AllocationDiagnostics:
    """What a root says about itself."""

    domain: str
    serial: int


@final
class RootResource:
    """One allocation of a provider; released exactly once, by its last `Shared`."""

    __slots__ = (
        "_context",
        "account",
        "allocation",
        "capacity_bytes",
        "diagnostics",
        "provider",
    )

    def __init__(
        self,
        provider: Shared[ProviderContext],
        allocation: Buffer,
        account: AccountLike | None,
    ) -> None:
        self.provider = provider
        self._context = provider.value
        self.allocation = allocation
        self.capacity_bytes = int(allocation.nbytes)
        self.diagnostics = AllocationDiagnostics(self._context.name, next(_serials))
        self.account = account

    def _release(self) -> None:
        """Tell the account and the provider, once; called by the last `Shared`."""
        allocation, account = self.allocation, self.account
        self.allocation = None
        self.account = None
        if allocation is None:
            return
        if account is not None:
            account.release(self.capacity_bytes)
        # Not through `self.provider`: in a collected cycle its finaliser may run first.
        self._context.provider.give_back(allocation)

    def _take(self) -> tuple[Any, Buffer, AccountLike | None]:
        """Move the allocation out: the later `_release` finds nothing to do."""
        allocation, account = self.allocation, self.account
        self.allocation = None
        self.account = None
        return self._context.provider, allocation, account


@final
class OwnedSpanClaim(MoveOnly):
    """The unique claim on a byte range of a root. Safe code narrows, never widens."""

    __slots__ = ("_root", "_start", "_stop")

    _root: Shared[RootResource]
    _start: int
    _stop: int

    @classmethod
    def _make(cls, root: Shared[RootResource], start: int, stop: int) -> OwnedSpanClaim:
        claim: OwnedSpanClaim = object.__new__(cls)
        claim._moved_by = None
        claim._root = root
        claim._start = start
        claim._stop = stop
        return claim

    @property
    def byte_range(self) -> range:
        """Bytes of the root that this claim owns."""
        return range(self._start, self._stop)

    @property
    def span(self) -> AllocationSpan:
        """Identity of the claimed bytes."""
        at = self._root.value.diagnostics
        return AllocationSpan(at.domain, at.serial, self._start, self._stop)

    def split(self, at: int) -> tuple[OwnedSpanClaim, OwnedSpanClaim]:
        """Consume the claim and return the parts before and after byte `at` of it.

        Raises:
            InvalidArgumentError: `at` is outside; the claim is unchanged.

        Cost: metadata and one more holder of the root; no provider call.
        """
        self._require("split")
        if not 0 <= at <= self._stop - self._start:
            raise InvalidArgumentError(
                operation="split",
                argument="at",
                found=f"byte {at} of {self._stop - self._start}",
                fix="split within the claim",
                span=self.span,
            )
        middle = self._start + at
        second = self._root.clone()
        parts = (
            OwnedSpanClaim._make(self._root, self._start, middle),
            OwnedSpanClaim._make(second, middle, self._stop),
        )
        self._empty("split")
        return parts

    def _move(self, operation: str) -> OwnedSpanClaim:
        self._require(operation)
        moved = OwnedSpanClaim._make(self._root, self._start, self._stop)
        self._empty(operation)
        return moved

    def _empty(self, operation: str) -> None:
        self._moved_by = operation
        del self._root

    def __repr__(self) -> str:
        if self._moved_by is not None:
            return f"OwnedSpanClaim(moved by {self._moved_by})"
        return f"OwnedSpanClaim({self.span})"


@final
class OwnedStorage(MoveOnly):
    """The owner token of one claim, with the cell that decides who may touch it now."""

    __slots__ = ("_borrow", "_claim")

    _borrow: Borrow
    _claim: OwnedSpanClaim

    @classmethod
    def _make(cls, claim: OwnedSpanClaim) -> OwnedStorage:
        storage: OwnedStorage = object.__new__(cls)
        storage._moved_by = None
        storage._borrow = Borrow()
        storage._claim = claim
        return storage

    @classmethod
    def _from_allocation(
        cls, provider: Any, allocation: Buffer, account: AccountLike | None
    ) -> OwnedStorage:
        """Import: seat an allocation that nobody else reaches in a new root and claim.

        The one place that makes a root, and the one unproven step of the kernel: what
        the caller promises here is never checked again. The caller is a storage door or
        a value record giving up its inline form, and it guarantees

        - capacity: every byte of `allocation.nbytes` is valid until it is given back;
        - deallocation: `provider.give_back(allocation)` may run once, at any time from
          then on and in any thread, and nobody else frees or reuses the bytes;
        - alignment: its first byte is aligned for every dtype that the provider serves;
        - provider and device context: the allocation is this provider's, and the
          context that it needs outlives it.

        `account` counted the allocation already: no ledger event happens here.
        """
        context = Shared._new(ProviderContext(provider))
        root = Shared._new(RootResource(context, allocation, account))
        capacity = root.value.capacity_bytes
        return cls._make(OwnedSpanClaim._make(root, 0, capacity))

    def _into_allocation(self) -> tuple[Any, Buffer, AccountLike | None] | None:
        """Move the allocation out if this is the sole, full-range claim of its root.

        Returns:
            Provider, allocation and account, with this owner consumed and nothing
            released; or None, with this owner unchanged.
        """
        operation = "_into_allocation"
        self._require(operation)
        claim = self._claim
        if claim._start or claim._stop != claim._root.value.capacity_bytes:
            return None
        self._borrow.acquire_exclusive(operation, self, "owning")
        try:
            resource = claim._root.try_unwrap(operation)
        except NotUniqueError:
            self._borrow.release("exclusive")
            return None
        self._moved_by = operation
        del self._claim
        return resource._take()

    @property
    def nbytes(self) -> int:
        """Bytes claimed."""
        self._require("nbytes")
        return self._claim._stop - self._claim._start

    @property
    def span(self) -> AllocationSpan:
        """Identity of the claimed bytes."""
        self._require("span")
        return self._claim.span

    @property
    def _resource(self) -> RootResource:
        return self._claim._root.value

    def as_ref(self) -> StorageRef:
        """Borrow the claim shared.

        Raises:
            BorrowConflictError: The exclusive borrow is taken.

        Cost: constant; no provider call, no strong reference.
        """
        self._require("as_ref")
        return StorageRef._of(self._claim, self._borrow, "as_ref")

    def as_mut(self) -> StorageMut:
        """Borrow the claim exclusively.

        Raises:
            BorrowConflictError: Any borrow is open.

        Cost: constant; no provider call, no strong reference.
        """
        self._require("as_mut")
        return StorageMut._of(self._claim, self._borrow, "as_mut")

    def _move(self, operation: str) -> OwnedStorage:
        """Consume this token and return a new one for the same claim."""
        self._require(operation)
        self._borrow.acquire_exclusive(operation, self, "owning")
        moved = OwnedStorage._make(self._claim._move(operation))
        self._moved_by = operation
        del self._claim
        return moved

    def split(self, at: int) -> tuple[OwnedStorage, OwnedStorage]:
        """Consume the owner and return owners of the bytes before and after `at`.

        Raises:
            InvalidArgumentError: `at` is outside; the owner is unchanged.
            BorrowConflictError: A borrow is open; the owner is unchanged.

        Cost: metadata and one more holder of the root; no provider call.
        """
        self._require("split")
        self._borrow.acquire_exclusive("split", self, "owning")
        try:
            first, second = self._claim.split(at)
        except InvalidArgumentError:
            self._borrow.release("exclusive")
            raise
        self._moved_by = "split"
        del self._claim
        return OwnedStorage._make(first), OwnedStorage._make(second)

    def __repr__(self) -> str:
        if self._moved_by is not None:
            return f"OwnedStorage(moved by {self._moved_by})"
        return f"OwnedStorage({self._claim.span})"


@final
class _Loan(weakref.ref[HostArray]):
    """The drop event of one lent array: it ends the capability that the array holds."""

    __slots__ = ("capability", "mapping")

    # Keeps the callbacks themselves alive; only added to and removed from.
    _open: ClassVar[set[_Loan]] = set()

    capability: StorageRef | StorageMut
    mapping: Shared[Any] | None

    # Identity, in C: a weak reference would ask its array.
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    @staticmethod
    def _ended(loan: weakref.ref[HostArray]) -> None:
        assert isinstance(loan, _Loan)
        _Loan._open.discard(loan)
        mapping, loan.mapping = loan.mapping, None
        if mapping is not None:
            mapping.release()
        loan.capability.close("garbage collection of the array")


def lend(
    array: HostArray,
    capability: StorageRef | StorageMut,
    mapping: Shared[Any] | None = None,
) -> HostArray:
    """Hand `array` to the outside: it holds `capability` until it is garbage.

    A `StorageRef` lends read-only bytes, a `StorageMut` writable ones. The capability
    (and mapping) is moved into the loan.

    Cost: a few small objects; no allocation of storage, no copy.
    """
    seen = array.view()
    code = array.dtype
    # dtypes without a buffer format travel as integers of their size.
    plain = code if code.kind in "biufc" else np.dtype(f"u{code.itemsize}")
    exported = seen if plain is code else seen.view(plain)
    loan = _Loan(exported, _Loan._ended)
    loan.capability = capability
    loan.mapping = mapping
    _Loan._open.add(loan)
    window = exported.data
    if isinstance(capability, StorageRef):
        window = window.toreadonly()
    lent: HostArray = np.asarray(window)
    return lent if plain is code else lent.view(code)
