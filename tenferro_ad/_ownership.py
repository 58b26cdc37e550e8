"""Moves, strong counts and borrows: the three rules that every owner here obeys.

`MoveOnly` objects exist once: they have no public constructor, cannot be copied or
pickled, and after a consuming call every use raises `UseAfterMoveError` naming that
call. `Shared` is an explicit strong count that keeps a value alive and grants no right
to its bytes. `Borrow` is the cell that decides who may touch bytes now: any number of
shared holders, or one exclusive borrow (which its holder may divide among children).

Counts are lists of tokens: `append` and `pop` are atomic with and without the
interpreter lock, and an empty `pop` says "last", so no lock is held in a finaliser. A
finaliser that never runs leaves a count too high, which can cost memory or raise a
typed conflict, and never frees early or admits a second writer.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, NoReturn, Protocol, TypeVar, final

from .errors import (
    BorrowConflictError,
    NotCloneableError,
    NotConstructibleError,
    NotUniqueError,
    UseAfterMoveError,
)

BorrowKind = Literal["shared", "exclusive"]
"""The two kinds of borrow; owning is not a borrow but the absence of any."""


def _refuse_class(self: object, value: object) -> NoReturn:
    kind = type(self).__name__
    raise NotConstructibleError(
        operation="__class__",
        kind=kind,
        found=f"the class of a `{kind}` never changes",
        fix="call the method of this object that returns the other kind",
    )


class MoveOnly:
    """Base of owners and capabilities; one level of subclasses, each of them final.

    A subclass lists its slots, is made inside the package with `object.__new__`, and
    starts with `_moved_by` set to None.
    """

    __slots__ = ("_moved_by", "__weakref__")

    _moved_by: str | None

    # A data descriptor intercepts `x.__class__ = Other` at no cost to other stores; a
    # `__setattr__` in Python would slow each of them.
    __class__ = property(type, _refuse_class)

    def __init_subclass__(cls) -> None:
        if MoveOnly not in cls.__bases__:
            raise TypeError(
                f"`{cls.__bases__[0].__name__}` is final. Hold one instead of "
                "inheriting from it."
            )
        super().__init_subclass__()

    def __new__(cls, *args: object, **kwargs: object) -> Any:
        """Refuse direct construction of any owner or capability."""
        raise NotConstructibleError(
            operation=cls.__name__,
            kind=cls.__name__,
            fix="use the function or method that returns one",
        )

    def __copy__(self) -> NoReturn:
        raise NotCloneableError(operation="copy.copy", kind=type(self).__name__)

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise NotCloneableError(operation="copy.deepcopy", kind=type(self).__name__)

    def __reduce__(self) -> NoReturn:
        raise NotCloneableError(operation="pickle", kind=type(self).__name__)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise NotCloneableError(operation="pickle", kind=type(self).__name__)

    def __getstate__(self) -> NoReturn:
        raise NotCloneableError(operation="pickle", kind=type(self).__name__)

    def _require(self, operation: str) -> None:
        """Raise unless this object still holds what it was made with."""
        moved_by = self._moved_by
        if moved_by is not None:
            raise UseAfterMoveError(
                operation=operation, kind=type(self).__name__, consumed_by=moved_by
            )


class Releasable(Protocol):
    """What a `Shared` may hold: `_release` runs once, when the last holder goes."""

    def _release(self) -> None: ...


class Spanned(Protocol):
    """What a refused borrow names: only its identity goes into the error."""

    @property
    def span(self) -> object: ...


T = TypeVar("T", bound=Releasable)


@final
class _Cell(Generic[T]):
    """The counted value; `tokens` counts the holders beyond the first."""

    __slots__ = ("tokens", "value")

    def __init__(self, value: T) -> None:
        self.tokens: list[None] = []
        self.value = value


@final
class Shared(MoveOnly, Generic[T]):
    """One strong reference to a value; the last one to go releases the value.

    It keeps the value's root alive and gives neither ownership nor write authority.
    """

    __slots__ = ("_cell",)

    _cell: _Cell[T] | None

    @classmethod
    def _new(cls, value: T) -> Shared[T]:
        """Start counting `value` with one holder."""
        cell = _Cell(value)
        shared: Shared[T] = object.__new__(cls)
        shared._moved_by = None
        shared._cell = cell
        return shared

    def _live(self, operation: str) -> _Cell[T]:
        cell = self._cell
        if cell is None:
            raise UseAfterMoveError(
                operation=operation,
                kind="Shared",
                consumed_by=self._moved_by or "release",
            )
        return cell

    @property
    def value(self) -> T:
        """The counted value, valid while this holder lives."""
        return self._live("value").value

    @property
    def strong_count(self) -> int:
        """Number of holders, for reports and tests; never an argument for a right."""
        return len(self._live("strong_count").tokens) + 1

    def clone(self) -> Shared[T]:
        """Return another holder of the same value.

        Cost: one object; no allocation of storage, no provider call.
        """
        cell = self._live("clone")
        other: Shared[T] = object.__new__(Shared)
        other._moved_by = None
        # The cell is stored before it is counted: an interrupt can only arrive after
        # the append, when dropping `other` undoes both.
        other._cell = cell
        cell.tokens.append(None)
        return other

    def release(self) -> None:
        """Give this strong reference back; the last one releases the value."""
        self._give_back(self._live("release"), "release")

    def _give_back(self, cell: _Cell[T], operation: str) -> None:
        self._moved_by = operation
        self._cell = None
        try:
            cell.tokens.pop()
        except IndexError:
            cell.value._release()

    def try_unwrap(self, operation: str = "try_unwrap") -> T:
        """Move the value out without releasing it, if this is its only holder.

        Raises:
            NotUniqueError: Others hold it; `recovered` is this same holder.
        """
        cell = self._live(operation)
        if cell.tokens:
            raise NotUniqueError(
                operation=operation,
                found=f"{len(cell.tokens)} other strong references exist",
                fix="release the other holders first",
                recovered=self,
            )
        self._moved_by = operation
        self._cell = None
        return cell.value

    def __del__(self) -> None:
        cell = getattr(self, "_cell", None)
        if cell is not None:
            self._give_back(cell, "__del__")

    def __repr__(self) -> str:
        cell = self._cell
        if cell is None:
            return "Shared(released)"
        return f"Shared({type(cell.value).__name__}, holders={len(cell.tokens) + 1})"


@final
class Borrow:
    """Who may touch the bytes of one owner or group now.

    Each side announces itself before it looks for the other, so two threads can both be
    refused and can never both be admitted. A refused request changes nothing.
    """

    __slots__ = ("_gate", "_readers", "_writers")

    def __init__(self) -> None:
        self._readers: list[None] = []
        self._gate: list[None] = [None]
        self._writers: list[None] = []

    @property
    def shared_count(self) -> int:
        """Number of open shared borrows."""
        return len(self._readers)

    @property
    def is_exclusive(self) -> bool:
        """Whether the exclusive borrow is taken."""
        return not self._gate

    @property
    def outstanding(self) -> BorrowKind | None:
        """Kind of the open borrow, or None."""
        if not self._gate:
            return "exclusive"
        return "shared" if self._readers else None

    def acquire_shared(self, operation: str, of: Spanned | None = None) -> None:
        """Open one shared borrow.

        Raises:
            BorrowConflictError: The exclusive borrow is taken.
        """
        self._readers.append(None)
        if not self._gate:
            self._readers.pop()
            raise BorrowConflictError(
                operation=operation,
                requested="shared",
                outstanding="exclusive",
                count=len(self._writers) + 1,
                span=None if of is None else of.span,
            )

    def acquire_exclusive(
        self,
        operation: str,
        of: Spanned | None = None,
        requested: Literal["exclusive", "owning"] = "exclusive",
    ) -> None:
        """Take the one exclusive borrow.

        Raises:
            BorrowConflictError: Any borrow is open.
        """
        try:
            self._gate.pop()
        except IndexError:
            raise BorrowConflictError(
                operation=operation,
                requested=requested,
                outstanding="exclusive",
                count=len(self._writers) + 1,
                span=None if of is None else of.span,
            ) from None
        readers = len(self._readers)
        if readers:
            self._gate.append(None)
            raise BorrowConflictError(
                operation=operation,
                requested=requested,
                outstanding="shared",
                count=readers,
                span=None if of is None else of.span,
            )

    def retain(self, kind: BorrowKind) -> None:
        """Divide a borrow that the caller already holds among one more holder."""
        if kind == "shared":
            self._readers.append(None)
        else:
            self._writers.append(None)

    def release(self, kind: BorrowKind) -> None:
        """End one holder's part; the last part of an exclusive borrow reopens it."""
        if kind == "shared":
            self._readers.pop()
            return
        try:
            self._writers.pop()
        except IndexError:
            self._gate.append(None)

    def __repr__(self) -> str:
        if not self._gate:
            return f"Borrow(exclusive, holders={len(self._writers) + 1})"
        return f"Borrow(shared={len(self._readers)})"
