"""Borrows of a claim: `StorageRef` reads, `StorageMut` reads and writes (contract G1).

Both hold the borrow that admitted them and, through it, everything that it was divided
from: a child keeps its parent's part open, so an owner stays inaccessible until the
last of them ends. They name a claim and count nothing: a borrow is no strong reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

from .._ownership import Borrow, BorrowKind, MoveOnly
from ..errors import ExpiredCapabilityError

if TYPE_CHECKING:
    from ._root import AllocationSpan, OwnedSpanClaim

Hold = tuple[Borrow, BorrowKind]


@final
class StorageRef(MoveOnly):
    """A shared borrow of a claim: permission to read, for as long as it is open."""

    __slots__ = ("_ref_claim", "_ref_holds")

    _ref_claim: OwnedSpanClaim
    _ref_holds: tuple[Hold, ...]

    @classmethod
    def _of(cls, claim: OwnedSpanClaim, cell: Borrow, operation: str) -> StorageRef:
        cell.acquire_shared(operation, claim)
        ref: StorageRef = object.__new__(cls)
        ref._moved_by = None
        ref._ref_claim = claim
        ref._ref_holds = ((cell, "shared"),)
        return ref

    @classmethod
    def _make(cls, claim: OwnedSpanClaim, holds: tuple[Hold, ...]) -> StorageRef:
        ref: StorageRef = object.__new__(cls)
        ref._moved_by = None
        ref._ref_claim = claim
        ref._ref_holds = holds
        return ref

    @property
    def span(self) -> AllocationSpan:
        """Identity of the borrowed bytes."""
        return self._live("span").span

    def _live(self, operation: str) -> OwnedSpanClaim:
        if self._moved_by is not None:
            _expired(self, operation)
        return self._ref_claim

    def _share(self, operation: str) -> StorageRef:
        """Divide the open borrow among one more reader."""
        claim = self._live(operation)
        return StorageRef._make(claim, _retained(self._ref_holds))

    def close(self, ended_by: str = "close") -> None:
        """End the borrow; closing twice does nothing."""
        if self._moved_by is None:
            self._moved_by = ended_by
            holds, self._ref_holds = self._ref_holds, ()
            del self._ref_claim
            for cell, kind in holds[::-1]:
                cell.release(kind)

    def __del__(self) -> None:
        if getattr(self, "_ref_holds", ()):
            self.close("__del__")

    def __repr__(self) -> str:
        return _described(self, self._moved_by, getattr(self, "_ref_claim", None))


@final
class StorageMut(MoveOnly):
    """An exclusive borrow of a claim: the only permission to write."""

    __slots__ = ("_mut_cell", "_mut_claim", "_mut_holds")

    _mut_cell: Borrow
    _mut_claim: OwnedSpanClaim
    _mut_holds: tuple[Hold, ...]

    @classmethod
    def _of(cls, claim: OwnedSpanClaim, cell: Borrow, operation: str) -> StorageMut:
        cell.acquire_exclusive(operation, claim)
        return cls._make(claim, ((cell, "exclusive"),))

    @classmethod
    def _make(cls, claim: OwnedSpanClaim, holds: tuple[Hold, ...]) -> StorageMut:
        mut: StorageMut = object.__new__(cls)
        mut._moved_by = None
        mut._mut_cell = Borrow()
        mut._mut_claim = claim
        mut._mut_holds = holds
        return mut

    @property
    def span(self) -> AllocationSpan:
        """Identity of the borrowed bytes."""
        return self._live("span").span

    def _live(self, operation: str) -> OwnedSpanClaim:
        if self._moved_by is not None:
            _expired(self, operation)
        return self._mut_claim

    def _reborrow_ref(self, operation: str) -> StorageRef:
        """Lend this exclusive borrow for reading; a child keeps what it came from."""
        claim = self._live(operation)
        self._mut_cell.acquire_shared(operation, claim)
        holds = _retained(self._mut_holds)
        return StorageRef._make(claim, (*holds, (self._mut_cell, "shared")))

    def _reborrow_muts(self, operation: str, count: int = 1) -> list[StorageMut]:
        """Divide this exclusive borrow among `count` children, proven disjoint."""
        claim = self._live(operation)
        if not count:
            return []
        self._mut_cell.acquire_exclusive(operation, claim)
        for _ in range(count - 1):
            self._mut_cell.retain("exclusive")
        return [
            StorageMut._make(
                claim, (*_retained(self._mut_holds), (self._mut_cell, "exclusive"))
            )
            for _ in range(count)
        ]

    def close(self, ended_by: str = "close") -> None:
        """End this holder's part of the borrow; children keep theirs."""
        if self._moved_by is None:
            self._moved_by = ended_by
            holds, self._mut_holds = self._mut_holds, ()
            del self._mut_claim
            for cell, kind in holds[::-1]:
                cell.release(kind)

    def __del__(self) -> None:
        if getattr(self, "_mut_holds", ()):
            self.close("__del__")

    def __repr__(self) -> str:
        return _described(self, self._moved_by, getattr(self, "_mut_claim", None))


def _retained(holds: tuple[Hold, ...]) -> tuple[Hold, ...]:
    for cell, kind in holds:
        cell.retain(kind)
    return holds


def _expired(capability: StorageRef | StorageMut, operation: str) -> NoReturn:
    raise ExpiredCapabilityError(
        operation=operation,
        kind=type(capability).__name__,
        ended_by=capability._moved_by or "close",
    )


def _described(capability: object, ended: str | None, claim: object) -> str:
    kind = type(capability).__name__
    return f"{kind}(ended by {ended})" if ended is not None else f"{kind}({claim})"
